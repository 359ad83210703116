use std::time::Instant;

use testkit::{BrokerOptions, OwnBroker, Proxy};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::*;
use crate::{
    error::{Error, ErrorKind},
    transport::{ConsumeEnd, LinkState},
};

async fn refused(url: &str) -> Error {
    AmqpTransport::new(url).unwrap().dial(options()).await.unwrap_err()
}

/// Reads until the other side has closed.
async fn closed(mut socket: TcpStream) {
    let mut bytes = Vec::new();
    // A reset is an end as well.
    let end = timeout(BOUND, socket.read_to_end(&mut bytes)).await;
    assert!(end.is_ok(), "the socket is still open");
}

#[tokio::test]
async fn a_peer_that_accepts_and_says_nothing_costs_the_bound_and_leaves_no_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("amqp://guest:hush@{}", listener.local_addr().unwrap());
    let transport = AmqpTransport::new(&url).unwrap();
    let bound = Duration::from_millis(300);
    let start = Instant::now();
    let dial = transport.dial(DialOptions { step_timeout: bound, ..options() });
    let (error, accepted) = tokio::join!(dial, listener.accept());
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(!format!("{error:?}").contains("hush"));
    closed(accepted.unwrap().0).await;
}

#[tokio::test]
async fn a_dial_that_is_dropped_leaves_no_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport =
        AmqpTransport::new(&format!("amqp://{}", listener.local_addr().unwrap())).unwrap();
    let (accepted, _) = tokio::select! {
        accepted = async {
            let accepted = listener.accept().await.unwrap();
            // The header shows that lapin's thread is at work.
            let mut header = [0; 8];
            let mut socket = accepted.0;
            socket.read_exact(&mut header).await.unwrap();
            (socket, header)
        } => accepted,
        result = transport.dial(options()) => panic!("{result:?}"),
    };
    closed(accepted).await;
}

#[tokio::test]
async fn a_peer_that_closes_at_once_or_speaks_something_else_is_a_connect_error() {
    for greeting in ["", "HTTP/1.1 400 Bad Request\r\n\r\n", "AMQP\x00\x01\x00\x00"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("amqp://{}", listener.local_addr().unwrap());
        let peer = async {
            use tokio::io::AsyncWriteExt as _;
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.write_all(greeting.as_bytes()).await.unwrap();
        };
        let start = Instant::now();
        let (error, ()) = tokio::join!(refused(&url), peer);
        assert_eq!(error.kind(), ErrorKind::Connect, "{greeting:?}: {error:?}");
        assert!(start.elapsed() < Duration::from_secs(5), "{greeting:?}");
    }
}

#[tokio::test]
async fn nobody_there_is_a_connect_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = listener.local_addr().unwrap();
    drop(listener);
    for url in [format!("amqp://{free}"), "amqp://no-such-host.invalid".to_owned()] {
        let error = refused(&url).await;
        assert_eq!(error.kind(), ErrorKind::Connect, "{error:?}");
        assert!(error.to_string().contains(url.strip_prefix("amqp://").unwrap()), "{error}");
    }
}

#[tokio::test]
async fn a_refused_login_says_whether_it_is_the_password_or_the_virtual_host() {
    for version in [testkit::BrokerVersion::V3, testkit::BrokerVersion::V4] {
        let options = BrokerOptions { version, ..BrokerOptions::default() };
        let Some(broker) = OwnBroker::start_with(options).await else { continue };
        broker.ctl(&["add_vhost", "shop"]).await;
        let at = broker.url();
        let at = at.split_once('@').unwrap().1;
        let error = refused(&format!("amqp://guest:hush@{at}")).await;
        assert_eq!(error.kind(), ErrorKind::Authentication, "{error:?}");
        assert!(!format!("{error} {error:?}").contains("hush"));
        let error = refused(&format!("amqp://guest:guest@{at}/no%2Fshop")).await;
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
        assert!(error.to_string().contains("no/shop"), "{error}");
        broker.ctl(&["add_user", "eve", "secret"]).await;
        let error = refused(&format!("amqp://eve:secret@{at}/shop")).await;
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    }
}

