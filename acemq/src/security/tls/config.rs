//! From settings to what rustls wants.

use std::{borrow::Cow, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    version::{TLS12, TLS13},
};

use super::{ClientCertificate, DevelopmentCertificate, Pem, Policy, Tls, development, verifier};
use crate::error::{BoxError, Error, ErrorKind, Result};

const FROM_1_2: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
const ONLY_1_3: &[&SupportedProtocolVersion] = &[&TLS13];

impl Tls {
    /// What one connection is made with. Reads the files, here and now.
    ///
    /// # Errors
    /// `Config` for files that cannot be read or are not what they should be; `Tls` where
    /// something of our own is made for development.
    pub(crate) fn client_config(&self) -> Result<ClientConfig> {
        // Named, and never the process's: that may be another, or none.
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = verifier::Verifier {
            real: self.real_verifier(&provider)?,
            provider: Arc::clone(&provider),
            allow_development: self.development,
        };
        let versions = if self.only_1_3 { ONLY_1_3 } else { FROM_1_2 };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| failed("choose its versions", error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let Some(client) = &self.client else { return Ok(builder.with_no_client_auth()) };
        let what = "the client certificate";
        let chain = certificates(&client.chain, what)?;
        self.refuse_marked(&chain, what)?;
        builder
            .with_client_auth_cert(chain, private_key(client)?)
            .map_err(|error| failed("use the client certificate with its key", error))
    }

    /// Who verifies; nobody where that is the policy.
    fn real_verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ServerCertVerifier>>> {
        if self.policy == Policy::InsecureWithoutVerification {
            return Ok(None);
        }
        if self.authorities.is_empty() {
            let platform = rustls_platform_verifier::Verifier::new(Arc::clone(provider))
                .map_err(|error| failed("read the authorities that this machine trusts", error))?;
            return Ok(Some(Arc::new(platform)));
        }
        let what = "the authority";
        let mut roots = RootCertStore::empty();
        for authority in &self.authorities {
            let certificates = certificates(authority, what)?;
            self.refuse_marked(&certificates, what)?;
            for certificate in certificates {
                roots.add(certificate).map_err(|error| failed("trust the authority", error))?;
            }
        }
        let provider = Arc::clone(provider);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| failed("trust the authority", error))?;
        Ok(Some(verifier))
    }

    fn refuse_marked(&self, chain: &[CertificateDer<'_>], what: &str) -> Result<()> {
        let marked = chain.iter().any(|one| development::is_marked(one) == Some(true));
        if self.development || !marked {
            return Ok(());
        }
        let text = format!("set TLS up: use {what}: {DevelopmentCertificate}");
        Err(Error::new(ErrorKind::Tls, text).with_quoted_source(DevelopmentCertificate))
    }
}

fn certificates(pem: &Pem, what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(pem, what)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(certificates) if certificates.is_empty() => Err(unreadable(
            pem,
            what,
            &"it holds no certificate; give the file that begins with BEGIN CERTIFICATE",
        )),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unreadable(pem, what, &malformed(&error))),
    }
}

fn private_key(client: &ClientCertificate) -> Result<PrivateKeyDer<'static>> {
    let (pem, what) = (&client.key, "the client's key");
    PrivateKeyDer::from_pem_slice(&read(pem, what)?).map_err(|error| match error {
        pem::Error::NoItemsFound => unreadable(
            pem,
            what,
            &"there is no private key in it, or an encrypted one, which has to be decrypted first",
        ),
        error => unreadable(pem, what, &malformed(&error)),
    })
}

/// Not the error itself, which shows what it read: that may be the key.
fn malformed(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "a section of it has no end; are its line breaks there?"
        }
        pem::Error::IllegalSectionStart { .. } => {
            "the first line of a section is malformed; are its line breaks there?"
        }
        pem::Error::Base64Decode(_) => "a section of it is not base64",
        pem::Error::SectionTooLarge => "a section of it is too large",
        _ => "it is malformed",
    }
}

fn read<'a>(pem: &'a Pem, what: &str) -> Result<Cow<'a, [u8]>> {
    match pem {
        Pem::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
        Pem::File(path) => {
            std::fs::read(path).map(Cow::Owned).map_err(|error| unreadable(pem, what, &error))
        }
    }
}

fn unreadable(pem: &Pem, what: &str, why: &dyn std::fmt::Display) -> Error {
    let from = pem.path().map(|path| format!(" from {}", path.display())).unwrap_or_default();
    Error::new(ErrorKind::Config, format!("set TLS up: read {what}{from} as PEM: {why}"))
}

fn failed(action: &str, error: impl Into<BoxError>) -> Error {
    let error = error.into();
    Error::new(ErrorKind::Config, format!("set TLS up: {action}: {error}"))
        .with_quoted_source(error)
}
