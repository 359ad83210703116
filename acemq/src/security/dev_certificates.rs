//! Makes certificates for development.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use aws_lc_rs::{
    encoding::{AsDer as _, EcPrivateKeyRfc5915Der},
    rand::{SecureRandom as _, SystemRandom},
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SerialNumber,
};
use time::{Duration, OffsetDateTime};

use super::MARKER;
use crate::error::{BoxError, Error, ErrorKind, Result};

/// The variable that names the environment a process runs in.
const ENVIRONMENT: &str = "ACEMQ_ENV";

const CONFIGURATION: &str = "\
listeners.ssl.default = 5671
ssl_options.cacertfile = /certs/ca.crt
ssl_options.certfile = /certs/server.crt
ssl_options.keyfile = /certs/server.key
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
listeners.tcp.default = 5672
";

/// Makes an authority for development, and certificates by it for a broker and for clients.
///
/// They carry a mark by which every library of the family refuses them, unless it is told to take
/// them ([`Tls::allow_development_certificates`](crate::Tls::allow_development_certificates)): the
/// authority's key lies beside them. Where the environment variable `ACEMQ_ENV` begins with
/// `prod`, nothing is made.
///
/// In the folder are then `ca.crt` and `ca.key`, `server.crt` and `server.key`, `client.crt` and
/// `client.key` (its name is `acemq-client`), all in PEM, and a `rabbitmq.conf` for a broker that
/// finds the folder as `/certs`. Keys are ECDSA P-256 and readable by their owner only. What was
/// there under these names is replaced.
///
/// ```
/// # fn main() -> acemq::Result<()> {
/// use acemq::DevelopmentCertificates;
///
/// # let parent = tempfile::tempdir().unwrap();
/// # let folder = parent.path().join("certs");
/// DevelopmentCertificates::new().broker("localhost").days(30).write_to(&folder)?;
/// assert!(folder.join("server.crt").exists());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct DevelopmentCertificates {
    brokers: Vec<String>,
    days: u16,
}

impl DevelopmentCertificates {
    /// For a broker on `localhost`, for 30 days.
    pub fn new() -> Self {
        Self { brokers: Vec::new(), days: 30 }
    }

    /// A name or an IP address of the broker. May be called again; without it, it is `localhost`.
    /// `localhost` takes 127.0.0.1 and `::1` with it.
    pub fn broker(mut self, name: impl Into<String>) -> Self {
        self.brokers.push(name.into());
        self
    }

    /// For how many days they hold, at least 1.
    pub fn days(mut self, days: u16) -> Self {
        self.days = days.max(1);
        self
    }

    /// Makes them, and writes them to a folder, which is made where there is none. Blocks for
    /// some milliseconds.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] under a production environment; [`ErrorKind::Config`] for a name
    /// that no certificate can hold and for a folder that cannot be written to.
    pub fn write_to(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        refuse_production(env::var_os(ENVIRONMENT).as_deref())?;
        let files = self.make().map_err(failed)?;
        write_all(folder, &files).map_err(|error| {
            let path = folder.display();
            let text = format!("write development certificates to {path}: {error}");
            Error::new(ErrorKind::Config, text).with_quoted_source(error)
        })
    }

    fn make(&self) -> Result<Vec<File>, BoxError> {
        let mut authority = self.params("AceMQ development CA", Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = Key::generate()?;
        let certificate = authority.self_signed(&key.pair)?.pem();
        let mut files = vec![File::open("ca.crt", certificate), File::secret("ca.key", key.pem)];
        let issuer = Issuer::new(authority, key.pair);

        let names = self.names();
        let mut server = self.params(&names[0], names.clone())?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let mut client = self.params("acemq-client", Vec::new())?;
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        for (mut params, certificate_file, key_file) in
            [(server, "server.crt", "server.key"), (client, "client.crt", "client.key")]
        {
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.use_authority_key_identifier_extension = true;
            let key = Key::generate()?;
            files.push(File::open(certificate_file, params.signed_by(&key.pair, &issuer)?.pem()));
            files.push(File::secret(key_file, key.pem));
        }
        files.push(File::open("rabbitmq.conf", CONFIGURATION.to_owned()));
        Ok(files)
    }

    /// All names of the broker, at least one.
    fn names(&self) -> Vec<String> {
        let mut names = self.brokers.clone();
        if names.is_empty() {
            names.push("localhost".to_owned());
        }
        if names.iter().any(|name| name == "localhost") {
            let local = ["127.0.0.1", "::1"].map(str::to_owned);
            names.extend(local.into_iter().filter(|ip| !self.brokers.contains(ip)));
        }
        names
    }

    fn params(&self, name: &str, names: Vec<String>) -> Result<CertificateParams, BoxError> {
        let mut params = CertificateParams::new(names)?;
        let now = OffsetDateTime::now_utc();
        // For machines whose clocks are a little behind.
        params.not_before = now - Duration::HOUR;
        params.not_after = now + Duration::days(self.days.into());
        let mut serial = [0; 16];
        SystemRandom::new().fill(&mut serial).map_err(|_| "no random numbers")?;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::OrganizationName, MARKER);
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(params)
    }
}

impl Default for DevelopmentCertificates {
    fn default() -> Self {
        Self::new()
    }
}

