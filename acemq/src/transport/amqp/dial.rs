//! Making a connection, in bounded time and without leftovers.

use std::{io, sync::Arc, sync::Mutex, time::Duration};

use async_rs::{Runtime, traits::Reactor as _};
use lapin::{
    AsyncTcpStream, Connection, ConnectionProperties,
    tcp::TLSConfig,
    uri::{AMQPScheme, AMQPUri},
};
use tokio::time::timeout;
use tokio_util::{compat::TokioAsyncReadCompatExt as _, task::AbortOnDropHandle};

use super::{
    address::Address,
    error,
    limits::limits,
    link::AmqpLink,
    switch::{self, BUFFER, Socket, Tap},
    wire::{CutOnDrop, Kit, Line, Wire, kit},
};
use crate::{
    error::{Error, ErrorKind, Result},
    transport::{DialOptions, Link},
};

/// Dials once. Dropping the future, or its running out of time, cuts the wire, which ends lapin's
/// thread and closes the socket.
pub(super) async fn dial(address: &Address, options: DialOptions) -> Result<Arc<dyn Link>> {
    let bound = options.step_timeout;
    match timeout(bound, connect(address, options)).await {
        Ok(result) => result.map(|link| Arc::new(link) as Arc<dyn Link>),
        Err(_) => Err(error::timed_out(&format!("connect to {address}"), bound)),
    }
}

async fn connect(address: &Address, options: DialOptions) -> Result<AmqpLink> {
    let peer = address.to_string();
    let uri = &address.uri;
    let socket = socket(address, &peer).await?;
    let line = Line::default();
    let guard = CutOnDrop(line.clone());
    let tap = Arc::new(Tap::default());
    let (ours, lapins) = tokio::io::duplex(BUFFER);
    let running = switch::run(socket, ours, Arc::clone(&tap), line.clone());
    let switch = AbortOnDropHandle::new(tokio::spawn(running));
    let wire = Mutex::new(Some(Wire::new(lapins.compat(), line.clone())));
    let log_in = Connection::connector(
        uri.clone(),
        kit(),
        async move |_: AMQPUri, _: Runtime<Kit>| {
            let wire = wire.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            // lapin asks once; a second time there would be none left, and none is wanted.
            wire.map(AsyncTcpStream::Plain)
                .ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted).into())
        },
        properties(&options.connection_name),
    );
    let connection = log_in.await.map_err(|error| error::of_dial(&peer, &uri.vhost, error))?;
    let frame_max = connection.configuration().frame_max();
    let limits = limits(line.version(), frame_max, options.body_max);
    let step = options.step_timeout;
    let mut link = AmqpLink::start(connection, guard, (tap, switch), limits, address.user(), step);
    if options.publishes {
        link.open_publisher().await?;
    }
    Ok(link)
}

/// The first of the host's addresses that accepts, with TLS where the address says so.
async fn socket(address: &Address, peer: &str) -> Result<Socket> {
    let authority = &address.uri.authority;
    let runtime = Runtime::tokio_current();
    let addresses = runtime.to_socket_addrs((authority.host.clone(), authority.port));
    let socket = runtime.tcp_connect(addresses).await.map_err(|error| {
        Error::new(
            ErrorKind::Connect,
            format!("connect to {peer}: {error}; is the broker running?"),
        )
        .with_quoted_source(error)
    })?;
    let socket = AsyncTcpStream::Plain(socket);
    match address.uri.scheme {
        AMQPScheme::AMQP => Ok(socket),
        AMQPScheme::AMQPS => {
            let agreed = socket.into_tls(&authority.host, TLSConfig::default()).await;
            agreed.map_err(|error| error::of_tls(peer, error))
        }
    }
}

fn properties(connection_name: &str) -> ConnectionProperties {
    ConnectionProperties::default()
        // One dial is one attempt; who tries again is `connection`.
        .configure_backoff(|backoff| {
            backoff.with_max_times(0).with_max_delay(Duration::from_millis(1))
        })
        .with_connection_name(connection_name.into())
        .with_client_property("product".into(), "acemq".into())
        .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into())
}
