//! TLS with brokers of the test's own.

use acemq::{Connect, Error, ErrorKind, Queue, Tls};
use testkit::{Authority, BrokerOptions, BrokerVersion, OwnBroker, TlsFiles};

async fn broker(version: BrokerVersion, files: TlsFiles, config: &str) -> Option<OwnBroker> {
    OwnBroker::start_with(BrokerOptions {
        version,
        tls_files: Some(files),
        config: config.to_owned(),
        plugins: vec!["rabbitmq_auth_mechanism_ssl"],
        ..BrokerOptions::default()
    })
    .await
}

/// Connects, and sends a message.
async fn works(connect: Connect) {
    let mq = connect.await.unwrap();
    let queue = testkit::unique("orders");
    mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
    // Many records of TLS.
    mq.send_to_queue(&queue, &"o".repeat(1_000_000)).await.unwrap();
    mq.delete_queue(&queue).await.unwrap();
    mq.close().await.unwrap();
}

async fn refused(connect: Connect, says: &str) -> Error {
    let error = connect.await.unwrap_err();
    assert!(error.to_string().contains(says), "{says}: {error}");
    assert!(!format!("{error} {error:?}").contains("guest:guest"), "{error:?}");
    error
}

async fn refused_by_tls(connect: Connect, says: &str) {
    let error = refused(connect, says).await;
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
}

#[tokio::test]
async fn the_broker_has_to_show_a_certificate_of_a_trusted_authority_for_its_name() {
    let authority = Authority::new("the authority");
    let Some(broker) = broker(BrokerVersion::V3, authority.files(), "").await else { return };
    let url = broker.tls_url();
    let trusting = || Tls::required().authority_pem(authority.pem());

    works(acemq::connect(&url).tls(trusting())).await;
    works(acemq::connect(&url).tls(Tls::required().authority_file(broker.ca_file()))).await;
    works(acemq::connect(&url).tls(trusting().only_tls_1_3())).await;
    works(acemq::connect(url.replace("localhost", "127.0.0.1")).tls(trusting())).await;
    // Authorities add up.
    let other = Authority::new("another authority");
    works(acemq::connect(&url).tls(trusting().authority_pem(other.pem()))).await;
    let by_address = |more: &str| format!("{url}?cacertfile={}{more}", broker.ca_file().display());
    works(acemq::connect(by_address(""))).await;
    let numeric = by_address("&verify=verify_peer&server_name_indication=localhost");
    works(acemq::connect(numeric.replace("@localhost", "@127.0.0.1"))).await;

    refused_by_tls(acemq::connect(&url), "authority_file").await;
    let another = Tls::required().authority_pem(other.pem());
    refused_by_tls(acemq::connect(&url).tls(another), "authority_file").await;
    let wrong = trusting().server_name("broker.example");
    refused_by_tls(acemq::connect(&url).tls(wrong), "is not for \"broker.example\"").await;
    refused_by_tls(
        acemq::connect(by_address("&server_name_indication=broker.example")),
        "Tls::server_name",
    )
    .await;
    let no_name = trusting().server_name("no name");
    let error = refused(acemq::connect(&url).tls(no_name), "no name that").await;
    assert_eq!(error.kind(), ErrorKind::Config);
    let error = refused(acemq::connect(format!("{url}?cacertfile=/no/such.pem")), "/no/such").await;
    assert_eq!(error.kind(), ErrorKind::Config);

    // Each port spoken to as if it were the other.
    let plain_port = broker.url().replace("amqp://", "amqps://");
    let error = refused(acemq::connect(plain_port).tls(trusting()), "TLS port").await;
    assert!(matches!(error.kind(), ErrorKind::Tls | ErrorKind::Connect), "{error:?}");
    let tls_port = url.replace("amqps://", "amqp://");
    let error = refused(acemq::connect(tls_port), "write amqps://").await;
    assert!(matches!(error.kind(), ErrorKind::Tls | ErrorKind::Connect), "{error:?}");
}

#[tokio::test]
async fn what_has_expired_is_taken_only_where_nothing_is_verified_and_that_is_said() {
    let authority = Authority::new("the authority");
    let files = authority.files_of(authority.expired_server(&["localhost"]));
    let Some(broker) = broker(BrokerVersion::V4, files, "").await else { return };
    let url = broker.tls_url();
    let trusting = Tls::required().authority_pem(authority.pem());
    refused_by_tls(acemq::connect(&url).tls(trusting), "has expired; renew it").await;

    let (log, _guard) = testkit::logs::of_this_thread();
    works(acemq::connect(&url).tls(Tls::insecure_without_verification())).await;
    works(acemq::connect(format!("{url}?verify=verify_none"))).await;
    // Two connections of each of two clients.
    let warnings = log.lines_with(&["WARN", "the broker's certificate is not verified"]);
    assert_eq!(warnings.len(), 4, "{warnings:?}");
}

