//! How a client is made.

use std::{
    future::IntoFuture,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::Semaphore;

use super::{Client, Inner, keeper::LinkKeeper};
#[cfg(feature = "amqp")]
use crate::security::{Access, CredentialsProvider, Tls};
use crate::{
    clock::Clock,
    consume::ConsumeInterceptor,
    error::{Error, ErrorKind, Result},
    publish::PublishInterceptor,
    telemetry::PublishMeters,
    transport::{BoxFuture, DialOptions, MemoryTransport, Transport},
};

/// Longer than any wait makes sense, and short enough to be counted with.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) client_name: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) confirm_timeout: Duration,
    pub(crate) blocked_timeout: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) max_outstanding_publishes: usize,
    pub(crate) largest_body: Option<usize>,
    pub(crate) confirms: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client_name: "acemq".to_owned(),
            connect_timeout: Duration::from_secs(10),
            confirm_timeout: Duration::from_secs(10),
            blocked_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(20),
            max_outstanding_publishes: 1_000,
            largest_body: None,
            confirms: true,
        }
    }
}

/// Connects to a broker: `amqp://…` and `amqps://…` for RabbitMQ, `memory://NAME` for the broker
/// inside this process.
///
/// Awaiting the builder dials and fails if the broker cannot be reached; [`Connect::lazy`] makes
/// the client at once and dials when it is first used. `amqps` verifies the broker's certificate
/// against the platform's roots, unless [`Connect::tls`] or the address says otherwise.
///
/// # Addresses
/// `amqp://user:password@host:port/vhost?name=value&…`, or `amqps`. User, password, virtual host
/// and values are percent-encoded: `p#1/x` is written `p%231%2Fx`. Without a user it is `guest`
/// with `guest`, without a virtual host `/`, without a port 5672 or, for `amqps`, 5671. An IPv6
/// host stands in brackets. Several, separated by commas, are those of one cluster: see
/// [`Connect::also_at`]. The parameters are RabbitMQ's, and any other is refused:
///
/// | parameter | what it says |
/// |---|---|
/// | `heartbeat` | seconds between heartbeats, 10 by default; a peer that is silent for twice as long is lost. 0 leaves it to the broker |
/// | `connection_timeout` | milliseconds for finding and reaching the host, within [`connect_timeout`](Connect::connect_timeout) |
/// | `channel_max`, `frame_max` | the most channels of a connection, and bytes of a frame |
/// | `auth_mechanism` | `plain` (default) or `external`: see [`Connect::external_login`] |
/// | `cacertfile` | PEM file of the authorities to trust instead of the machine's |
/// | `certfile`, `keyfile` | PEM files of a client certificate and its key |
/// | `verify` | `verify_peer` (default), or `verify_none` for TLS that verifies nothing |
/// | `server_name_indication` | the name that the broker's certificate must hold, instead of the host |
///
/// No password is shown in errors, in logs or by `Debug`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use std::time::Duration;
///
/// let mq = acemq::connect("memory://connect-example")
///     .client_name("orders")
///     .confirm_timeout(Duration::from_secs(5))
///     .await?;
/// mq.close().await
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::Config`] for a URL or a file of TLS that cannot be read, and for settings that
/// contradict each other; [`ErrorKind::Connect`], [`ErrorKind::Timeout`],
/// [`ErrorKind::Authentication`], [`ErrorKind::NotFound`] (virtual host), [`ErrorKind::Refused`]
/// and [`ErrorKind::Tls`] for a broker that does not let us in. Where there are several addresses,
/// it is the error of one, and its text has all of them.
///
/// # Cancellation
/// Dropping the future ends the attempt; nothing is left open.
pub fn connect(url: impl Into<String>) -> Connect {
    Connect {
        urls: vec![url.into()],
        #[cfg(feature = "amqp")]
        access: Access::default(),
        options: Options::default(),
        publish_interceptors: Vec::new(),
        consume_interceptors: Vec::new(),
    }
}

/// A client that dials when it is first used. Short for `connect(url).lazy()`.
///
/// # Errors
/// [`ErrorKind::Config`] for a URL that cannot be read.
pub fn connect_lazy(url: impl Into<String>) -> Result<Client> {
    connect(url).lazy()
}

/// A connection about to be made. From [`connect`].
#[must_use = "a connection is made by awaiting it"]
pub struct Connect {
    urls: Vec<String>,
    #[cfg(feature = "amqp")]
    access: Access,
    options: Options,
    publish_interceptors: Vec<Arc<dyn PublishInterceptor>>,
    consume_interceptors: Vec<Arc<dyn ConsumeInterceptor>>,
}

impl Connect {
    /// How this client is called: the first part of its messages' origin (`name@host`) and
    /// AMQP's `connection_name`. Default `acemq`.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.options.client_name = name.into();
        self
    }

    /// Another address of the same broker, or of another node of its cluster. Whenever a
    /// connection is made, each address is tried in turn, the one that worked last first, until
    /// one lets us in; [`StateWatch::address`](crate::StateWatch::address) and the log say which.
    /// An address that holds several, separated by commas, means the same.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> acemq::Result<()> {
    /// let mq = acemq::connect("amqp://orders:s3cret@rabbit-1/shop")
    ///     .also_at("amqp://orders:s3cret@rabbit-2/shop")
    ///     .lazy()?;
    /// let same = acemq::connect_lazy("amqp://rabbit-1/shop,amqp://rabbit-2/shop")?;
    /// # same.close().await?;
    /// mq.close().await
    /// # }
    /// ```
    pub fn also_at(mut self, url: impl Into<String>) -> Self {
        self.urls.push(url.into());
        self
    }

    /// Where the login comes from, instead of the address: [`Credentials`], or a
    /// [`CredentialsProvider`], which is asked each time a connection is made. Of no effect with
    /// `memory://`, which has no login.
    ///
    /// [`Credentials`]: crate::Credentials
    #[cfg(feature = "amqp")]
    pub fn credentials(mut self, provider: impl Into<CredentialsProvider>) -> Self {
        self.access.credentials = Some(provider.into());
        self
    }

    /// Has the client certificate be the login (SASL EXTERNAL), which takes an `amqps://` address,
    /// a client certificate ([`Tls::client_certificate_files`]) and at the broker the plugin
    /// `rabbitmq_auth_mechanism_ssl` with a user of the certificate's name. Of no effect with
    /// `memory://`.
    #[cfg(feature = "amqp")]
    pub fn external_login(mut self) -> Self {
        self.access.external = true;
        self
    }

    /// How connections to `amqps://` are kept safe; [`Tls::required`] by default. Of no effect with
    /// `memory://`, which has no network.
    #[cfg(feature = "amqp")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.access.tls = Some(tls);
        self
    }

    /// The bound of each step of getting ready: asking for the login, dialling an address, opening
    /// a channel, declaring, starting to consume. Default 10 seconds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout.min(LONGEST);
        self
    }

    /// How long a publish waits for a place among those outstanding, for a connection that is
    /// being made again, and for the broker's confirm: each. Default 10 seconds.
    pub fn confirm_timeout(mut self, timeout: Duration) -> Self {
        self.options.confirm_timeout = timeout.min(LONGEST);
        self
    }

    /// How long a publish waits while the broker has paused publishing. Default 30 seconds.
    pub fn blocked_timeout(mut self, timeout: Duration) -> Self {
        self.options.blocked_timeout = timeout.min(LONGEST);
        self
    }

    /// How long [`Client::close`] waits for running handlers, all consumers together. Default 20
    /// seconds.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.options.drain_timeout = timeout.min(LONGEST);
        self
    }

    /// How many publishes may wait for their confirm at once; the next ones wait for a place.
    /// Default 1,000, at least 1.
    pub fn max_outstanding_publishes(mut self, count: usize) -> Self {
        self.options.max_outstanding_publishes =
            count.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        self
    }

    /// The largest body in bytes that is published. Default: what the broker's version takes
    /// (128 MiB before RabbitMQ 4.0, 16 MiB from 4.0); set it where the broker is set otherwise.
    pub fn largest_body(mut self, bytes: usize) -> Self {
        self.options.largest_body = Some(bytes);
        self
    }

    /// Gives up knowing whether the application's messages arrived: a send returns as soon as the
    /// message is handed over, and a message that reaches no queue is gone. What the library
    /// publishes on somebody's behalf (retries, dead letters, outbox records) stays confirmed.
    pub fn without_confirms(mut self) -> Self {
        self.options.confirms = false;
        self
    }

    /// Adds an interceptor that sees every message that is sent.
    pub fn intercept_publish(mut self, interceptor: impl PublishInterceptor) -> Self {
        self.publish_interceptors.push(Arc::new(interceptor));
        self
    }

    /// Adds an interceptor that sees every message before and after its handler.
    pub fn intercept_consume(mut self, interceptor: impl ConsumeInterceptor) -> Self {
        self.consume_interceptors.push(Arc::new(interceptor));
        self
    }

    /// Makes the client without dialling; it connects when it is first used, and goes on trying
    /// while that fails.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a URL that cannot be read, and for settings that contradict each
    /// other. Files of TLS are read when the client dials.
    pub fn lazy(self) -> Result<Client> {
        let transport = self.transport()?;
        let dial = |purpose: &str, publishes| DialOptions {
            connection_name: format!("{} ({purpose})", self.options.client_name),
            step_timeout: self.options.connect_timeout,
            body_max: self.options.largest_body,
            publishes,
        };
        let mut publish_interceptors = self.publish_interceptors;
        publish_interceptors.sort_by_key(|interceptor| interceptor.order());
        let mut consume_interceptors = self.consume_interceptors;
        consume_interceptors.sort_by_key(|interceptor| interceptor.order());
        let host = gethostname::gethostname().to_string_lossy().into_owned();
        let host = if host.is_empty() { "unknown-host".to_owned() } else { host };
        Ok(Client(Arc::new(Inner {
            publishing: LinkKeeper::new(Arc::clone(&transport), dial("publishing", true)),
            consuming: LinkKeeper::new(Arc::clone(&transport), dial("consuming", false)),
            permits: Arc::new(Semaphore::new(self.options.max_outstanding_publishes)),
            origin: format!("{}@{host}", self.options.client_name),
            clock: Clock::start(),
            publish_meters: PublishMeters::new(transport.name()),
            owned: Mutex::default(),
            transport,
            publish_interceptors,
            consume_interceptors,
            options: self.options,
        })))
    }
}