const CHILD: &str = "ACEMQ_TEST_TLS_CHILD_URL";

#[tokio::test]
async fn a_certificate_has_to_be_for_this_host_and_from_a_trusted_authority() {
    if let Ok(url) = std::env::var(CHILD) {
        // In the child, which trusts the broker's authority.
        let link = dial(&url).await;
        assert!(link.exchange_exists("amq.topic").await.unwrap());
        link.close().await;
        let wrong = url.replace("localhost", "ip6-localhost.invalid");
        assert_eq!(refused(&wrong).await.kind(), ErrorKind::Connect);
        return;
    }
    let options = BrokerOptions { tls: true, ..BrokerOptions::default() };
    let Some(broker) = OwnBroker::start_with(options).await else { return };
    let url = broker.tls_url();
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Tls, "{error:?}");
    // The plain port does not speak TLS.
    let error = refused(&broker.url().replace("amqp://", "amqps://")).await;
    assert!(matches!(error.kind(), ErrorKind::Tls | ErrorKind::Connect), "{error:?}");
    let name = "transport::amqp::tests::dialling::a_certificate_has_to_be_for_this_host_and_from_a_trusted_authority";
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, &url)
        .env("SSL_CERT_FILE", broker.ca_file())
        .output();
    let child = child.await.unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_peer_is_noticed_and_everyone_is_told() {
    let Some(url) = testkit::amqp_url() else { return };
    let proxy = Proxy::in_front_of(&url).await;
    let link = dial(&format!("{}?heartbeat=1", proxy.url_for(&url))).await;
    let queue = declare(&link, Headers::new()).await;
    let mut channel = subscribe(&link, &queue, 1).await;
    proxy.stall();
    let pending: Vec<_> =
        (0..100).map(|number| send(&link, message("", &queue, &format!("m-{number}")))).collect();
    for pending in pending {
        let lost = verdict(pending).await.unwrap_err();
        assert!(matches!(lost, PublishFailure::Lost { written: true, .. }), "{lost:?}");
    }
    let end = next(&mut channel).await;
    assert!(matches!(end, ConsumeEvent::Ended(ConsumeEnd::Lost(_))), "{end:?}");
    assert!(!channel.settler().ack(1));
    assert!(matches!(*link.state().borrow(), LinkState::Ended(_)));
    let late = verdict(send(&link, message("", &queue, "late"))).await.unwrap_err();
    assert!(matches!(late, PublishFailure::Lost { written: false, .. }), "{late:?}");
    let start = Instant::now();
    link.close().await;
    link.close().await;
    channel.close().await;
    assert!(start.elapsed() < Duration::from_secs(5));
    let again = dial(&url).await;
    again.delete_queue(&queue).await.unwrap();
    again.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_ends_the_link_and_gives_every_permit_back() {
    for (_, url) in testkit::brokers() {
        let mut proxy = Proxy::in_front_of(&url).await;
        let link = dial(&proxy.url_for(&url)).await;
        let queue = declare(&link, Headers::new()).await;
        let permits = Arc::new(tokio::sync::Semaphore::new(500));
        let mut verdicts = Vec::new();
        for number in 0..500 {
            let (sender, verdict) = oneshot::channel();
            let permit = Arc::clone(&permits).try_acquire_owned().ok();
            let answer = PublishAnswer { sender, permit };
            let message = Arc::new(message("", &queue, &format!("m-{number}")));
            link.publish(Publish::new(message, answer));
            verdicts.push(verdict);
            if number == 250 {
                proxy.cut().await;
            }
        }
        for pending in verdicts {
            let verdict = verdict(pending).await;
            assert!(matches!(verdict, Ok(()) | Err(PublishFailure::Lost { .. })), "{verdict:?}");
        }
        assert_eq!(permits.available_permits(), 500);
        let mut state = link.state();
        let ended = state.wait_for(|state| matches!(state, LinkState::Ended(_)));
        timeout(BOUND, ended).await.unwrap().unwrap();
        let again = dial(&url).await;
        again.delete_queue(&queue).await.unwrap();
        again.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_dropped_or_closed_leaves_no_socket() {
    let Some(url) = testkit::amqp_url() else { return };
    let broker = url.split_once('@').unwrap().1.split('/').next().unwrap().to_owned();
    for close in [true, false] {
        // A relay of our own, to see both sockets' ends.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = format!("amqp://guest:guest@{}", listener.local_addr().unwrap());
        let broker = broker.clone();
        let relay = tokio::spawn(async move {
            let (mut ours, _) = listener.accept().await.unwrap();
            let mut theirs = TcpStream::connect(broker).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
        });
        let link = dial(&to).await;
        let exists = link.exchange_exists("amq.direct").await.unwrap();
        assert!(exists);
        if close {
            link.close().await;
        } else {
            drop(link);
        }
        timeout(BOUND, relay).await.expect("the socket is still open").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_closes_in_order_right_after_its_consumers() {
    let Some(url) = testkit::amqp_url() else { return };
    let other = dial(&url).await;
    let queue = declare(&other, Headers::new()).await;
    for _ in 0..20 {
        let link = dial(&url).await;
        let mut channels = Vec::new();
        for _ in 0..5 {
            channels.push(subscribe(&link, &queue, 1).await);
        }
        for channel in channels {
            channel.close().await;
        }
        link.close().await;
        let LinkState::Ended(reason) = link.state().borrow().clone() else { panic!() };
        assert!(!reason.contains("invalid channel state"), "{reason}");
    }
    other.delete_queue(&queue).await.unwrap();
    other.close().await;
}

#[test]
fn a_link_whose_runtime_has_gone_says_so_at_once() {
    let Some(url) = testkit::amqp_url() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (link, channel) = runtime.block_on(async {
        let link = dial(&url).await;
        let queue = declare(&link, Headers::new()).await;
        let channel = subscribe(&link, &queue, 1).await;
        link.delete_queue(&queue).await.unwrap();
        (link, channel)
    });
    drop(runtime);
    let lost = tokio::runtime::Runtime::new().unwrap().block_on(async {
        assert!(!channel.settler().ack(1));
        verdict(send(&link, message("", "nowhere", "m-1"))).await.unwrap_err()
    });
    assert!(matches!(lost, PublishFailure::Lost { written: false, .. }), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_is_seen_and_a_paused_link_closes_in_time() {
    let Some(broker) = OwnBroker::start().await else { return };
    let link = dial(&broker.url()).await;
    let queue = declare(&link, Headers::new()).await;
    let mut state = link.state();
    broker.ctl(&["set_vm_memory_high_watermark", "0.000001"]).await;
    let pending = send(&link, message("", &queue, "m-1"));
    let blocked = state.wait_for(|state| matches!(state, LinkState::Blocked(_)));
    timeout(BOUND, blocked).await.unwrap().unwrap();
    broker.ctl(&["set_vm_memory_high_watermark", "0.6"]).await;
    timeout(BOUND, state.wait_for(|state| *state == LinkState::Open)).await.unwrap().unwrap();
    verdict(pending).await.unwrap();

    broker.ctl(&["set_vm_memory_high_watermark", "0.000001"]).await;
    let pending = send(&link, message("", &queue, "m-2"));
    let blocked = state.wait_for(|state| matches!(state, LinkState::Blocked(_)));
    timeout(BOUND, blocked).await.unwrap().unwrap();
    let start = Instant::now();
    link.close().await;
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(matches!(verdict(pending).await, Err(PublishFailure::Lost { .. })));
}
