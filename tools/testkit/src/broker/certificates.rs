//! Certificates for tests.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// File names in the broker's folder.
pub(super) const AUTHORITY: &str = "ca.pem";
pub(super) const CERTIFICATE: &str = "certificate.pem";
pub(super) const KEY: &str = "key.pem";

/// An authority of the test's own, which signs certificates.
#[derive(Debug)]
pub struct Authority {
    pem: String,
    /// What is the organization in all of its certificates.
    organization: Option<&'static str>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// What a broker is given for TLS, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Of whom it takes client certificates.
    pub authority: String,
    /// Its own certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Authority {
    /// An authority of this name.
    pub fn new(name: &str) -> Self {
        Self::make(name, None).expect("make an authority")
    }

    /// An authority with the mark of the family's certificates for development.
    pub fn made_for_development() -> Self {
        let mark = "ACEMQ DEVELOPMENT ONLY - DO NOT TRUST";
        Self::make("an authority for development", Some(mark)).expect("make an authority")
    }

    fn make(name: &str, organization: Option<&'static str>) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = named(name, organization, Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { pem, organization, issuer: Issuer::new(params, key) })
    }

    /// Its certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for a server of these names and IP addresses.
    pub fn server(&self, names: &[&str]) -> Identity {
        self.identity("acemq test broker", names, false)
    }

    /// A certificate for a server that was valid once.
    pub fn expired_server(&self, names: &[&str]) -> Identity {
        self.identity("acemq test broker", names, true)
    }

    /// A certificate for a client of this name.
    pub fn client(&self, name: &str) -> Identity {
        self.identity(name, &[], false)
    }

    /// What a broker with a certificate for `localhost` and 127.0.0.1 is given.
    pub fn files(&self) -> TlsFiles {
        self.files_of(self.server(&["localhost", "127.0.0.1"]))
    }

    /// What a broker with this certificate is given.
    pub fn files_of(&self, server: Identity) -> TlsFiles {
        let Identity { certificate, key } = server;
        TlsFiles { authority: self.pem.clone(), certificate, key }
    }

    fn identity(&self, name: &str, names: &[&str], expired: bool) -> Identity {
        let make = || {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            let mut params = named(name, self.organization, names)?;
            params.use_authority_key_identifier_extension = true;
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            if expired {
                params.not_after = date_time_ymd(2001, 1, 1);
            }
            let key = KeyPair::generate()?;
            let certificate = params.signed_by(&key, &self.issuer)?.pem();
            Ok::<_, Error>(Identity { certificate, key: key.serialize_pem() })
        };
        make().expect("make a certificate")
    }
}

fn named(
    name: &str,
    organization: Option<&str>,
    names: Vec<String>,
) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.remove(DnType::CommonName);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// Writes them to a broker's folder.
pub(super) fn write(folder: &Path, files: &TlsFiles) {
    for (name, pem) in
        [(AUTHORITY, &files.authority), (CERTIFICATE, &files.certificate), (KEY, &files.key)]
    {
        fs::write(folder.join(name), pem).expect("write a certificate");
    }
}
