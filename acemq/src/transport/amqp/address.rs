//! `amqp://` and `amqps://` addresses.

mod query;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use lapin::uri::{AMQPAuthority, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism};
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use self::query::Query;
use crate::{
    error::{Error, ErrorKind, Result},
    security::{Credentials, Tls},
};

/// Where a broker is and who we are there. Shown without the password.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) uri: AMQPUri,
    /// What the address itself says about TLS.
    pub(super) tls: Option<Tls>,
    /// How long reaching the host may take at most.
    pub(super) connection_timeout: Option<Duration>,
}

impl Address {
    /// Parses `amqp[s]://[user[:password]@]host[:port][/vhost][?name=value&…]`.
    ///
    /// User, password and virtual host may be percent-encoded. Without a user it is `guest` with
    /// `guest`, without a virtual host `/`, without a port 5672 or, for `amqps`, 5671. An IPv6
    /// address stands in brackets. For the parameters see [`query`].
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
        // What ends with it is the rest of a password, which is not to be taken for anything else.
        if url.path().contains('@') || url.query().is_some_and(|query| query.contains('@')) {
            return Err(invalid(
                "it has an @ behind its host; write / ? # @ in a password as %2f %3f %23 %40",
            ));
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
        if [&username, &password].iter().any(|text| text.contains('\0')) {
            return Err(invalid("its user or password holds a NUL, which no login can carry"));
        }
        let Query { amqp, tls, connection_timeout } = Query::of(&url, &scheme)?;
        Ok(Self {
            tls,
            connection_timeout,
            uri: AMQPUri {
                authority: AMQPAuthority {
                    userinfo: AMQPUserInfo { username, password },
                    host,
                    port: url.port().unwrap_or_else(|| scheme.default_port()),
                },
                scheme,
                vhost: vhost(url.path())?,
                query: amqp,
            },
        })
    }

    /// Whom the broker sees in us; `None` where that is for a certificate to say.
    pub(super) fn user(&self) -> Option<&str> {
        (!self.is_external()).then_some(&*self.uri.authority.userinfo.username)
    }

    pub(super) fn host(&self) -> &str {
        &self.uri.authority.host
    }

    pub(super) fn port(&self) -> u16 {
        self.uri.authority.port
    }

    pub(super) fn wants_tls(&self) -> bool {
        self.uri.scheme == AMQPScheme::AMQPS
    }

    /// Whether the client certificate is the login.
    pub(super) fn is_external(&self) -> bool {
        self.uri.query.auth_mechanism == Some(SASLMechanism::External)
    }

    /// Has the client certificate be the login.
    pub(super) fn log_in_externally(&mut self) {
        self.uri.query.auth_mechanism = Some(SASLMechanism::External);
    }

    /// The same place, with another login.
    pub(super) fn with_login(&self, credentials: &Credentials) -> Self {
        let mut address = self.clone();
        let userinfo = &mut address.uri.authority.userinfo;
        credentials.password().clone_into(&mut userinfo.password);
        if let Some(user) = credentials.user() {
            user.clone_into(&mut userinfo.username);
        }
        address
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
        write!(f, "{}://", self.uri.scheme)?;
        if !self.is_external() {
            write!(f, "{}@", userinfo.username)?;
        }
        write!(f, "{open}{host}{close}:{port}/{vhost}")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
