//! The relay forwards, and stops forwarding when told.

#![expect(clippy::unwrap_used, reason = "a failure of a helper is one of its test")]

use std::time::Duration;

use testkit::{Proxy, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

const LONG: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn bytes_pass_both_ways_and_so_does_the_end() {
    let proxy = in_front_of_an_echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let sent = vec![7; 3_000_000];
    let (mut from, mut to) = stream.split();
    let mut received = Vec::new();
    let writing = async {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    };
    let (_, read) = tokio::join!(writing, from.read_to_end(&mut received));
    read.unwrap();
    assert!(sent == received);
}

#[tokio::test]
async fn a_cut_closes_connections_and_refuses_new_ones_until_it_is_restored() {
    let mut proxy = in_front_of_an_echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echo(&mut stream).await;

    proxy.cut().await;
    let read = timeout(LONG, stream.read(&mut [0])).await.expect("the connection ends");
    assert!(matches!(read, Ok(0) | Err(_)));
    assert!(TcpStream::connect(proxy.address()).await.is_err());

    proxy.restore().await;
    echo(&mut TcpStream::connect(proxy.address()).await.unwrap()).await;
}

#[tokio::test]
async fn a_stall_holds_back_what_arrives_when_it_is_restored() {
    let mut proxy = in_front_of_an_echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echo(&mut stream).await;

    proxy.stall();
    stream.write_all(b"x").await.unwrap();
    assert!(timeout(MOMENT, stream.read_u8()).await.is_err());
    let mut fresh = TcpStream::connect(proxy.address()).await.unwrap();
    fresh.write_all(b"x").await.unwrap();
    assert!(timeout(MOMENT, fresh.read_u8()).await.is_err());

    proxy.restore().await;
    for stream in [&mut stream, &mut fresh] {
        assert_eq!(timeout(LONG, stream.read_u8()).await.unwrap().unwrap(), b'x');
    }
}

#[tokio::test]
async fn a_delay_is_paid_each_way_and_not_for_each_chunk() {
    let proxy = in_front_of_an_echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    proxy.delay(MOMENT);
    let start = Instant::now();
    echo(&mut stream).await;
    assert!(start.elapsed() >= 2 * MOMENT);

    // Paid for each of the hundred chunks this would take 40 seconds.
    let sent = vec![7; 100 * 16 * 1024];
    let (mut from, mut to) = stream.split();
    let mut received = vec![0; sent.len()];
    let both = async { tokio::join!(to.write_all(&sent), from.read_exact(&mut received)) };
    let (written, read) = timeout(LONG, both).await.expect("chunks wait together");
    written.unwrap();
    read.unwrap();
    assert!(sent == received);
}

#[tokio::test]
async fn a_server_that_is_down_closes_the_connection() {
    let proxy = Proxy::start("127.0.0.1:1").await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let read = timeout(LONG, stream.read(&mut [0])).await.expect("the connection ends");
    assert!(matches!(read, Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_dropped_proxy_closes_everything() {
    let proxy = in_front_of_an_echo().await;
    let address = proxy.address();
    let mut stream = TcpStream::connect(address).await.unwrap();
    echo(&mut stream).await;
    drop(proxy);
    timeout(LONG, stream.read(&mut [0])).await.expect("the connection ends").ok();
    eventually("the port is closed", LONG, async || TcpStream::connect(address).await.is_err())
        .await;
}

#[tokio::test]
async fn a_url_is_rewritten_to_the_proxy_and_keeps_the_rest() {
    let proxy = Proxy::in_front_of("amqp://guest:guest@127.0.0.1:5672/%2f").await;
    let address = proxy.address();
    assert_eq!(
        proxy.url_for("amqp://guest:guest@localhost:5672/%2f?heartbeat=5"),
        format!("amqp://guest:guest@{address}/%2f?heartbeat=5")
    );
}

#[tokio::test]
#[should_panic(expected = "in vain: the impossible")]
async fn waiting_in_vain_names_what_was_waited_for() {
    eventually("the impossible", MOMENT, async || false).await;
}

async fn echo(stream: &mut TcpStream) {
    stream.write_all(b"x").await.unwrap();
    assert_eq!(timeout(LONG, stream.read_u8()).await.unwrap().unwrap(), b'x');
}

async fn in_front_of_an_echo() -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await.ok();
                to.shutdown().await.ok();
            });
        }
    });
    Proxy::start(&address.to_string()).await
}
