//! A relay between a client and a server, with faults.

mod relay;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use url::Url;

use self::relay::{Faults, Network, relay};
use crate::ports::Port;

/// Relays TCP connections to a server, until it is told to do worse.
///
/// Dropping it closes every connection and stops listening.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    target: String,
    faults: watch::Sender<Faults>,
    under_way: Arc<AtomicUsize>,
    listening: Option<Listening>,
}

#[derive(Debug)]
struct Listening {
    /// Dropping it ends the task.
    _stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts relaying to `target`, written `host:port`.
    pub async fn start(target: &str) -> Self {
        let mut proxy = Self {
            port: Port::lease(),
            target: target.to_owned(),
            faults: watch::Sender::new(Faults::default()),
            under_way: Arc::default(),
            listening: None,
        };
        proxy.restore().await;
        proxy
    }

    /// Starts relaying to the server of `url`, whose port must be written out.
    ///
    /// # Panics
    ///
    /// When `url` names no host and port.
    pub async fn in_front_of(url: &str) -> Self {
        let url = Url::parse(url).expect("a URL");
        let host = url.host_str().expect("a URL with a host");
        let port = url.port().expect("a URL with a port");
        Self::start(&format!("{host}:{port}")).await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port.number()).into()
    }

    /// `url` with this proxy's host and port.
    ///
    /// # Panics
    ///
    /// When `url` is no URL with a host.
    pub fn url_for(&self, url: &str) -> String {
        let mut url = Url::parse(url).expect("a URL");
        url.set_host(Some("127.0.0.1")).expect("a URL with a host");
        url.set_port(Some(self.port.number())).expect("a URL with a host");
        url.into()
    }

    /// Closes every connection, and refuses new ones until [`restore`](Self::restore).
    pub async fn cut(&mut self) {
        if let Some(Listening { _stop, task }) = self.listening.take() {
            drop(_stop);
            task.await.expect("relay connections");
        }
    }

    /// Keeps connections open and accepts new ones, but forwards nothing until
    /// [`restore`](Self::restore). What was sent meanwhile arrives then.
    pub fn stall(&self) {
        self.faults.send_modify(|faults| faults.stalled = true);
    }

    /// How many bytes it has taken from either side and not delivered yet.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Delivers every byte this much later, in both directions; zero ends that.
    pub fn delay(&self, delay: Duration) {
        self.faults.send_modify(|faults| faults.delay = delay);
    }

    /// Undoes [`cut`](Self::cut) and [`stall`](Self::stall); a delay stays.
    pub async fn restore(&mut self) {
        self.faults.send_modify(|faults| faults.stalled = false);
        if self.listening.is_some() {
            return;
        }
        let listener = TcpListener::bind(self.address()).await.expect("listen as a proxy");
        let (stop, stopped) = oneshot::channel();
        let network =
            Network { faults: self.faults.subscribe(), under_way: Arc::clone(&self.under_way) };
        let task = tokio::spawn(accept(listener, self.target.clone(), network, stopped));
        self.listening = Some(Listening { _stop: stop, task });
    }
}

async fn accept(
    listener: TcpListener,
    target: String,
    network: Network,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut relays = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                let (target, network) = (target.clone(), network.clone());
                relays.spawn(async move {
                    // A server that is down closes the client's connection as well.
                    if let Ok(server) = TcpStream::connect(target).await {
                        relay(client, server, network).await;
                    }
                });
            }
            // Else those that ended would pile up.
            Some(_) = relays.join_next() => {}
        }
    }
    drop(listener);
    relays.shutdown().await;
}
