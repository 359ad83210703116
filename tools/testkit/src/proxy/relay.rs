//! One relayed connection.

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

/// Bytes on their way, and when they were sent.
struct Chunk {
    bytes: Vec<u8>,
    sent: Instant,
}

/// As much as may be under way in one direction, in chunks. Past that the sender is
/// held back, as a network does.
const UNDER_WAY: usize = 64;
const CHUNK: usize = 16 * 1024;

/// Relays both directions until both are closed.
pub(super) async fn relay(client: TcpStream, server: TcpStream, faults: watch::Receiver<Faults>) {
    for stream in [&client, &server] {
        // A proxy should not be the slow part.
        stream.set_nodelay(true).ok();
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        direction(from_client, to_server, faults.clone()),
        direction(from_server, to_client, faults),
    );
}

async fn direction(from: OwnedReadHalf, to: OwnedWriteHalf, faults: watch::Receiver<Faults>) {
    let (sender, receiver) = mpsc::channel(UNDER_WAY);
    tokio::join!(take(from, sender), deliver(receiver, to, faults));
}

async fn take(mut from: OwnedReadHalf, under_way: mpsc::Sender<Chunk>) {
    loop {
        let mut bytes = Vec::with_capacity(CHUNK);
        match from.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let sent = Instant::now();
        if under_way.send(Chunk { bytes, sent }).await.is_err() {
            return;
        }
    }
}

async fn deliver(
    mut under_way: mpsc::Receiver<Chunk>,
    mut to: OwnedWriteHalf,
    mut faults: watch::Receiver<Faults>,
) {
    while let Some(Chunk { bytes, sent }) = under_way.recv().await {
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
