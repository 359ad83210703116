//! Certificates that were made for development, and say so.

use std::fmt;

use rustls::pki_types::CertificateDer;
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _, x509::X509Name};

use crate::security::MARKER;

/// A certificate is marked as made for development, and that is not allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DevelopmentCertificate;

impl fmt::Display for DevelopmentCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the certificate is marked as made for development; use one by a real authority, or, where nothing is at stake, allow it by Tls::allow_development_certificates",
        )
    }
}

impl std::error::Error for DevelopmentCertificate {}

/// Whether a certificate or the authority that signed it has the marker; `None` for what is no
/// certificate.
pub(super) fn is_marked(certificate: &CertificateDer<'_>) -> Option<bool> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(has_marker(certificate.subject()) || has_marker(certificate.issuer()))
}

fn has_marker(name: &X509Name<'_>) -> bool {
    // The bytes, whatever type of string the name is written in.
    name.iter_organization().any(|organization| {
        organization.as_slice().windows(MARKER.len()).any(|part| part == MARKER.as_bytes())
    })
}
