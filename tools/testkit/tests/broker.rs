//! A broker of the test's own does what its tests do to it.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a failure of a helper is one of its test"
)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use testkit::{BrokerOptions, BrokerVersion, OwnBroker};
use url::Url;

const HEADER: &[u8] = b"AMQP\0\0\x09\x01";

#[tokio::test]
async fn a_broker_keeps_its_data_through_stop_kill_and_restart() {
    let Some(mut broker) = OwnBroker::start().await else {
        return;
    };
    assert!(version(&broker.url()).is_some());

    broker.ctl(&["add_vhost", "kept"]).await;
    broker.stop().await;
    assert!(TcpStream::connect(address(&broker.url())).is_err());
    broker.restart().await;
    assert!(broker.ctl(&["list_vhosts"]).await.contains("kept"));

    broker.kill();
    assert!(TcpStream::connect(address(&broker.url())).is_err());
    broker.restart().await;
    assert!(broker.ctl(&["list_vhosts"]).await.contains("kept"));
    broker.restart().await;
    assert!(version(&broker.url()).is_some());
}

#[tokio::test]
async fn a_paused_broker_answers_once_it_is_resumed() {
    let config = "heartbeat = 7".to_owned();
    let Some(broker) =
        OwnBroker::start_with(BrokerOptions { config, ..BrokerOptions::default() }).await
    else {
        return;
    };
    let heartbeat = broker.ctl(&["eval", "application:get_env(rabbit, heartbeat)."]).await;
    assert_eq!(heartbeat.trim(), "{ok,7}");

    broker.pause();
    let mut stream = TcpStream::connect(address(&broker.url())).expect("the kernel accepts");
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    stream.write_all(HEADER).unwrap();
    assert!(stream.read(&mut [0]).is_err());

    broker.resume();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 1);
}

#[tokio::test]
async fn a_broker_is_gone_when_it_is_dropped() {
    let Some(broker) = OwnBroker::start().await else {
        return;
    };
    let (url, ca) = (broker.url(), broker.ca_file());
    let home = ca.parent().expect("a file in a folder").to_owned();
    assert!(home.is_dir());
    drop(broker);
    assert!(!home.exists());
    assert!(TcpStream::connect(address(&url)).is_err());
}

#[tokio::test]
async fn a_broker_of_the_next_version_starts_beside_it_with_tls() {
    let options =
        BrokerOptions { version: BrokerVersion::V4, tls: true, ..BrokerOptions::default() };
    let Some(mut broker) = OwnBroker::start_with(options).await else {
        return;
    };
    assert_eq!(version(&broker.url()), Some('4'));
    tls_is_trusted(&broker);
    broker.ctl(&["add_vhost", "kept"]).await;
    broker.restart().await;
    assert!(broker.ctl(&["list_vhosts"]).await.contains("kept"));
}

#[tokio::test]
async fn a_broker_with_tls_shows_a_certificate_of_its_authority() {
    let Some(broker) =
        OwnBroker::start_with(BrokerOptions { tls: true, ..BrokerOptions::default() }).await
    else {
        return;
    };
    tls_is_trusted(&broker);
}

fn tls_is_trusted(broker: &OwnBroker) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(broker.ca_file()).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(tls, TcpStream::connect(address(&broker.tls_url())).unwrap());
    stream.write_all(HEADER).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 1);
}

/// The first digit of the version in a broker's greeting.
fn version(url: &str) -> Option<char> {
    let mut stream = TcpStream::connect(address(url)).unwrap();
    stream.write_all(HEADER).unwrap();
    let mut greeting = vec![0; 1024];
    let length = stream.read(&mut greeting).unwrap();
    let text = String::from_utf8_lossy(&greeting[..length]).into_owned();
    // A field of the table: its name, the type S and four bytes of length.
    let (_, value) = text.split_once("versionS")?;
    value.chars().nth(4)
}

fn address(url: &str) -> SocketAddr {
    let port = Url::parse(url).unwrap().port().expect("a port");
    ([127, 0, 0, 1], port).into()
}
