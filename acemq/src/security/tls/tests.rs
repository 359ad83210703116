//! Settings without a broker.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use testkit::Authority;

use super::*;

/// The error's kind and text.
fn refused(tls: &Tls) -> (ErrorKind, String) {
    let error = tls.check().and_then(|()| tls.client_config().map(|_| ())).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    for tls in [
        Tls::disabled().authority_file("ca.pem"),
        Tls::disabled().only_tls_1_3(),
        Tls::disabled().client_certificate_pem("", ""),
        Tls::disabled().server_name("broker"),
        Tls::required().server_name(""),
        Tls::insecure_without_verification().authority_pem(""),
    ] {
        assert_eq!(refused(&tls).0, ErrorKind::Config, "{tls:?}");
    }
    Tls::disabled().check().unwrap();
    Tls::insecure_without_verification().server_name("broker").check().unwrap();
}

#[test]
fn files_and_pem_that_cannot_be_used_are_named() {
    let authority = Authority::new("an authority");
    let (one, other) = (authority.client("one"), authority.client("other"));
    let with_key = |key: &str| Tls::required().client_certificate_pem(&one.certificate, key);
    for (tls, says) in [
        (Tls::required().authority_file("/no/such/ca.pem"), "/no/such/ca.pem"),
        (Tls::required().authority_pem("nothing"), "it holds no certificate; give"),
        (Tls::required().client_certificate_files("/no/such.pem", "key"), "/no/such.pem"),
        (with_key("nothing"), "no private key"),
        (with_key(&other.key), "with its key"),
    ] {
        let (kind, text) = refused(&tls);
        assert_eq!(kind, ErrorKind::Config, "{text}");
        assert!(text.contains(says), "{text}");
    }
    with_key(&one.key).client_config().unwrap();
}

#[test]
fn a_key_that_has_lost_its_line_breaks_is_not_shown() {
    let one = Authority::new("an authority").client("one");
    for instead in [" ", "\\n", ""] {
        let key = one.key.replace('\n', instead);
        for tls in [
            Tls::required().client_certificate_pem(&one.certificate, &key),
            Tls::required().client_certificate_pem(&key, &one.key),
            Tls::required().authority_pem(&key),
        ] {
            let error = tls.client_config().unwrap_err();
            let shown = format!("{error} {error:?}");
            let lines: Vec<&str> = one.key.lines().filter(|it| !it.starts_with("--")).collect();
            assert!(lines.iter().all(|line| !shown.contains(line)), "{shown}");
            let bytes = format!("{:?}", lines[0].as_bytes());
            assert!(!shown.contains(bytes.trim_matches(['[', ']'])), "{shown}");
        }
    }
}

#[test]
fn no_key_and_no_content_is_shown() {
    let identity = Authority::new("an authority").client("one");
    let tls = Tls::required().client_certificate_pem(&identity.certificate, &identity.key);
    let shown = format!("{tls:?}");
    assert!(shown.contains("in memory") && !shown.contains("BEGIN"), "{shown}");
    let shown = format!("{:?}", Tls::required().authority_file("ca.pem"));
    assert!(shown.contains("ca.pem"), "{shown}");
}

#[test]
fn what_is_our_own_must_not_be_made_for_development_either() {
    let marked = Authority::made_for_development();
    let client = marked.client("one");
    for tls in [
        Tls::required().authority_pem(marked.pem()),
        Tls::insecure_without_verification()
            .client_certificate_pem(&client.certificate, &client.key),
    ] {
        let (kind, text) = refused(&tls);
        assert_eq!(kind, ErrorKind::Tls, "{text}");
        assert!(text.contains("allow_development_certificates"), "{text}");
        tls.allow_development_certificates().client_config().unwrap();
    }
}

const CHILD: &str = "ACEMQ_TEST_PROVIDER_CHILD";

#[test]
fn the_process_s_provider_of_cryptography_neither_matters_nor_is_set() {
    if std::env::var_os(CHILD).is_some() {
        // In a process of its own, since there is one for good.
        let authority = Authority::new("an authority");
        let tls = Tls::required().authority_pem(authority.pem());
        tls.client_config().unwrap();
        assert!(CryptoProvider::get_default().is_none());
        let useless = CryptoProvider { cipher_suites: Vec::new(), ..aws_lc_rs::default_provider() };
        useless.install_default().unwrap();
        assert!(!tls.client_config().unwrap().crypto_provider().cipher_suites.is_empty());
        Tls::required().client_config().unwrap();
        return;
    }
    let name =
        "security::tls::tests::the_process_s_provider_of_cryptography_neither_matters_nor_is_set";
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}
