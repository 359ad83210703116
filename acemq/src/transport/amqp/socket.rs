//! The way to a broker: a socket, plain or with TLS.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, lookup_host},
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{address::Address, error};
use crate::{
    error::{Error, ErrorKind, Result},
    security::Tls,
};

#[derive(Debug)]
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// Opens a socket to the address, and agrees on TLS where there is to be some.
    ///
    /// # Errors
    /// `Connect`, `Timeout`, `Tls`, `Config` (files of TLS).
    pub(super) async fn open(
        address: &Address,
        tls: Option<&Tls>,
        bound: Duration,
    ) -> Result<Self> {
        // Before the broker is bothered.
        let agreement = match tls {
            Some(tls) => Some(Agreement::prepare(tls, address).await?),
            None => None,
        };
        let bound = address.connection_timeout.map_or(bound, |own| own.min(bound));
        let socket = match timeout(bound, reach(address, Instant::now() + bound)).await {
            Ok(reached) => reached?,
            Err(_) => return Err(error::timed_out(&format!("connect to {address}"), bound)),
        };
        match agreement {
            None => Ok(Self::Plain(socket)),
            Some(agreement) => agreement.reach_with(socket, address).await,
        }
    }
}

/// All that TLS wants to know.
struct Agreement {
    connector: TlsConnector,
    name: String,
    server: ServerName<'static>,
}

impl Agreement {
    async fn prepare(tls: &Tls, address: &Address) -> Result<Self> {
        let name = tls.name_for(address.host()).to_owned();
        let server = ServerName::try_from(name.clone()).map_err(|cause| {
            let text = format!(
                "connect to {address}: {name:?} is no name that a certificate can hold; say which it holds by Tls::server_name"
            );
            Error::new(ErrorKind::Config, text).with_source(cause)
        })?;
        let reads = tls.clone();
        // Reading files may block.
        let config = tokio::task::spawn_blocking(move || reads.client_config()).await;
        let config = config.map_err(|cause| {
            let text = format!("connect to {address}: reading the settings of TLS was stopped");
            Error::new(ErrorKind::Connect, text).with_source(cause)
        })??;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name, server })
    }

    async fn reach_with(self, socket: TcpStream, address: &Address) -> Result<Socket> {
        let agreed = self.connector.connect(self.server, socket).await;
        let stream =
            agreed.map_err(|error| error::of_tls(&address.to_string(), &self.name, &error))?;
        Ok(Socket::Tls(Box::new(stream)))
    }
}

/// The first of the host's addresses that accepts. Each has its share of the time, so that one
/// that does not answer leaves some for the next.
async fn reach(address: &Address, deadline: Instant) -> Result<TcpStream> {
    let failed = |error: io::Error, remedy: &str| {
        Error::new(ErrorKind::Connect, format!("connect to {address}: {error}; {remedy}"))
            .with_quoted_source(error)
    };
    let found: Vec<SocketAddr> = lookup_host((address.host(), address.port()))
        .await
        .map_err(|error| failed(error, "does the host's name resolve on this machine?"))?
        .collect();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host's name has no address");
    for (index, one) in found.iter().enumerate() {
        let now = Instant::now();
        let left = u32::try_from(found.len() - index).unwrap_or(u32::MAX);
        let share = deadline.saturating_duration_since(now) / left;
        match timeout_at(now + share, TcpStream::connect(one)).await {
            Ok(Ok(socket)) => {
                // Frames are put together before they are written.
                socket.set_nodelay(true).map_err(|error| failed(error, "try again"))?;
                return Ok(socket);
            }
            Ok(Err(error)) => last = error,
            Err(_) if index + 1 == found.len() => {
                return Err(error::timed_out(&format!("connect to {address}"), share));
            }
            Err(elapsed) => last = elapsed.into(),
        }
    }
    Err(failed(last, "is the broker running?"))
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
