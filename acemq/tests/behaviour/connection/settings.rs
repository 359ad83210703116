//! Settings of logging in and of TLS that cannot go together. No broker is asked.

use acemq::{Connect, Credentials, ErrorKind, Tls, connect};

/// Says why it is refused.
fn refused(connect: Connect) -> String {
    let error = connect.lazy().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
    error.to_string()
}

const PLAIN: &str = "amqp://ada:hush@broker";
const SAFE: &str = "amqps://ada:hush@broker";

#[tokio::test]
async fn tls_is_never_given_up_or_promised_in_vain() {
    for (connect, says) in [
        (connect(SAFE).tls(Tls::disabled()), "disabled"),
        (connect(PLAIN).tls(Tls::required()), "write amqps://"),
        (connect(PLAIN).tls(Tls::insecure_without_verification()), "write amqps://"),
        (connect(format!("{SAFE}?cacertfile=ca.pem")).tls(Tls::required()), "leave one"),
        (connect(SAFE).also_at(PLAIN), "by chance"),
        (connect(format!("{PLAIN},{SAFE}")), "by chance"),
        (connect(SAFE).tls(Tls::disabled().authority_file("ca.pem")), "disabled"),
        (
            connect(SAFE).tls(Tls::insecure_without_verification().authority_file("ca.pem")),
            "leave one",
        ),
        (connect(format!("{SAFE}?verify=verify_none&cacertfile=ca.pem")), "leave one"),
    ] {
        let text = refused(connect);
        assert!(text.contains(says), "{text}");
    }
    connect(PLAIN).tls(Tls::disabled()).lazy().unwrap();
}

#[tokio::test]
async fn a_login_by_certificate_takes_a_certificate_and_no_other_login() {
    let with = Tls::required().client_certificate_files("client.pem", "client.key");
    for (connect, says) in [
        (connect(PLAIN).external_login(), "no client certificate"),
        (connect(SAFE).external_login(), "no client certificate"),
        (connect(format!("{SAFE}?auth_mechanism=external")), "no client certificate"),
        (
            connect(SAFE)
                .tls(with.clone())
                .external_login()
                .credentials(Credentials::new("ada", "hush")),
            "leave one",
        ),
    ] {
        let text = refused(connect);
        assert!(text.contains(says), "{text}");
    }
    connect(SAFE).tls(with).external_login().lazy().unwrap();
    let files = "auth_mechanism=EXTERNAL&certfile=client.pem&keyfile=client.key";
    connect(format!("{SAFE}?{files}")).lazy().unwrap();
}

#[tokio::test]
async fn an_address_among_others_is_one_of_a_broker() {
    for (connect, says) in [
        (connect(PLAIN).also_at("memory://demo"), "memory://"),
        (connect("memory://demo").also_at(PLAIN), "memory://"),
        (connect(PLAIN).also_at("http://ada:hush@broker"), "must begin"),
        (connect(""), "must begin"),
    ] {
        let text = refused(connect);
        assert!(text.contains(says), "{text}");
    }
}

#[tokio::test]
async fn in_memory_there_is_no_login_and_no_network_to_keep_safe() {
    let mq = connect("memory://settings")
        .credentials(Credentials::new("ada", "hush"))
        .tls(Tls::required())
        .await
        .unwrap();
    assert_eq!(mq.publishing().address().as_deref(), Some("memory://settings"));
    mq.close().await.unwrap();
}