impl Connect {
    fn transport(&self) -> Result<Arc<dyn Transport>> {
        let urls: Vec<&str> = self.urls.iter().flat_map(|url| addresses(url)).collect();
        if let [url] = *urls
            && let Some(name) = strip_scheme(url, "memory://")
        {
            return Ok(Arc::new(MemoryTransport::new(name)?));
        }
        for url in &urls {
            if strip_scheme(url, "amqp://").or_else(|| strip_scheme(url, "amqps://")).is_none() {
                let why = match strip_scheme(url, "memory://") {
                    Some(_) => "connect: memory:// is one address, beside which there is no other",
                    None => "connect: the URL must begin with amqp://, amqps:// or memory://",
                };
                return Err(Error::new(ErrorKind::Config, why));
            }
        }
        #[cfg(feature = "amqp")]
        return Ok(Arc::new(crate::transport::AmqpTransport::at(urls, self.access.clone())?));
        #[cfg(not(feature = "amqp"))]
        return Err(Error::new(
            ErrorKind::Config,
            "connect to RabbitMQ: this build has no AMQP; switch the feature `amqp` on",
        ));
    }
}

/// The addresses in a list with commas between them. A comma that no scheme follows is part of an
/// address: a password may have one.
fn addresses(mut list: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(comma) = list[from..].find(',').map(|at| from + at) {
        let rest = list[comma + 1..].trim_start();
        match strip_scheme(rest, "amqp://").or_else(|| strip_scheme(rest, "amqps://")) {
            Some(_) => {
                found.push(list[..comma].trim_end());
                (list, from) = (rest, 0);
            }
            None => from = comma + 1,
        }
    }
    found.push(list);
    found
}

/// What follows the scheme, which may be written in capitals.
fn strip_scheme<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let (start, rest) = url.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

impl IntoFuture for Connect {
    type Output = Result<Client>;
    type IntoFuture = BoxFuture<'static, Result<Client>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let client = self.lazy()?;
            tokio::try_join!(client.0.publishing.connect(), client.0.consuming.connect())?;
            Ok(client)
        })
    }
}

impl std::fmt::Debug for Connect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may hold a password.
        f.debug_struct("Connect").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::addresses;

    #[test]
    fn a_list_of_addresses_is_parted_where_a_scheme_follows_a_comma() {
        for (list, parts) in [
            ("amqp://a", vec!["amqp://a"]),
            ("amqp://a,amqp://b", vec!["amqp://a", "amqp://b"]),
            ("amqps://a , AMQPS://b", vec!["amqps://a", "AMQPS://b"]),
            ("amqp://ada:p,w@a,amqp://b", vec!["amqp://ada:p,w@a", "amqp://b"]),
            ("memory://a,b", vec!["memory://a,b"]),
            ("", vec![""]),
        ] {
            assert_eq!(addresses(list), parts, "{list}");
        }
    }
}
