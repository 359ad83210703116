//! The parameters of an address: RabbitMQ's.
//!
//! | parameter | what it says |
//! |---|---|
//! | `heartbeat` | seconds between heartbeats, 10 by default; 0 leaves it to the broker, and where that wants none either a stalled connection is not noticed |
//! | `connection_timeout` | milliseconds for reaching the host, within the connect timeout |
//! | `channel_max`, `frame_max` | the most channels, and bytes a frame |
//! | `auth_mechanism` | `plain` or `external` |
//! | `cacertfile` | as `Tls::authority_file` |
//! | `certfile`, `keyfile` | as `Tls::client_certificate_files` |
//! | `verify` | `verify_peer`, or `verify_none` for TLS that verifies nothing |
//! | `server_name_indication` | as `Tls::server_name` |

use std::{collections::HashMap, time::Duration};

use lapin::uri::{AMQPQueryString, AMQPScheme, SASLMechanism};
use url::Url;

use super::{decode, invalid};
use crate::{error::Result, security::Tls};

/// Seconds between heartbeats that we ask for. A peer that is silent for twice that is lost, so
/// a stalled connection is noticed within 20 s.
const HEARTBEAT: u16 = 10;

/// No peer of AMQP 0-9-1 may be given less; 0 is no limit.
const FRAME_MIN: u32 = 4096;

const KNOWN: [&str; 10] = [
    "heartbeat",
    "connection_timeout",
    "channel_max",
    "frame_max",
    "auth_mechanism",
    "cacertfile",
    "certfile",
    "keyfile",
    "verify",
    "server_name_indication",
];

/// What the parameters say.
pub(super) struct Query {
    pub(super) amqp: AMQPQueryString,
    pub(super) tls: Option<Tls>,
    pub(super) connection_timeout: Option<Duration>,
}

impl Query {
    pub(super) fn of(url: &Url, scheme: &AMQPScheme) -> Result<Self> {
        let mut given = given(url)?;
        let amqp = AMQPQueryString {
            heartbeat: Some(number(&mut given, "heartbeat")?.unwrap_or(HEARTBEAT)),
            channel_max: number(&mut given, "channel_max")?,
            frame_max: frame_max(&mut given)?,
            auth_mechanism: mechanism(&mut given)?,
            ..AMQPQueryString::default()
        };
        let connection_timeout = match number(&mut given, "connection_timeout")? {
            Some(0) => return Err(invalid("its connection_timeout is 0; it is in milliseconds")),
            milliseconds => milliseconds.map(Duration::from_millis),
        };
        // What is left is for TLS.
        if *scheme != AMQPScheme::AMQPS
            && let Some(name) = KNOWN.iter().find(|name| given.contains_key(**name))
        {
            return Err(invalid(&format!(
                "its parameter {name} is for TLS, which amqp:// does not have; write amqps://"
            )));
        }
        Ok(Self { amqp, tls: tls(&mut given)?, connection_timeout })
    }
}

/// The parameters by name.
fn given(url: &Url) -> Result<HashMap<String, String>> {
    let mut given = HashMap::new();
    // Not as a form, in which + is a space: files may be called like that.
    for pair in url.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode("parameter's name", name)?;
        // Not ignored: it may be one that was meant to make the connection safer.
        if !KNOWN.contains(&&*name) {
            let known = KNOWN.join(", ");
            // What is no word may be part of a password.
            let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let shown = if is_word { format!(" {name:?}") } else { String::new() };
            return Err(invalid(&format!("its parameter{shown} is not known; there are {known}")));
        }
        let value = decode(&format!("parameter {name}"), value)?;
        if value.is_empty() {
            return Err(invalid(&format!("its parameter {name} has no value")));
        }
        if given.insert(name.clone(), value).is_some() {
            return Err(invalid(&format!("its parameter {name} is there twice")));
        }
    }
    Ok(given)
}

fn number<N: std::str::FromStr>(
    given: &mut HashMap<String, String>,
    name: &str,
) -> Result<Option<N>> {
    let Some(value) = given.remove(name) else { return Ok(None) };
    match value.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(invalid(&format!("its parameter {name} is not a number in range"))),
    }
}

fn frame_max(given: &mut HashMap<String, String>) -> Result<Option<u32>> {
    match number(given, "frame_max")? {
        Some(bytes @ 1..FRAME_MIN) => Err(invalid(&format!(
            "its frame_max is {bytes}; it is at least {FRAME_MIN} bytes, or 0 for no limit"
        ))),
        frame_max => Ok(frame_max),
    }
}

fn mechanism(given: &mut HashMap<String, String>) -> Result<Option<SASLMechanism>> {
    match given.remove("auth_mechanism").map(|name| name.to_ascii_lowercase()).as_deref() {
        None => Ok(None),
        Some("plain") => Ok(Some(SASLMechanism::Plain)),
        Some("external") => Ok(Some(SASLMechanism::External)),
        Some(_) => Err(invalid("its auth_mechanism is neither plain nor external")),
    }
}

/// TLS as the parameters want it; `None` where they say nothing about it.
fn tls(given: &mut HashMap<String, String>) -> Result<Option<Tls>> {
    if given.is_empty() {
        return Ok(None);
    }
    let mut tls = match given.remove("verify").as_deref() {
        None | Some("verify_peer") => Tls::required(),
        Some("verify_none") => Tls::insecure_without_verification(),
        Some(_) => return Err(invalid("its verify is neither verify_peer nor verify_none")),
    };
    if let Some(path) = given.remove("cacertfile") {
        tls = tls.authority_file(path);
    }
    tls = match (given.remove("certfile"), given.remove("keyfile")) {
        (None, None) => tls,
        (Some(certificate), Some(key)) => tls.client_certificate_files(certificate, key),
        (Some(_), None) => return Err(invalid("it has a certfile and no keyfile")),
        (None, Some(_)) => return Err(invalid("it has a keyfile and no certfile")),
    };
    match given.remove("server_name_indication") {
        None => Ok(Some(tls)),
        // Erlang's way to leave the name of the host unverified.
        Some(name) if name == "disable" => Err(invalid(
            "its server_name_indication is disable, which would leave the broker's name unverified; name what its certificate holds",
        )),
        Some(name) => Ok(Some(tls.server_name(name))),
    }
}
