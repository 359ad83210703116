//! Several addresses of one broker, and names that lead nowhere.

use std::time::Duration;

use acemq::{ConnectionState, ErrorKind};
use testkit::{Proxy, amqp_url, eventually};
use tokio::{net::TcpListener, time::Instant};

const SOON: Duration = Duration::from_secs(30);
const NOBODY: &str = "amqp://guest:hush@127.0.0.1:1";

/// Where an address leads, as it is shown.
fn at(url: &str) -> String {
    url.split_once('@').unwrap().1.split('/').next().unwrap().to_owned()
}

#[tokio::test]
async fn the_next_address_is_tried_where_one_is_dead_or_silent() {
    let Some(url) = amqp_url() else { return };
    // Accepts, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("amqp://{}", silent.local_addr().unwrap());
    let (log, _guard) = testkit::logs::of_this_thread();
    for first in [NOBODY, &*silent, "amqp://no-such-host.invalid"] {
        let mq = acemq::connect(first)
            .also_at(&*url)
            .connect_timeout(Duration::from_millis(2_000))
            .await
            .unwrap();
        for watch in [mq.publishing(), mq.consuming()] {
            let address = watch.address().unwrap();
            assert!(address.contains(&at(&url)) && !address.contains("guest:"), "{address}");
        }
        mq.close().await.unwrap();
        assert_eq!(mq.publishing().address(), None);
    }
    assert!(!log.lines_with(&["one of several addresses failed"]).is_empty());
    assert!(!log.lines_with(&["connected", "address=", &at(&url)]).is_empty());
    assert!(log.lines_with(&["hush"]).is_empty());
}

#[tokio::test]
async fn a_lost_node_is_left_for_another_one_and_the_state_says_which() {
    let Some(url) = amqp_url() else { return };
    let mut nodes = [Proxy::in_front_of(&url).await, Proxy::in_front_of(&url).await];
    let urls = [nodes[0].url_for(&url), nodes[1].url_for(&url)];
    let mq = acemq::connect(urls.join(",")).await.unwrap();
    for now in [0, 1, 0] {
        eventually("both connections are at the node that is up", SOON, async || {
            let there = |watch: acemq::StateWatch| {
                watch.current() == ConnectionState::Connected
                    && watch.address().is_some_and(|address| address.contains(&at(&urls[now])))
            };
            there(mq.publishing()) && there(mq.consuming())
        })
        .await;
        nodes[1 - now].restore().await;
        nodes[now].cut().await;
    }
    mq.close().await.unwrap();
}

#[tokio::test]
async fn where_no_address_lets_us_in_the_error_names_them_all() {
    let error = acemq::connect(NOBODY).also_at("amqp://no-such-host.invalid").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:1") && text.contains("no-such-host.invalid"), "{text}");
    assert!(!format!("{error:?}").contains("hush"), "{error:?}");

    let Some(url) = amqp_url() else { return };
    let wrong = url.replace("guest:guest", "guest:hush");
    let error = acemq::connect(NOBODY).also_at(wrong).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_tried_again() {
    let mq = acemq::connect_lazy("amqp://no-such-host.invalid").unwrap();
    let mut states = mq.publishing();
    let send = mq.send_to_queue("orders", "o-1").into_future();
    let seen = states.wait_for(
        |state| matches!(state, ConnectionState::Recovering { attempt, .. } if *attempt > 2),
    );
    tokio::select! {
        () = seen => {}
        sent = send => panic!("{sent:?}"),
    }
    let ConnectionState::Recovering { reason, .. } = states.current() else {
        panic!("{:?}", states.current())
    };
    assert!(reason.contains("no-such-host.invalid") && reason.contains("resolve"), "{reason}");
    mq.close().await.unwrap();
}

#[tokio::test]
async fn an_address_bounds_the_way_to_its_host() {
    // Never answered: an address of documentation.
    let far = "amqp://192.0.2.1?connection_timeout=200";
    let started = Instant::now();
    let error = acemq::connect(far).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5), "{error}");
    assert!(error.is_transient(), "{error}");
}