fn refuse_production(environment: Option<&OsStr>) -> Result<()> {
    let Some(name) = environment.map(OsStr::to_string_lossy) else { return Ok(()) };
    if !name.to_ascii_lowercase().starts_with("prod") {
        return Ok(());
    }
    let text = format!(
        "make development certificates: {ENVIRONMENT} is {name:?}, and in production they are of no use; have a real authority sign some"
    );
    Err(Error::new(ErrorKind::Refused, text))
}

fn failed(error: BoxError) -> Error {
    Error::new(ErrorKind::Config, format!("make development certificates: {error}"))
        .with_quoted_source(error)
}

/// A key, for rcgen and as it is written: rcgen itself writes PKCS #8 only.
struct Key {
    pair: KeyPair,
    pem: String,
}

impl Key {
    fn generate() -> Result<Self, BoxError> {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)?;
        let pkcs8 = key.to_pkcs8v1()?;
        let pair =
            KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8.as_ref().into(), &PKCS_ECDSA_P256_SHA256)?;
        let der: EcPrivateKeyRfc5915Der<'_> = key.private_key().as_der()?;
        let pem = Pem::new("EC PRIVATE KEY", der.as_ref());
        let unix = EncodeConfig::new().set_line_ending(LineEnding::LF);
        Ok(Self { pair, pem: pem::encode_config(&pem, unix) })
    }
}

struct File {
    name: &'static str,
    text: String,
    mode: u32,
}

impl File {
    fn open(name: &'static str, text: String) -> Self {
        Self { name, text, mode: 0o644 }
    }

    fn secret(name: &'static str, text: String) -> Self {
        Self { name, text, mode: 0o600 }
    }
}

fn write_all(folder: &Path, files: &[File]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for file in files {
        let partial: PathBuf = folder.join(format!(".{}.partial", file.name));
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // With its mode from the start: a key is never readable, not for a moment.
        write_new(&partial, file)?;
        fs::rename(&partial, folder.join(file.name))?;
    }
    Ok(())
}

fn write_new(path: &Path, file: &File) -> io::Result<()> {
    use io::Write as _;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, file.mode);
    let mut written = options.open(path)?;
    // What the process's mask took away.
    #[cfg(unix)]
    written.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(file.mode))?;
    written.write_all(file.text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_in_production() {
        for name in ["prod", "production", "PROD-eu"] {
            let error = refuse_production(Some(OsStr::new(name))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert!(error.to_string().contains("ACEMQ_ENV"), "{error}");
        }
        for name in [None, Some("development"), Some("nonprod"), Some("")] {
            refuse_production(name.map(OsStr::new)).unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn files_have_the_family_s_names_modes_and_forms() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let certificates = DevelopmentCertificates::new();
        certificates.write_to(folder.path()).unwrap();
        // Over what is there already.
        certificates.write_to(folder.path()).unwrap();
        let mut found: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
                (entry.file_name().into_string().unwrap(), mode)
            })
            .collect();
        found.sort();
        let expected = [
            ("ca.crt", 0o644),
            ("ca.key", 0o600),
            ("client.crt", 0o644),
            ("client.key", 0o600),
            ("rabbitmq.conf", 0o644),
            ("server.crt", 0o644),
            ("server.key", 0o600),
        ];
        assert_eq!(found, expected.map(|(name, mode)| (name.to_owned(), mode)));
        for name in ["ca.key", "client.key", "server.key"] {
            let key = fs::read_to_string(folder.path().join(name)).unwrap();
            assert!(key.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{name}");
        }
    }

    #[cfg(feature = "amqp")]
    #[test]
    fn certificates_hold_what_the_family_wants() {
        use x509_parser::{pem::Pem, prelude::GeneralName};
        let files = DevelopmentCertificates::new().days(7).make().unwrap();
        for (name, common_name, is_ca) in [
            ("ca.crt", "AceMQ development CA", true),
            ("server.crt", "localhost", false),
            ("client.crt", "acemq-client", false),
        ] {
            let file = files.iter().find(|file| file.name == name).unwrap();
            let pem = Pem::iter_from_buffer(file.text.as_bytes()).next().unwrap().unwrap();
            let certificate = pem.parse_x509().unwrap();
            for party in [certificate.subject(), certificate.issuer()] {
                let organization = party.iter_organization().next().unwrap();
                assert_eq!(organization.as_str().unwrap(), MARKER, "{name}");
            }
            let found = certificate.subject().iter_common_name().next().unwrap();
            assert_eq!(found.as_str().unwrap(), common_name);
            assert_eq!(certificate.is_ca(), is_ca);
            if let Some(constraints) = certificate.basic_constraints().unwrap() {
                assert_eq!(constraints.value.path_len_constraint, is_ca.then_some(0));
            }
            let validity = certificate.validity();
            let held = validity.not_after.timestamp() - validity.not_before.timestamp();
            assert_eq!(held, 7 * 24 * 3600 + 3600);
            assert!(certificate.raw_serial().len() >= 14, "{:?}", certificate.raw_serial());
            if name == "server.crt" {
                let names = certificate.subject_alternative_name().unwrap().unwrap();
                let local = GeneralName::DNSName("localhost");
                assert!(names.value.general_names.contains(&local));
                for ip in [&[127, 0, 0, 1][..], &std::net::Ipv6Addr::LOCALHOST.octets()] {
                    assert!(names.value.general_names.contains(&GeneralName::IPAddress(ip)));
                }
            }
        }
    }
}
