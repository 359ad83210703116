//! A RabbitMQ node of the test's own.

mod certificates;
mod install;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

pub use self::certificates::{Authority, Identity, TlsFiles};
use self::install::Install;
use crate::ports::Port;
use crate::process::Process;
use crate::unique;

/// Generous, for a machine whose cores are all compiling.
const START: Duration = Duration::from_secs(90);
const STOP: Duration = Duration::from_secs(60);

/// What an [`OwnBroker`] is.
#[derive(Debug, Default)]
pub struct BrokerOptions {
    /// Which RabbitMQ runs.
    pub version: BrokerVersion,
    /// Lines of `rabbitmq.conf` to add.
    pub config: String,
    /// Whether it listens for TLS as well, with a certificate for `localhost` and
    /// `127.0.0.1` by an authority of its own ([`OwnBroker::ca_file`]).
    pub tls: bool,
    /// What it is given for TLS instead, which it then listens for.
    pub tls_files: Option<TlsFiles>,
    /// The plugins that it runs.
    pub plugins: Vec<&'static str>,
}

/// Which RabbitMQ an [`OwnBroker`] runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BrokerVersion {
    /// The distribution's, 3.x on Debian 12.
    #[default]
    V3,
    /// 4.x, in the folder that `ACEMQ_TEST_RABBITMQ4_ROOT` names.
    V4,
}

/// A RabbitMQ node that belongs to one test: private ports, data, cookie and name, no
/// plugins but those asked for. It may be stopped, killed, paused and filled. Dropping it removes it all.
///
/// The user is `guest` with password `guest`, the virtual host `/`.
#[derive(Debug)]
pub struct OwnBroker {
    install: Install,
    process: Process,
    node: String,
    amqp: Port,
    amqps: Option<Port>,
    distribution: Port,
}

impl OwnBroker {
    /// Starts a broker with the default options, or says that the test is left out.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed and `ACEMQ_TEST_REQUIRE` lists
    /// `own-rabbitmq`.
    pub async fn start() -> Option<Self> {
        Self::start_with(BrokerOptions::default()).await
    }

    /// Starts a broker, or says that the test is left out.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed and `ACEMQ_TEST_REQUIRE` lists
    /// `own-rabbitmq` (for 4.x: `own-rabbitmq4`).
    pub async fn start_with(options: BrokerOptions) -> Option<Self> {
        let BrokerOptions { version, config, tls, tls_files, plugins } = options;
        let install = Install::find(version)?;
        let own = || Authority::new("acemq test authority").files();
        let tls_files = tls_files.or_else(|| tls.then(own));
        let process = Process::new(&install.temporary());
        let mut broker = Self {
            node: format!("{}@localhost", unique("acemq")),
            amqp: Port::lease(),
            amqps: tls_files.is_some().then(Port::lease),
            distribution: Port::lease(),
            install,
            process,
        };
        broker.prepare(&config, tls_files.as_ref(), &plugins);
        broker.run().await;
        Some(broker)
    }

