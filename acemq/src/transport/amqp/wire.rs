//! lapin's end of the pipe to the switch, kept within our reach.
//!
//! lapin moves its stream to a thread of its own, whose handshake waits without a bound and whose
//! end nobody hears of. A [`Wire`] wraps that stream: [`Line::cut`] ends it from outside, at any
//! time, so that the thread ends; [`Line::gone`] completes when the thread has dropped it. On its
//! way in it reads the broker's version, which lapin keeps to itself.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use async_rs::{Runtime, Tokio, traits::Reactor, util::RuntimeParts};
use futures_util::{
    io::{AsyncRead, AsyncWrite},
    task::AtomicWaker,
};
use lapin::types::{AMQPValue, FieldTable, parsing::parse_field_table};
use tokio::io::DuplexStream;
use tokio_util::{compat::Compat, sync::CancellationToken};

type Pipe = Compat<DuplexStream>;

/// The runtime that lapin is given: tokio, with [`Wire`]s for sockets.
pub(super) type Kit = RuntimeParts<Tokio, Wires>;

pub(super) fn kit() -> Runtime<Kit> {
    Runtime::new(RuntimeParts::new(Tokio::current(), Wires(Tokio::current())))
}

/// Our end of a [`Wire`].
#[derive(Clone, Debug, Default)]
pub(super) struct Line(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    cut: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
    gone: CancellationToken,
    /// Why the stream ended by itself.
    failure: OnceLock<io::Error>,
    version: OnceLock<String>,
    /// Whether what came first is TLS.
    speaks_tls: AtomicBool,
}

impl Line {
    /// Ends the stream: whoever reads or writes it gets an error, now and later.
    pub(super) fn cut(&self) {
        self.0.cut.store(true, Ordering::SeqCst);
        self.0.reader.wake();
        self.0.writer.wake();
    }

    /// Says why the stream is about to end.
    pub(super) fn fail(&self, error: io::Error) {
        let _ = self.0.failure.set(error);
    }

    /// Why the stream ended by itself.
    pub(super) fn failure(&self) -> Option<&io::Error> {
        self.0.failure.get()
    }

    /// Whether a plain stream was answered in TLS.
    pub(super) fn speaks_tls(&self) -> bool {
        self.0.speaks_tls.load(Ordering::SeqCst)
    }

    /// Completes when the stream has been dropped.
    pub(super) async fn gone(&self) {
        self.0.gone.cancelled().await;
    }

    /// The version that the broker gave in its greeting, such as `4.0.5`.
    pub(super) fn version(&self) -> Option<&str> {
        self.0.version.get().map(String::as_str)
    }

    fn check(&self) -> io::Result<()> {
        if self.0.cut.load(Ordering::SeqCst) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed on our side"));
        }
        Ok(())
    }
}

/// Cuts the line when it is dropped, unless told otherwise.
#[derive(Debug)]
pub(super) struct CutOnDrop(pub(super) Line);

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        self.0.cut();
    }
}

/// A stream that can be cut from outside.
pub(super) struct Wire {
    pipe: Pipe,
    line: Line,
    greeting: Option<Greeting>,
}

impl Wire {
    pub(super) fn new(pipe: Pipe, line: Line) -> Self {
        Self { pipe, line, greeting: Some(Greeting::default()) }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.line.0.gone.cancel();
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let wire = &mut *self;
        // Registered before the check, so that a cut in between is not missed.
        wire.line.0.reader.register(context.waker());
        wire.line.check()?;
        let read = Pin::new(&mut wire.pipe).poll_read(context, buffer);
        if let Some(greeting) = &mut wire.greeting
            && let Poll::Ready(Ok(length)) = read
            && greeting.feed(&buffer[..length])
        {
            if let Some(version) = greeting.version() {
                let _ = wire.line.0.version.set(version);
            }
            wire.line.0.speaks_tls.store(greeting.is_tls(), Ordering::SeqCst);
            wire.greeting = None;
        }
        match (read, wire.line.failure()) {
            (Poll::Ready(Ok(0)), Some(failure)) => {
                Poll::Ready(Err(io::Error::new(failure.kind(), failure.to_string())))
            }
            (read, _) => read,
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        // Registered before the check, so that a cut in between is not missed.
        self.line.0.writer.register(context.waker());
        self.line.check()?;
        Pin::new(&mut self.pipe).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.line.check()?;
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.line.0.writer.register(context.waker());
        self.line.check()?;
        Pin::new(&mut self.pipe).poll_close(context)
    }
}

/// The first frame from the broker: `connection.start`.
#[derive(Debug, Default)]
struct Greeting(Vec<u8>);

impl Greeting {
    /// Frame type, channel, length.
    const HEADER: usize = 7;
    /// Class and method, then the protocol's major and minor version, before the properties.
    const START: [u8; 6] = [0, 10, 0, 10, 0, 9];
    /// What a frame can hold before the sizes are agreed on, and a guard against a peer that is
    /// no broker.
    const MOST: usize = 128 * 1024;

    /// What a record of TLS begins with that says no.
    const TLS_ALERT: [u8; 2] = [21, 3];

    /// Takes what arrived; `true` once there is nothing more to learn.
    fn feed(&mut self, bytes: &[u8]) -> bool {
        self.0.extend_from_slice(bytes);
        self.is_tls()
            || self.0.len() >= Self::MOST
            || self.length().is_some_and(|length| self.0.len() >= Self::HEADER + length)
    }

    fn is_tls(&self) -> bool {
        self.0.starts_with(&Self::TLS_ALERT)
    }

    fn length(&self) -> Option<usize> {
        let length = self.0.get(3..Self::HEADER)?;
        Some(u32::from_be_bytes(length.try_into().ok()?) as usize)
    }

    fn version(&self) -> Option<String> {
        let properties = self.0.get(Self::HEADER..)?.strip_prefix(&Self::START)?;
        let (_, properties): (_, FieldTable) = parse_field_table(properties).ok()?;
        match properties.inner().get("version")? {
            AMQPValue::LongString(version) => Some(version.to_string()),
            _ => None,
        }
    }
}

/// Makes [`Wire`]s; lapin is handed a connected one and asks for no more.
#[derive(Clone, Debug)]
pub(super) struct Wires(Tokio);

impl Reactor for Wires {
    type TcpStream = Wire;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: io::Read + io::Write + Send + 'static>(
        &self,
        _socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<Wire, _>(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(
        &self,
        period: Duration,
    ) -> impl futures_util::Stream<Item = Instant> + Send + 'static {
        self.0.interval(period)
    }

    fn tcp_connect_addr(
        &self,
        _address: SocketAddr,
    ) -> impl Future<Output = io::Result<Wire>> + Send + 'static {
        std::future::ready(Err(io::ErrorKind::Unsupported.into()))
    }
}
