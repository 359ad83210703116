//! One socket, two writers: lapin and our publishing channel.
//!
//! lapin's way of publishing costs more than all the rest (measured: 22 of the 29 µs of processor
//! time that a message took), and does not tell which publish a return belongs to. So the
//! publishing channel is ours (`publish`): its frames go past lapin, which speaks the rest of the
//! protocol over a pipe. Both directions are cut at the frames' ends only.

use std::{
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::{Buf as _, BytesMut};
use futures_util::{
    io::{AsyncRead, AsyncWrite},
    task::AtomicWaker,
};
use tokio::io::{AsyncRead as _, AsyncWrite as _, DuplexStream, ReadBuf};

use super::{publish::Publisher, wire::Socket};

/// What the pipe to lapin holds, and how much of either direction waits here at most.
pub(super) const BUFFER: usize = 256 * 1024;
/// How much is read at once.
const READ: usize = 64 * 1024;

/// How often lapin, which watches over the heartbeats, hears that the broker is alive when all it
/// sends is for us.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
const HEARTBEAT: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, 0xCE];
/// What lapin sends before its first frame.
const PROTOCOL_HEADER: usize = 8;

/// Where the publishing channel is connected once there is one.
#[derive(Debug, Default)]
pub(super) struct Tap {
    pub(super) publisher: OnceLock<Arc<Publisher>>,
    pub(super) waker: Arc<AtomicWaker>,
}

/// Carries bytes until either side has ended.
pub(super) async fn run(socket: Socket, lapin: DuplexStream, tap: Arc<Tap>) {
    let mut switch = Switch {
        socket,
        lapin,
        tap,
        from_lapin: BytesMut::new(),
        greeted: false,
        lapin_ended: false,
        to_socket: BytesMut::new(),
        flushed: true,
        read: vec![0; READ],
        incoming: Incoming::default(),
        to_lapin: BytesMut::new(),
        socket_ended: false,
        sign_of_life: Instant::now(),
    };
    // Why it ended shows at both ends: lapin finds the pipe closed, the broker the socket.
    let _ = std::future::poll_fn(|context| switch.poll(context)).await;
}

struct Switch {
    socket: Socket,
    lapin: DuplexStream,
    tap: Arc<Tap>,
    from_lapin: BytesMut,
    greeted: bool,
    lapin_ended: bool,
    /// Whole frames.
    to_socket: BytesMut,
    flushed: bool,
    read: Vec<u8>,
    incoming: Incoming,
    to_lapin: BytesMut,
    socket_ended: bool,
    sign_of_life: Instant,
}

