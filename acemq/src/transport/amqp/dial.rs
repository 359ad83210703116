//! Making a connection, in bounded time and without leftovers.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_rs::Runtime;
use lapin::{AsyncTcpStream, Connection, ConnectionProperties, uri::AMQPUri};
use tokio::time::timeout;
use tokio_util::{compat::TokioAsyncReadCompatExt as _, task::AbortOnDropHandle};

use super::{
    address::Address,
    error,
    limits::limits,
    link::AmqpLink,
    socket::Socket,
    switch::{self, BUFFER, Tap},
    wire::{CutOnDrop, Kit, Line, Wire, kit},
};
use crate::{
    error::{Error, ErrorKind, Result},
    security::{Access, CredentialsProvider, Tls},
    transport::{DialOptions, Link},
};

/// The addresses of a broker or of a cluster's nodes, and how to get in.
#[derive(Debug)]
pub(super) struct Target {
    nodes: Vec<Node>,
    credentials: Option<CredentialsProvider>,
    /// The node that is tried first: the one that let us in last.
    first: AtomicUsize,
}

#[derive(Debug)]
struct Node {
    address: Address,
    /// `None` for a plain connection.
    tls: Option<Tls>,
}

impl Target {
    /// # Errors
    /// `Config` for settings that contradict each other.
    pub(super) fn new(addresses: Vec<Address>, access: Access) -> Result<Self> {
        let Access { credentials, external, tls } = access;
        if addresses.windows(2).any(|pair| pair[0].wants_tls() != pair[1].wants_tls()) {
            return Err(contradiction(
                "some of the addresses are amqps:// and some amqp://: a connection would be encrypted or not by chance",
            ));
        }
        let mut nodes = Vec::new();
        for mut address in addresses {
            if external {
                address.log_in_externally();
            }
            let tls = tls_of(&address, tls.as_ref())?;
            if address.is_external() && !tls.as_ref().is_some_and(Tls::has_client_certificate) {
                return Err(contradiction(
                    "the login is to be by certificate (EXTERNAL), and there is no client certificate; give one by Tls::client_certificate_files, on an amqps:// address",
                ));
            }
            if address.is_external() && credentials.is_some() {
                return Err(contradiction(
                    "the login is to be by certificate (EXTERNAL), and there are credentials as well; leave one of them out",
                ));
            }
            nodes.push(Node { address, tls });
        }
        if nodes.is_empty() {
            return Err(contradiction("there is no address"));
        }
        Ok(Self { nodes, credentials, first: AtomicUsize::new(0) })
    }
}

/// How TLS is to be with this address.
fn tls_of(address: &Address, set: Option<&Tls>) -> Result<Option<Tls>> {
    let why = match (address.wants_tls(), set, &address.tls) {
        (false, None, _) => return Ok(None),
        (false, Some(tls), _) if tls.is_disabled() => {
            tls.check()?;
            return Ok(None);
        }
        (false, Some(_), _) => {
            "TLS is set up, and the address is amqp://, which has none; write amqps://"
        }
        (true, Some(tls), _) if tls.is_disabled() => {
            "TLS is disabled, and the address is amqps://; write amqp:// for a plain connection"
        }
        (true, Some(_), Some(_)) => {
            "TLS is set up both by the address's parameters and by Connect::tls; leave one of them out"
        }
        (true, set, own) => {
            let tls = own.as_ref().or(set).cloned().unwrap_or_default();
            tls.check()?;
            return Ok(Some(tls));
        }
    };
    Err(contradiction(why))
}

fn contradiction(why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("connect: {why}"))
}

/// Tries each address once, beginning with the one that worked last. Dropping the future, or an
/// attempt's running out of time, cuts the wire, which ends lapin's thread and closes the socket.
pub(super) async fn dial(target: &Target, options: DialOptions) -> Result<Arc<dyn Link>> {
    let bound = options.step_timeout;
    let login = match &target.credentials {
        None => None,
        Some(provider) => Some(
            timeout(bound, provider.ask())
                .await
                .map_err(|_| error::timed_out("ask for the login", bound))??,
        ),
    };
    let count = target.nodes.len();
    let first = target.first.load(Ordering::Relaxed);
    let mut failures = Vec::new();
    for index in (0..count).map(|turn| (first + turn) % count) {
        let Node { address, tls } = &target.nodes[index];
        let address = match &login {
            Some(login) => address.with_login(login),
            None => address.clone(),
        };
        let attempt = connect(&address, tls.as_ref(), options.clone());
        let failure = match timeout(bound, attempt).await {
            Ok(Ok(link)) => {
                target.first.store(index, Ordering::Relaxed);
                return Ok(Arc::new(link));
            }
            Ok(Err(error)) => error,
            Err(_) => error::timed_out(&format!("connect to {address}"), bound),
        };
        if failures.len() + 1 < count {
            tracing::warn!(
                connection = %options.connection_name, %address, error = %failure,
                "one of several addresses failed; trying the next"
            );
        }
        failures.push(failure);
    }
    Err(none_of(failures))
}

/// The error of an attempt in which every address failed.
fn none_of(mut failures: Vec<Error>) -> Error {
    if failures.len() == 1 {
        return failures.remove(0);
    }
    let texts: Vec<_> = failures.iter().map(Error::to_string).collect();
    let text = format!("none of {} addresses let us in: {}", failures.len(), texts.join(" | "));
    // What waiting does not mend says more than a node that is down.
    let telling = failures.iter().position(|error| !error.is_transient()).unwrap_or(0);
    let telling = failures.swap_remove(telling);
    Error::new(telling.kind(), text).with_quoted_source(telling)
}

async fn connect(address: &Address, tls: Option<&Tls>, options: DialOptions) -> Result<AmqpLink> {
    let peer = address.to_string();
    if tls.is_some_and(Tls::verifies_nothing) {
        tracing::warn!(
            connection = %options.connection_name, %address,
            "the broker's certificate is not verified: whoever is on the way can read and change everything"
        );
    }
    let uri = &address.uri;
    let socket = Socket::open(address, tls, options.step_timeout).await?;
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
    let connection = log_in.await.map_err(|error| refused(address, tls, &line, error))?;
    let frame_max = connection.configuration().frame_max();
    let limits = limits(line.version(), frame_max, options.body_max);
    let step = options.step_timeout;
    let mut link =
        AmqpLink::start(connection, guard, (tap, switch), limits, (peer, address.user()), step);
    if options.publishes {
        link.open_publisher().await?;
    }
    Ok(link)
}

/// Why the broker did not let us in, or who it is if no broker.
fn refused(address: &Address, tls: Option<&Tls>, line: &Line, error: lapin::Error) -> Error {
    let peer = address.to_string();
    if line.speaks_tls() {
        return error::not_plain(&peer, error);
    }
    // From TLS 1.3 on a broker refuses a certificate after we have begun to talk.
    match (tls, line.failure()) {
        (Some(tls), Some(failure)) if error::is_of_tls(failure) => {
            error::of_tls(&peer, tls.name_for(address.host()), failure)
        }
        _ => error::of_dial(address, error),
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
