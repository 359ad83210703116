//! Who this client is to a broker, and how it knows the broker.
//!
//! [`Credentials`] and where they come from ([`CredentialsProvider`]), the settings of TLS
//! ([`Tls`]) with what is done by them, and certificates for development. Used by the transport,
//! and using nothing but errors.

#[cfg(feature = "amqp")]
mod credentials;
#[cfg(feature = "dev-certificates")]
mod dev_certificates;
#[cfg(feature = "amqp")]
mod tls;

#[cfg(feature = "dev-certificates")]
pub use self::dev_certificates::DevelopmentCertificates;
#[cfg(feature = "amqp")]
pub(crate) use self::tls::DevelopmentCertificate;
#[cfg(feature = "amqp")]
pub use self::{
    credentials::{Credentials, CredentialsProvider},
    tls::Tls,
};

/// The organization of subject or issuer by which the whole family marks certificates that were
/// made for development.
const MARKER: &str = "ACEMQ DEVELOPMENT ONLY - DO NOT TRUST";

/// What a client was told about logging in and about TLS, beside its addresses.
#[cfg(feature = "amqp")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// Instead of what an address holds.
    pub(crate) credentials: Option<CredentialsProvider>,
    /// Whether the client certificate is the login (SASL EXTERNAL).
    pub(crate) external: bool,
    pub(crate) tls: Option<Tls>,
}