impl Switch {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tap.waker.register(context.waker());
        loop {
            let moved = self.take_from_lapin(context)?
                | self.write(context)?
                | self.read(context)?
                | self.give_to_lapin(context)?;
            let done =
                (self.lapin_ended && !moved) || (self.socket_ended && self.to_lapin.is_empty());
            if done {
                return Poll::Ready(Ok(()));
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    fn take_from_lapin(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        if self.lapin_ended || self.from_lapin.len() >= BUFFER {
            return Ok(false);
        }
        let mut buffer = ReadBuf::new(&mut self.read);
        let Poll::Ready(read) = Pin::new(&mut self.lapin).poll_read(context, &mut buffer) else {
            return Ok(false);
        };
        read?;
        self.lapin_ended = buffer.filled().is_empty();
        self.from_lapin.extend_from_slice(buffer.filled());
        while let Some(length) = self.frame_from_lapin() {
            self.to_socket.unsplit(self.from_lapin.split_to(length));
        }
        Ok(true)
    }

    /// The length of the next thing that lapin has written, if it is whole.
    fn frame_from_lapin(&mut self) -> Option<usize> {
        let length = match self.greeted {
            false => PROTOCOL_HEADER,
            true => frame_length(self.from_lapin.get(..Head::LENGTH)?),
        };
        let is_whole = self.from_lapin.len() >= length;
        self.greeted |= is_whole;
        is_whole.then_some(length)
    }

    fn write(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let mut moved = false;
        loop {
            if self.to_socket.is_empty()
                && let Some(publisher) = self.tap.publisher.get()
            {
                publisher.take_outgoing(&mut self.to_socket);
            }
            if self.to_socket.is_empty() {
                break;
            }
            match Pin::new(&mut self.socket).poll_write(context, &self.to_socket)? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => self.to_socket.advance(written),
                Poll::Pending => return Ok(moved),
            }
            (moved, self.flushed) = (true, false);
        }
        if !self.flushed {
            self.flushed = Pin::new(&mut self.socket).poll_flush(context)?.is_ready();
        }
        Ok(moved)
    }

    fn read(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        if self.socket_ended || self.to_lapin.len() >= BUFFER {
            return Ok(false);
        }
        let Poll::Ready(read) = Pin::new(&mut self.socket).poll_read(context, &mut self.read)
        else {
            return Ok(false);
        };
        let read = read?;
        let publisher = self.tap.publisher.get();
        if read == 0 {
            self.socket_ended = true;
            self.incoming.give_up(&mut self.to_lapin);
        }
        let heard = self.incoming.pass(&self.read[..read], publisher, &mut self.to_lapin);
        if heard && self.incoming.is_between_frames() && self.sign_of_life.elapsed() >= SIGN_OF_LIFE
        {
            self.sign_of_life = Instant::now();
            self.to_lapin.extend_from_slice(&HEARTBEAT);
        }
        Ok(true)
    }

    fn give_to_lapin(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let mut moved = false;
        while !self.to_lapin.is_empty() {
            match Pin::new(&mut self.lapin).poll_write(context, &self.to_lapin)? {
                Poll::Ready(written) => self.to_lapin.advance(written),
                Poll::Pending => break,
            }
            moved = true;
        }
        Ok(moved)
    }
}

/// What comes from the broker, taken apart.
#[derive(Debug, Default)]
struct Incoming {
    head: Head,
    /// What is left of the frame, its end marker included.
    rest: usize,
    ours: bool,
    /// The beginning of a frame of ours that has not come whole.
    frame: Vec<u8>,
}

/// Type, channel and length of a frame, as far as they have come.
#[derive(Debug, Default)]
struct Head {
    bytes: [u8; Self::LENGTH],
    length: usize,
}

impl Head {
    const LENGTH: usize = 7;
}

/// The length of a frame with this head, from its first byte to its last.
fn frame_length(head: &[u8]) -> usize {
    let size = head.iter().skip(3).take(4).fold(0, |size, byte| size << 8 | usize::from(*byte));
    Head::LENGTH + size + 1
}

impl Incoming {
    /// Hands frames of the publishing channel over, and appends everything else to `rest`. Says
    /// whether there were any of the first.
    fn pass(
        &mut self,
        mut bytes: &[u8],
        publisher: Option<&Arc<Publisher>>,
        others: &mut BytesMut,
    ) -> bool {
        let mut heard = false;
        while !bytes.is_empty() {
            if self.rest == 0 {
                let taken = (Head::LENGTH - self.head.length).min(bytes.len());
                let (start, after) = bytes.split_at(taken);
                self.head.bytes[self.head.length..][..taken].copy_from_slice(start);
                self.head.length += taken;
                bytes = after;
                if self.head.length < Head::LENGTH {
                    break;
                }
                let [_, high, low, ..] = self.head.bytes;
                let channel = u16::from_be_bytes([high, low]);
                self.ours = publisher.is_some_and(|publisher| publisher.number() == channel);
                self.rest = frame_length(&self.head.bytes) - Head::LENGTH;
                if !self.ours {
                    others.extend_from_slice(&self.head.bytes);
                }
            }
            let (part, after) = bytes.split_at(self.rest.min(bytes.len()));
            self.rest -= part.len();
            bytes = after;
            if let Some(publisher) = publisher.filter(|_| self.ours) {
                if self.rest > 0 || !self.frame.is_empty() {
                    self.frame.extend_from_slice(part);
                }
                if self.rest == 0 {
                    let whole = if self.frame.is_empty() { part } else { &self.frame };
                    if let Some((_end, payload)) = whole.split_last() {
                        publisher.incoming(self.head.bytes[0], payload);
                    }
                    self.frame.clear();
                    heard = true;
                }
            } else {
                others.extend_from_slice(part);
            }
            if self.rest == 0 {
                self.head.length = 0;
            }
        }
        heard
    }

    fn is_between_frames(&self) -> bool {
        self.rest == 0 && self.head.length == 0
    }

    /// Nothing more comes: what looked like the beginning of a frame is all there is.
    fn give_up(&mut self, others: &mut BytesMut) {
        if self.rest == 0 {
            others.extend_from_slice(&self.head.bytes[..self.head.length]);
        }
    }
}