#[tokio::test]
async fn a_version_that_is_too_old_is_refused() {
    let authority = Authority::new("the authority");
    let config = "ssl_options.versions.1 = tlsv1.2";
    let Some(broker) = broker(BrokerVersion::V3, authority.files(), config).await else { return };
    let trusting = Tls::required().authority_pem(authority.pem());
    works(acemq::connect(broker.tls_url()).tls(trusting.clone())).await;
    let newer = trusting.only_tls_1_3();
    refused_by_tls(acemq::connect(broker.tls_url()).tls(newer), "only_tls_1_3").await;
}

async fn a_client_certificate_is_demanded(version: BrokerVersion) {
    let authority = Authority::new("the authority");
    let config = "\
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
ssl_cert_login_from = common_name
";
    let Some(broker) = broker(version, authority.files(), config).await else { return };
    let url = broker.tls_url();
    let trusting = || Tls::required().authority_pem(authority.pem());
    let ada = authority.client("ada");

    // Whether the broker says so, or closes the socket, is Erlang's luck.
    let refused_somehow = async |tls: Tls| {
        let error = refused(acemq::connect(&url).tls(tls), "client certificate").await;
        assert!(matches!(error.kind(), ErrorKind::Tls | ErrorKind::Connect), "{error:?}");
        eprintln!("{error:?}");
    };
    refused_somehow(trusting()).await;
    let stranger = Authority::new("another authority").client("ada");
    let strange = trusting().client_certificate_pem(&stranger.certificate, &stranger.key);
    refused_somehow(strange).await;
    let known = trusting().client_certificate_pem(&ada.certificate, &ada.key);
    works(acemq::connect(&url).tls(known.clone())).await;

    // The certificate is the login.
    let external = || acemq::connect(&url).tls(known.clone()).external_login();
    let error = refused(external(), "the certificate's name a user?").await;
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error:?}");
    broker.ctl(&["add_user", "ada", "never used"]).await;
    broker.ctl(&["set_permissions", "ada", ".*", ".*", ".*"]).await;
    works(external()).await;
    let mq = external().await.unwrap();
    let address = mq.publishing().address().unwrap();
    assert!(address.starts_with("amqps://localhost:"), "{address}");
    let users = broker.ctl(&["list_connections", "user", "auth_mechanism"]).await;
    assert!(users.contains("ada") && users.contains("EXTERNAL"), "{users}");
    mq.close().await.unwrap();

    // The same, all in the address.
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (certificate, key) = (file("client+1.pem", &ada.certificate), file("client.key", &ada.key));
    let files =
        format!("cacertfile={}&certfile={certificate}&keyfile={key}", broker.ca_file().display());
    works(acemq::connect(format!("{url}?{files}&auth_mechanism=external"))).await;

    // A certificate that was renewed in its file is used by the next connection.
    std::fs::write(&key, "broken").unwrap();
    let error = refused(acemq::connect(format!("{url}?{files}")), "client.key").await;
    assert_eq!(error.kind(), ErrorKind::Config);
    let renewed = authority.client("ada");
    std::fs::write(&certificate, &renewed.certificate).unwrap();
    std::fs::write(&key, &renewed.key).unwrap();
    works(acemq::connect(format!("{url}?{files}&auth_mechanism=external"))).await;
}

#[tokio::test]
async fn rabbitmq_3_demands_a_client_certificate_and_takes_it_for_a_login() {
    a_client_certificate_is_demanded(BrokerVersion::V3).await;
}

#[tokio::test]
async fn rabbitmq_4_demands_a_client_certificate_and_takes_it_for_a_login() {
    a_client_certificate_is_demanded(BrokerVersion::V4).await;
}

#[cfg(feature = "dev-certificates")]
#[tokio::test]
async fn certificates_made_for_development_are_refused_under_every_policy_unless_allowed() {
    let folder = tempfile::tempdir().unwrap();
    acemq::DevelopmentCertificates::new().write_to(folder.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let files = TlsFiles {
        authority: read("ca.crt"),
        certificate: read("server.crt"),
        key: read("server.key"),
    };
    // As in the generated rabbitmq.conf.
    let config = "ssl_options.verify = verify_peer";
    let Some(broker) = broker(BrokerVersion::V3, files, config).await else { return };
    let url = broker.tls_url();
    let path = |name: &str| folder.path().join(name);
    let trusting = || Tls::required().authority_file(path("ca.crt"));
    let with_client =
        |tls: Tls| tls.client_certificate_files(path("client.crt"), path("client.key"));

    let says = "allow_development_certificates";
    // The peer's, the configured authority's, the client's.
    refused_by_tls(acemq::connect(&url), says).await;
    refused_by_tls(acemq::connect(&url).tls(Tls::insecure_without_verification()), says).await;
    refused_by_tls(acemq::connect(format!("{url}?verify=verify_none")), says).await;
    refused_by_tls(acemq::connect(&url).tls(trusting()), says).await;
    let insecure = Tls::insecure_without_verification();
    refused_by_tls(acemq::connect(&url).tls(with_client(insecure)), says).await;

    let allowed = |tls: Tls| acemq::connect(&url).tls(tls.allow_development_certificates());
    works(allowed(trusting())).await;
    works(allowed(with_client(trusting()))).await;
    works(allowed(Tls::insecure_without_verification())).await;
    // Allowed is not trusted.
    refused_by_tls(allowed(Tls::required()), "authority_file").await;
}
