use proptest::prelude::*;

use super::*;

#[test]
fn an_address_with_nothing_but_a_host_means_the_defaults() {
    for url in ["amqp://broker", "amqp://broker/", "amqp://guest:guest@broker:5672/%2f"] {
        let AMQPUri { authority, vhost, query, .. } = Address::parse(url).unwrap().uri;
        assert_eq!(authority.host, "broker");
        assert_eq!(authority.port, 5672);
        assert_eq!(authority.userinfo.username, "guest");
        assert_eq!(authority.userinfo.password, "guest");
        assert_eq!(vhost, "/");
        assert_eq!(query.heartbeat, Some(10));
    }
    assert_eq!(Address::parse("amqps://broker").unwrap().uri.authority.port, 5671);
}

#[test]
fn every_part_may_be_percent_encoded() {
    let uri =
        Address::parse("amqp://a%40b:p%2Fw%3A@h.example:7/shop%2Feu?heartbeat=0").unwrap().uri;
    assert_eq!(uri.authority.userinfo.username, "a@b");
    assert_eq!(uri.authority.userinfo.password, "p/w:");
    assert_eq!(uri.vhost, "shop/eu");
    assert_eq!(uri.query.heartbeat, Some(0));
}

#[test]
fn an_ipv6_host_stands_in_brackets_and_is_shown_in_them() {
    let address = Address::parse("amqp://[::1]:5673").unwrap();
    assert_eq!(address.uri.authority.host, "::1");
    assert_eq!(address.to_string(), "amqp://guest@[::1]:5673/");
}

#[test]
fn the_password_is_never_shown() {
    let address = Address::parse("amqp://ada:hush@broker/shop").unwrap();
    for shown in [format!("{address}"), format!("{address:?}")] {
        assert!(!shown.contains("hush"), "{shown}");
        assert!(shown.contains("ada"), "{shown}");
    }
}

#[test]
fn a_wrong_address_is_a_config_error_that_keeps_the_password() {
    for url in [
        "ada:hush@broker",
        "http://ada:hush@broker",
        "amqp://ada:hush@",
        "amqp://ada:hush@broker:port",
        "amqp://ada:hush@broker:70000",
        "amqp://ada:hush@broker/a/b",
        "amqp://ada:hush%FF@broker",
        "amqp://ada:hush%zz@broker",
        "amqp://ada:hush@broker/%zz",
        "amqp://ada:hush@broker/shop%2",
        "amqp://ada:hush@broker?heartbeat=soon",
        "amqp://ada:hush@broker?verify=verify_peer",
        "amqp://ada:hush@broker?cacertfile=hush",
        "amqp://ada:hush@broker?password=hush",
        "amqp://ada:hush@broker?heartbeat=1&heartbeat=2",
        "amqp://ada:hush@broker?heartbeat",
        "amqp://ada:hush@broker?connection_timeout=0",
        "amqp://ada:hush@broker?channel_max=70000",
        "amqp://ada:hush@broker?frame_max=4095",
        "amqp://ada:hush@broker?auth_mechanism=hush",
        "amqps://ada:hush@broker?verify=hush",
        "amqps://ada:hush@broker?certfile=hush",
        "amqps://ada:hush@broker?keyfile=hush",
        "amqps://ada:hush@broker?server_name_indication=disable",
        "amqps://ada:hush@broker?fail_if_no_peer_cert=true",
        "amqp://ada:hush%00@broker",
        "amqp://ada:hush@broker/#hush",
        "amqp://ada:?hush@broker",
        "amqp://ada:/hush@broker",
        "amqp://ada:12/hush@broker",
        "amqp://ada:12?hush!=1",
        "hush",
        "",
    ] {
        let error = Address::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        assert!(!format!("{error} {error:?}").contains("hush"), "{url}: {error:?}");
    }
}

#[test]
fn the_parameters_are_rabbitmq_s() {
    let address = Address::parse(
        "amqp://broker?heartbeat=5&connection_timeout=1500&channel_max=7&frame_max=8192&auth_mechanism=PLAIN",
    )
    .unwrap();
    let AMQPUri { query, .. } = &address.uri;
    assert_eq!(query.heartbeat, Some(5));
    assert_eq!(query.channel_max, Some(7));
    assert_eq!(query.frame_max, Some(8192));
    assert_eq!(address.connection_timeout, Some(Duration::from_millis(1500)));
    assert!(address.tls.is_none());

    let address = Address::parse(
        "amqps://broker?cacertfile=/a+b%20c/ca.pem&certfile=c.pem&keyfile=k.pem&verify=verify_peer&server_name_indication=shop.example",
    )
    .unwrap();
    let tls = address.tls.unwrap();
    let shown = format!("{tls:?}");
    for part in ["/a+b c/ca.pem", "c.pem", "k.pem", "shop.example", "Required"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(tls.name_for("broker"), "shop.example");
    let tls = Address::parse("amqps://broker?verify=verify_none").unwrap().tls.unwrap();
    assert!(tls.verifies_nothing());
    assert!(Address::parse("amqps://broker?heartbeat=5").unwrap().tls.is_none());
}

#[test]
fn a_parameter_that_is_not_known_is_refused_by_name() {
    let error = Address::parse("amqps://broker?depth=2").unwrap_err();
    assert!(error.to_string().contains("\"depth\""), "{error}");
}

#[test]
fn another_login_is_what_is_shown_and_a_certificate_s_is_none() {
    let address = Address::parse("amqps://ada:hush@broker").unwrap();
    let other = address.with_login(&Credentials::new("bea", "secret"));
    assert_eq!(other.to_string(), "amqps://bea@broker:5671/");
    assert_eq!(other.uri.authority.userinfo.password, "secret");
    let same = address.with_login(&Credentials::password_only("secret"));
    assert_eq!(same.user(), Some("ada"));
    let external = Address::parse("amqps://ada:hush@broker?auth_mechanism=external").unwrap();
    assert_eq!(external.to_string(), "amqps://broker:5671/");
    assert_eq!(external.user(), None);
}

proptest! {
    #[test]
    fn any_user_and_password_can_be_written(user in "[^\0]{1,20}", password in "[^\0]{0,40}") {
        let encode = |text: &str| -> String {
            text.bytes().map(|byte| format!("%{byte:02X}")).collect()
        };
        let url = format!("amqp://{}:{}@broker/shop", encode(&user), encode(&password));
        let address = Address::parse(&url).unwrap();
        let userinfo = &address.uri.authority.userinfo;
        prop_assert_eq!(&userinfo.username, &user);
        prop_assert_eq!(&userinfo.password, &password);
    }

    #[test]
    fn no_address_makes_it_panic(text in "\\PC{0,80}", scheme in "amqps?://") {
        let _ = Address::parse(&text);
        let _ = Address::parse(&format!("{scheme}{text}"));
    }
}
