//! One relayed connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// What is wrong with the network.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) stalled: bool,
    pub(super) delay: Duration,
}

/// What the connections of one proxy share.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) faults: watch::Receiver<Faults>,
    pub(super) under_way: Arc<AtomicUsize>,
}

/// Bytes on their way, and when they were sent.
struct Chunk {
    bytes: Vec<u8>,
    sent: Instant,
    _counted: Counted,
}

/// Bytes count as under way until they are delivered or lost.
struct Counted(Arc<AtomicUsize>, usize);

impl Counted {
    fn new(under_way: &Arc<AtomicUsize>, bytes: usize) -> Self {
        under_way.fetch_add(bytes, Ordering::Relaxed);
        Self(Arc::clone(under_way), bytes)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// As much as may be under way in one direction, in chunks. Past that the sender is
/// held back, as a network does.
const UNDER_WAY: usize = 64;
const CHUNK: usize = 16 * 1024;

/// Relays both directions until both are closed.
pub(super) async fn relay(client: TcpStream, server: TcpStream, network: Network) {
    for stream in [&client, &server] {
        // A proxy should not be the slow part.
        stream.set_nodelay(true).ok();
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        direction(from_client, to_server, network.clone()),
        direction(from_server, to_client, network),
    );
}

async fn direction(from: OwnedReadHalf, to: OwnedWriteHalf, network: Network) {
    let Network { faults, under_way } = network;
    let (sender, receiver) = mpsc::channel(UNDER_WAY);
    tokio::join!(take(from, sender, under_way), deliver(receiver, to, faults));
}

async fn take(mut from: OwnedReadHalf, chunks: mpsc::Sender<Chunk>, under_way: Arc<AtomicUsize>) {
    loop {
        let mut bytes = Vec::with_capacity(CHUNK);
        match from.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let chunk =
            Chunk { sent: Instant::now(), _counted: Counted::new(&under_way, bytes.len()), bytes };
        if chunks.send(chunk).await.is_err() {
            return;
        }
    }
}

async fn deliver(
    mut chunks: mpsc::Receiver<Chunk>,
    mut to: OwnedWriteHalf,
    mut faults: watch::Receiver<Faults>,
) {
    while let Some(Chunk { bytes, sent, _counted }) = chunks.recv().await {
        let delay = faults.borrow().delay;
        sleep_until(sent + delay).await;
        if faults.wait_for(|faults| !faults.stalled).await.is_err() {
            return;
        }
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // The end of the stream is data too: a stalled network holds it back.
    if faults.wait_for(|faults| !faults.stalled).await.is_ok() {
        to.shutdown().await.ok();
    }
}
