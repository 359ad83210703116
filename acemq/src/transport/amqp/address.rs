//! `amqp://` and `amqps://` addresses.

use std::fmt;

use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::error::{Error, ErrorKind, Result};

/// Seconds between heartbeats that we ask for. A peer that is silent for twice that is lost, so
/// a stalled connection is noticed within 20 s.
const HEARTBEAT: u16 = 10;

/// Where a broker is and who we are there. Shown without the password.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) uri: AMQPUri,
}

impl Address {
    /// Parses `amqp[s]://[user[:password]@]host[:port][/vhost][?heartbeat=…&frame_max=…&channel_max=…]`.
    ///
    /// User, password and virtual host may be percent-encoded. Without a user it is `guest` with
    /// `guest`, without a virtual host `/`, without a port 5672 or, for `amqps`, 5671. An IPv6
    /// address stands in brackets. `heartbeat` is in seconds, 10 by default; 0 leaves it to the
    /// broker, and where that wants none either a stalled connection is not noticed.
    ///
    /// # Errors
    /// `Config`. The text never holds the address as it was given, since that holds the password.
    pub(super) fn parse(address: &str) -> Result<Self> {
        let url = Url::parse(address).map_err(|error| invalid(&error.to_string()))?;
        let scheme = match url.scheme() {
            "amqp" => AMQPScheme::AMQP,
            "amqps" => AMQPScheme::AMQPS,
            other => {
                return Err(invalid(&format!("its scheme is {other:?}, not amqp or amqps")));
            }
        };
        let host = match url.host() {
            Some(Host::Domain(name)) => decode("host", name)?,
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
            None => return Err(invalid("it names no host")),
        };
        if host.is_empty() {
            return Err(invalid("it names no host"));
        }
        if url.fragment().is_some() {
            return Err(invalid("it has a fragment; write # as %23"));
        }
        let username = match url.username() {
            "" => "guest".to_owned(),
            name => decode("user", name)?,
        };
        let password = match url.password() {
            Some(password) => decode("password", password)?,
            None if url.username().is_empty() => "guest".to_owned(),
            None => String::new(),
        };
        Ok(Self {
            uri: AMQPUri {
                authority: AMQPAuthority {
                    userinfo: AMQPUserInfo { username, password },
                    host,
                    port: url.port().unwrap_or_else(|| scheme.default_port()),
                },
                scheme,
                vhost: vhost(url.path())?,
                query: query(&url)?,
            },
        })
    }

    pub(super) fn user(&self) -> &str {
        &self.uri.authority.userinfo.username
    }
}

/// The path's only segment, decoded; `/` where there is none.
fn vhost(path: &str) -> Result<String> {
    match path.strip_prefix('/').unwrap_or(path) {
        "" => Ok("/".to_owned()),
        segment if segment.contains('/') => {
            Err(invalid("its path has more than one segment; write / in a virtual host as %2f"))
        }
        segment => {
            let name = decode("virtual host", segment)?;
            if name.len() > 255 {
                return Err(invalid(&format!(
                    "its virtual host is {} bytes long; at most 255 are possible",
                    name.len()
                )));
            }
            Ok(name)
        }
    }
}

fn query(url: &Url) -> Result<AMQPQueryString> {
    let mut query = AMQPQueryString { heartbeat: Some(HEARTBEAT), ..AMQPQueryString::default() };
    for (name, value) in url.query_pairs() {
        match &*name {
            "heartbeat" => query.heartbeat = Some(number(&name, &value)?),
            "frame_max" => query.frame_max = Some(number(&name, &value)?),
            "channel_max" => query.channel_max = Some(number(&name, &value)?),
            // Not ignored: it may be one that was meant to make the connection safer.
            other => {
                return Err(invalid(&format!(
                    "its parameter {other:?} is not known; there are heartbeat, frame_max and channel_max"
                )));
            }
        }
    }
    Ok(query)
}

fn number<N: std::str::FromStr>(name: &str, value: &str) -> Result<N> {
    value.parse().map_err(|_| invalid(&format!("its parameter {name} is not a number in range")))
}

fn decode(what: &str, text: &str) -> Result<String> {
    let is_escape = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_escape) {
        return Err(invalid(&format!(
            "its {what} has a % that two hexadecimal digits do not follow; write % as %25"
        )));
    }
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err(invalid(&format!("its {what} is not UTF-8 once decoded"))),
    }
}

fn invalid(why: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!(
            "parse the broker's address: {why}; write amqp://user:password@host:5672/vhost, with special characters in the parts percent-encoded"
        ),
    )
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AMQPAuthority { userinfo, host, port } = &self.uri.authority;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        let vhost = if self.uri.vhost == "/" { "" } else { &self.uri.vhost };
        write!(f, "{}://{}@{open}{host}{close}:{port}/{vhost}", self.uri.scheme, userinfo.username)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_nothing_but_a_host_means_the_defaults() {
        for url in ["amqp://broker", "amqp://broker/", "amqp://guest:guest@broker:5672/%2f"] {
            let AMQPUri { authority, vhost, query, .. } = Address::parse(url).unwrap().uri;
            assert_eq!(authority.host, "broker");
            assert_eq!(authority.port, 5672);
            assert_eq!(authority.userinfo.username, "guest");
            assert_eq!(authority.userinfo.password, "guest");
            assert_eq!(vhost, "/");
            assert_eq!(query.heartbeat, Some(10));
        }
        assert_eq!(Address::parse("amqps://broker").unwrap().uri.authority.port, 5671);
    }

    #[test]
    fn every_part_may_be_percent_encoded() {
        let uri =
            Address::parse("amqp://a%40b:p%2Fw%3A@h.example:7/shop%2Feu?heartbeat=0").unwrap().uri;
        assert_eq!(uri.authority.userinfo.username, "a@b");
        assert_eq!(uri.authority.userinfo.password, "p/w:");
        assert_eq!(uri.vhost, "shop/eu");
        assert_eq!(uri.query.heartbeat, Some(0));
    }

    #[test]
    fn an_ipv6_host_stands_in_brackets_and_is_shown_in_them() {
        let address = Address::parse("amqp://[::1]:5673").unwrap();
        assert_eq!(address.uri.authority.host, "::1");
        assert_eq!(address.to_string(), "amqp://guest@[::1]:5673/");
    }

    #[test]
    fn the_password_is_never_shown() {
        let address = Address::parse("amqp://ada:hush@broker/shop").unwrap();
        for shown in [format!("{address}"), format!("{address:?}")] {
            assert!(!shown.contains("hush"), "{shown}");
            assert!(shown.contains("ada"), "{shown}");
        }
    }

    #[test]
    fn a_wrong_address_is_a_config_error_that_keeps_the_password() {
        for url in [
            "ada:hush@broker",
            "http://ada:hush@broker",
            "amqp://ada:hush@",
            "amqp://ada:hush@broker:port",
            "amqp://ada:hush@broker:70000",
            "amqp://ada:hush@broker/a/b",
            "amqp://ada:hush%FF@broker",
            "amqp://ada:hush%zz@broker",
            "amqp://ada:hush@broker/%zz",
            "amqp://ada:hush@broker/shop%2",
            "amqp://ada:hush@broker?heartbeat=soon",
            "amqp://ada:hush@broker?verify=verify_peer",
            "amqp://ada:hush@broker/#hush",
            "hush",
            "",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!format!("{error} {error:?}").contains("hush"), "{url}: {error:?}");
        }
    }
}
