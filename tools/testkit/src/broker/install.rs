//! Where the programs of RabbitMQ are, and how they see the file system.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::BrokerVersion;
use crate::shared::{Server, missing, variable};

/// As Debian and Ubuntu install it, here and inside the tree of RabbitMQ 4.
const SERVER: &str = "usr/lib/rabbitmq/bin/rabbitmq-server";

const DISTRIBUTION: Server = Server {
    name: "own-rabbitmq",
    title: "an installed RabbitMQ",
    remedy: "install the package rabbitmq-server",
};
const TREE: Server = Server {
    name: "own-rabbitmq4",
    title: "an installed RabbitMQ 4.x",
    remedy: "as root, set ACEMQ_TEST_RABBITMQ4_ROOT",
};

/// An installed RabbitMQ.
#[derive(Debug)]
pub(super) struct Install {
    /// The folder it is to be run in by `chroot`, if not here.
    root: Option<PathBuf>,
    /// The folder with `sbin` and `plugins`, as its programs see it.
    home: PathBuf,
}

impl Install {
    /// Finds `version`, or says that the test is left out.
    pub(super) fn find(version: BrokerVersion) -> Option<Self> {
        match version {
            BrokerVersion::V3 => Self::in_root(None).or_else(|| missing(&DISTRIBUTION)),
            BrokerVersion::V4 => variable("ACEMQ_TEST_RABBITMQ4_ROOT")
                // Nobody else may use `chroot`.
                .filter(|_| rustix::process::geteuid().is_root())
                .and_then(|root| Self::in_root(Some(PathBuf::from(root))))
                .or_else(|| missing(&TREE)),
        }
    }

    fn in_root(root: Option<PathBuf>) -> Option<Self> {
        let base = root.as_deref().unwrap_or_else(|| Path::new("/"));
        // A link, by a relative path, to `<home>/sbin/rabbitmq-server`.
        let server = base.join(SERVER).canonicalize().ok()?;
        let home = server.parent()?.parent()?;
        let home = Path::new("/").join(home.strip_prefix(base.canonicalize().ok()?).ok()?);
        Some(Self { root, home })
    }

    /// The folder with `sbin` and `plugins`, as the programs see it.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// A folder for temporary files that the programs see.
    pub(super) fn temporary(&self) -> PathBuf {
        match &self.root {
            Some(root) => root.join("tmp"),
            None => std::env::temp_dir(),
        }
    }

    /// `path` as the programs see it.
    pub(super) fn inside(&self, path: &Path) -> PathBuf {
        let Some(root) = &self.root else {
            return path.to_owned();
        };
        let below = path.strip_prefix(root).expect("a path below the root");
        Path::new("/").join(below)
    }

    /// Runs `program`, given as the programs see it.
    pub(super) fn command(&self, program: &Path) -> Command {
        let Some(root) = &self.root else {
            return Command::new(program);
        };
        let mut command = Command::new("chroot");
        command.arg(root).arg(program);
        command
    }

    /// Makes `server` in `folder`: this installation without most of the plugins, but with `wanted`.
    ///
    /// Erlang looks for each module in the folder of every plugin, used or not, and
    /// those misses are more than half of the time a node takes to start.
    pub(super) fn link_needed_plugins(&self, folder: &Path, wanted: &[&str]) {
        let server = folder.join("server");
        let plugins = server.join("plugins");
        fs::create_dir_all(&plugins).expect("make a server's folder");
        let link = |from: PathBuf, to: PathBuf| symlink(from, to).expect("link a server's folder");
        for name in ["escript", "sbin"] {
            link(self.home.join(name), server.join(name));
        }
        let installed = match &self.root {
            Some(root) => root.join(self.home.strip_prefix("/").expect("an absolute path")),
            None => self.home.clone(),
        };
        for entry in fs::read_dir(installed.join("plugins")).expect("list the plugins") {
            let name = entry.expect("list the plugins").file_name();
            let text = name.to_string_lossy();
            let is_wanted = wanted.iter().any(|plugin| text.starts_with(&format!("{plugin}-")));
            if is_wanted || is_needed(&text) {
                link(self.home.join("plugins").join(&name), plugins.join(&name));
            }
        }
    }
}

/// Whether a broker without plugins may need the library `name`.
fn is_needed(name: &str) -> bool {
    const WEB: [&str; 8] =
        ["accept", "base64url", "cowboy", "eetcd", "gun", "jose", "prometheus", "quantile"];
    let is_plugin = name.starts_with("rabbitmq_") && !name.starts_with("rabbitmq_prelaunch");
    !is_plugin && !WEB.iter().any(|library| name.starts_with(library))
}