    /// Where it listens, with credentials.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}", self.amqp.number())
    }

    /// Where it listens for TLS, with credentials.
    ///
    /// # Panics
    ///
    /// When it was started without TLS.
    pub fn tls_url(&self) -> String {
        let port = self.amqps.as_ref().expect("BrokerOptions::tls is off");
        format!("amqps://guest:guest@localhost:{}", port.number())
    }

    /// The PEM file of the authority that signed the broker's certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.process.home().join(certificates::AUTHORITY)
    }

    /// The broker's log, for assertions and for the message of a failure.
    pub fn log(&self) -> String {
        let path = self.process.home().join("log").join(format!("{}.log", self.node));
        fs::read_to_string(path).unwrap_or_default()
    }

    /// Runs `rabbitmqctl` with `arguments`, and gives what it printed, without headings.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub async fn ctl(&self, arguments: &[&str]) -> String {
        let mut command = self.install.command(&self.install.home().join("sbin/rabbitmqctl"));
        self.set_environment(&mut command);
        command.args(["-q", "-n", &self.node]).args(arguments);
        let output = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .output()
            .await
            .expect("run rabbitmqctl");
        assert!(
            output.status.success(),
            "rabbitmqctl {arguments:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Shuts it down in order. Its data and its ports stay.
    ///
    /// # Panics
    ///
    /// When it does not end, or did not run.
    pub async fn stop(&mut self) {
        self.process.stop(Signal::TERM, STOP).await;
    }

    /// Starts it again with the same ports and data, after shutting it down in order if
    /// it runs.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn restart(&mut self) {
        if self.process.is_running() {
            self.stop().await;
        }
        self.run().await;
    }

    /// Ends it at once, as a power cut would. Its data and its ports stay.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops it in its tracks: connections stay open and nothing answers.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Lets it go on after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.process.resume();
    }

    /// Writes what the node reads at its start.
    fn prepare(&self, extra: &str, tls: Option<&TlsFiles>, plugins: &[&str]) {
        let home = self.process.home();
        self.install.link_needed_plugins(home, plugins);
        if let Some(files) = tls {
            certificates::write(home, files);
        }
        write(&home.join("rabbitmq.conf"), &self.configuration(extra));
        write(&home.join("environment"), "");
        write(&home.join("plugins"), &format!("[{}].", plugins.join(",")));
        let cookie = home.join(".erlang.cookie");
        write(&cookie, &unique("cookie"));
        fs::set_permissions(&cookie, fs::Permissions::from_mode(0o400)).expect("guard the cookie");
    }

    fn configuration(&self, extra: &str) -> String {
        let home = self.install.inside(self.process.home());
        let mut lines = vec![format!("listeners.tcp.1 = 127.0.0.1:{}", self.amqp.number())];
        if let Some(port) = &self.amqps {
            let file = |name| home.join(name).display().to_string();
            lines.extend([
                format!("listeners.ssl.1 = 127.0.0.1:{}", port.number()),
                format!("ssl_options.cacertfile = {}", file(certificates::AUTHORITY)),
                format!("ssl_options.certfile = {}", file(certificates::CERTIFICATE)),
                format!("ssl_options.keyfile = {}", file(certificates::KEY)),
            ]);
        }
        // A disk that is nearly full would block every publisher; neither can the size of
        // the machine's memory be read everywhere.
        let defaults = [
            ("disk_free_limit.absolute", "1MB"),
            ("total_memory_available_override_value", "4GB"),
            ("log.console", "false"),
            ("log.file.level", "info"),
        ];
        let tls =
            [("ssl_options.verify", "verify_none"), ("ssl_options.fail_if_no_peer_cert", "false")];
        let tls = tls.into_iter().filter(|_| self.amqps.is_some());
        for (key, value) in defaults.into_iter().chain(tls) {
            if !extra.contains(key) {
                lines.push(format!("{key} = {value}"));
            }
        }
        lines.push(extra.to_owned());
        lines.join("\n") + "\n"
    }

    async fn run(&mut self) {
        let home = self.install.inside(self.process.home());
        let mut command = self.install.command(&home.join("server/sbin/rabbitmq-server"));
        self.set_environment(&mut command);
        self.process.start(&mut command);
        let end = Instant::now() + START;
        while !self.answers().await {
            assert!(
                self.process.is_running() && Instant::now() < end,
                "RabbitMQ did not start:\n{}\n{}",
                self.process.output(),
                self.log()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn answers(&self) -> bool {
        greets(self.amqp.number()).await
            && match &self.amqps {
                Some(port) => TcpStream::connect(("127.0.0.1", port.number())).await.is_ok(),
                None => true,
            }
    }

    fn set_environment(&self, command: &mut Command) {
        let home = self.install.inside(self.process.home());
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LANG", "C.UTF-8")
            // The Erlang cookie is read from here.
            .env("HOME", &home)
            // The start script replaces itself by the server where this is set, so that
            // the process started is the one to signal.
            .env("detached", "true")
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_FLAGS", "-kernel inet_dist_use_interface {127,0,0,1}")
            // Else the distribution's settings would be read.
            .env("RABBITMQ_CONF_ENV_FILE", home.join("environment"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", home.join("advanced.config"))
            .env("RABBITMQ_CONFIG_FILE", home.join("rabbitmq"))
            .env("RABBITMQ_CONFIG_FILES", home.join("conf.d/*.conf"))
            .env("RABBITMQ_DIST_PORT", self.distribution.number().to_string())
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", home.join("plugins"))
            .env("RABBITMQ_LOG_BASE", home.join("log"))
            .env("RABBITMQ_MNESIA_BASE", home.join("data"))
            .env("RABBITMQ_NODENAME", &self.node)
            .env("RABBITMQ_SCRIPTS_DIR", home.join("server/sbin"));
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
}

/// Whether a broker greets on `port`: it accepts connections a little earlier.
async fn greets(port: u16) -> bool {
    let greeting = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"AMQP\0\0\x09\x01").await?;
        stream.read_u8().await
    };
    // The first frame of a broker that takes us is a method frame, type 1.
    matches!(timeout(Duration::from_secs(5), greeting).await, Ok(Ok(1)))
}
