//! How a client is made.

use std::{
    future::IntoFuture,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::Semaphore;

use super::{Client, Inner, keeper::LinkKeeper};
use crate::{
    clock::Clock,
    consume::ConsumeInterceptor,
    error::{Error, ErrorKind, Result},
    publish::PublishInterceptor,
    telemetry::PublishMeters,
    transport::{BoxFuture, DialOptions, MemoryTransport, Transport},
};

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
/// against the platform's roots.
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
/// [`ErrorKind::Config`] for a URL that cannot be read; [`ErrorKind::Connect`],
/// [`ErrorKind::Timeout`], [`ErrorKind::Authentication`], [`ErrorKind::NotFound`] (virtual host),
/// [`ErrorKind::Refused`] and [`ErrorKind::Tls`] for a broker that does not let us in.
///
/// # Cancellation
/// Dropping the future ends the attempt; nothing is left open.
pub fn connect(url: impl Into<String>) -> Connect {
    Connect {
        url: url.into(),
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
    url: String,
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

    /// The bound of each step of getting ready: dialling, opening a channel, declaring, starting
    /// to consume. Default 10 seconds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// How long a publish waits for a place among those outstanding, for a connection that is
    /// being made again, and for the broker's confirm: each. Default 10 seconds.
    pub fn confirm_timeout(mut self, timeout: Duration) -> Self {
        self.options.confirm_timeout = timeout;
        self
    }

    /// How long a publish waits while the broker has paused publishing. Default 30 seconds.
    pub fn blocked_timeout(mut self, timeout: Duration) -> Self {
        self.options.blocked_timeout = timeout;
        self
    }

    /// How long [`Client::close`] waits for running handlers, all consumers together. Default 20
    /// seconds.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.options.drain_timeout = timeout;
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
    /// [`ErrorKind::Config`] for a URL that cannot be read.
    pub fn lazy(self) -> Result<Client> {
        let transport = transport(&self.url)?;
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

fn transport(url: &str) -> Result<Arc<dyn Transport>> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        Some("memory") => Ok(Arc::new(MemoryTransport::new(&url["memory://".len()..])?)),
        #[cfg(feature = "amqp")]
        Some("amqp" | "amqps") => Ok(Arc::new(crate::transport::AmqpTransport::new(url)?)),
        #[cfg(not(feature = "amqp"))]
        Some("amqp" | "amqps") => Err(Error::new(
            ErrorKind::Config,
            "connect to RabbitMQ: this build has no AMQP; switch the feature `amqp` on",
        )),
        _ => Err(Error::new(
            ErrorKind::Config,
            "connect: the URL must begin with amqp://, amqps:// or memory://",
        )),
    }
}
