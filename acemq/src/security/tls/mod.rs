//! What a client demands of TLS.

mod config;
mod development;
mod verifier;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) use self::development::DevelopmentCertificate;
use rustls::pki_types::ServerName;

use crate::error::{Error, ErrorKind, Result};

/// How a connection to `amqps://` is kept safe: by default with TLS 1.2 or 1.3, and the broker's
/// certificate has to be for the address's host and from an authority that this machine trusts.
///
/// Given to [`Connect::tls`](crate::Connect::tls). Files are read each time a connection is made,
/// so that a certificate that was renewed is used from the next one on. An address may say the
/// same by RabbitMQ's query parameters (see [`connect`](crate::connect())), but not both.
///
/// No provider of cryptography has to be installed in the process, and one that is makes no
/// difference.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::Tls;
///
/// let tls = Tls::required()
///     .authority_file("/etc/orders/ca.pem")
///     .client_certificate_files("/etc/orders/client.pem", "/etc/orders/client.key");
/// let mq = acemq::connect("amqps://orders@rabbit.internal/shop").tls(tls).external_login().lazy()?;
/// mq.close().await
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Tls {
    policy: Policy,
    authorities: Vec<Pem>,
    client: Option<ClientCertificate>,
    server_name: Option<String>,
    only_1_3: bool,
    development: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Disabled,
    InsecureWithoutVerification,
    Required,
}

#[derive(Clone, Debug)]
struct ClientCertificate {
    chain: Pem,
    key: Pem,
}

/// Something in PEM, or where it is.
#[derive(Clone)]
enum Pem {
    Bytes(Arc<[u8]>),
    File(PathBuf),
}

impl Tls {
    /// Encrypts and verifies: the default.
    pub fn required() -> Self {
        Self {
            policy: Policy::Required,
            authorities: Vec::new(),
            client: None,
            server_name: None,
            only_1_3: false,
            development: false,
        }
    }

    /// Encrypts and verifies nothing: whoever sits between this process and the broker can read
    /// and change everything, the login first. Said in the log at each connection. To trust an
    /// authority of one's own, [`authority_file`](Self::authority_file) is the way.
    pub fn insecure_without_verification() -> Self {
        Self { policy: Policy::InsecureWithoutVerification, ..Self::required() }
    }

    /// No TLS. For configuration that says so in words: an `amqp://` address says it already, and
    /// with an `amqps://` address it is refused.
    pub fn disabled() -> Self {
        Self { policy: Policy::Disabled, ..Self::required() }
    }

    /// Trusts the authorities in a PEM file instead of the machine's. May be called again for
    /// another file.
    pub fn authority_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.authorities.push(Pem::File(path.into()));
        self
    }

    /// Trusts the authorities in this PEM instead of the machine's. May be called again.
    pub fn authority_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.authorities.push(Pem::bytes(pem));
        self
    }

    /// Shows this certificate, with its chain, to a broker that asks for one. Both files are PEM;
    /// the key must not be encrypted.
    pub fn client_certificate_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let (chain, key) = (Pem::File(certificate.into()), Pem::File(key.into()));
        self.client = Some(ClientCertificate { chain, key });
        self
    }

    /// Shows this certificate, with its chain, to a broker that asks for one. Both are PEM.
    pub fn client_certificate_pem(
        mut self,
        certificate: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> Self {
        let (chain, key) = (Pem::bytes(certificate), Pem::bytes(key));
        self.client = Some(ClientCertificate { chain, key });
        self
    }

    /// The name that the broker's certificate must hold and that the broker is told (SNI), instead
    /// of the address's host.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Takes TLS 1.3 only; by default 1.2 is taken as well.
    pub fn only_tls_1_3(mut self) -> Self {
        self.only_1_3 = true;
        self
    }

    /// Takes certificates that are marked as made for development
    /// (`ACEMQ DEVELOPMENT ONLY - DO NOT TRUST` as the organization of subject or issuer), which
    /// are refused otherwise, under every policy: the keys of such an authority lie about on disks
    /// of developers.
    pub fn allow_development_certificates(mut self) -> Self {
        self.development = true;
        self
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.policy == Policy::Disabled
    }

    pub(crate) fn verifies_nothing(&self) -> bool {
        self.policy == Policy::InsecureWithoutVerification
    }

    pub(crate) fn has_client_certificate(&self) -> bool {
        self.client.is_some()
    }

    /// The name to ask for and to verify, `host` being the address's.
    pub(crate) fn name_for<'a>(&'a self, host: &'a str) -> &'a str {
        self.server_name.as_deref().unwrap_or(host)
    }

    /// Refuses settings of which one makes the other pointless.
    ///
    /// # Errors
    /// `Config`.
    pub(crate) fn check(&self) -> Result<()> {
        let has_more = !self.authorities.is_empty()
            || self.client.is_some()
            || self.server_name.is_some()
            || self.only_1_3
            || self.development;
        let why = match self.policy {
            Policy::Disabled if has_more => "it is disabled, and other settings want it",
            Policy::InsecureWithoutVerification if !self.authorities.is_empty() => {
                "nothing is to be verified, and there are authorities to verify by; leave one of them out"
            }
            _ if self
                .server_name
                .as_deref()
                .is_some_and(|it| ServerName::try_from(it).is_err()) =>
            {
                "its server name is no name that a certificate can hold"
            }
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Config, format!("set TLS up: {why}")))
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self::required()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("policy", &self.policy)
            .field("authorities", &self.authorities)
            .field("client_certificate", &self.client)
            .field("server_name", &self.server_name)
            .field("minimum", if self.only_1_3 { &"1.3" } else { &"1.2" })
            .field("allow_development_certificates", &self.development)
            .finish()
    }
}

impl Pem {
    fn bytes(pem: impl AsRef<[u8]>) -> Self {
        Self::Bytes(pem.as_ref().into())
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::Bytes(_) => None,
            Self::File(path) => Some(path),
        }
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path() {
            Some(path) => path.fmt(f),
            None => f.write_str("in memory"),
        }
    }
}
