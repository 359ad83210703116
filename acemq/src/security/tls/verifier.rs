//! Looks at the broker's certificates.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::development::{DevelopmentCertificate, is_marked};

/// Refuses what is marked as made for development, and leaves the rest to another verifier, or to
/// nobody.
#[derive(Debug)]
pub(super) struct Verifier {
    /// `None` verifies nothing.
    pub(super) real: Option<Arc<dyn ServerCertVerifier>>,
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) allow_development: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.allow_development {
            for certificate in std::iter::once(end_entity).chain(intermediates) {
                match is_marked(certificate) {
                    Some(false) => {}
                    Some(true) => {
                        let error = OtherError(Arc::new(DevelopmentCertificate));
                        return Err(CertificateError::Other(error).into());
                    }
                    None => return Err(CertificateError::BadEncoding.into()),
                }
            }
        }
        match &self.real {
            Some(real) => {
                real.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match &self.real {
            Some(real) => real.verify_tls12_signature(message, certificate, signature),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match &self.real {
            Some(real) => real.verify_tls13_signature(message, certificate, signature),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        match &self.real {
            Some(real) => real.supported_verify_schemes(),
            None => self.provider.signature_verification_algorithms.supported_schemes(),
        }
    }
}
