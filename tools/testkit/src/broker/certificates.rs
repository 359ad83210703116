//! The certificates of a broker with TLS.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

/// File names in the broker's folder.
pub(super) const AUTHORITY: &str = "ca.pem";
pub(super) const CERTIFICATE: &str = "certificate.pem";
pub(super) const KEY: &str = "key.pem";

/// Writes an authority, and a certificate it signed for `localhost` and `127.0.0.1`.
pub(super) fn write(folder: &Path) {
    let made = make().expect("make certificates");
    for (name, pem) in
        [(AUTHORITY, made.authority), (CERTIFICATE, made.certificate), (KEY, made.key)]
    {
        fs::write(folder.join(name), pem).expect("write a certificate");
    }
}

struct Made {
    authority: String,
    certificate: String,
    key: String,
}

fn make() -> Result<Made, Error> {
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    authority.distinguished_name.push(DnType::CommonName, "acemq test authority");
    let authority_pem = authority.self_signed(&authority_key)?.pem();

    let key = KeyPair::generate()?;
    let mut server = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    server.use_authority_key_identifier_extension = true;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.distinguished_name.push(DnType::CommonName, "acemq test broker");
    let issuer = Issuer::new(authority, authority_key);
    Ok(Made {
        authority: authority_pem,
        certificate: server.signed_by(&key, &issuer)?.pem(),
        key: key.serialize_pem(),
    })
}
