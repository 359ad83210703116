//! What cannot work is a typed error that names the thing, in bounded time, and harms nobody else.

#![expect(clippy::unwrap_used, reason = "a failure of a helper is one of its test")]

mod support;

use std::time::{Duration, Instant};

use acemq::{Client, Error, ErrorKind, Exchange, HeaderValue, Queue, Topology};
use futures_util::future::join_all;
use testkit::{BrokerOptions, OwnBroker, brokers, said_once, unique};
use tokio::net::TcpListener;

const PASSWORD: &str = "s3cret-Passw0rd";
const BOUND: Duration = Duration::from_secs(15);

/// An error says its text and its causes, each once, and its debug form without the password.
fn assert_discreet(error: &Error) {
    let text = format!("{} {error:?}", said_once(error));
    assert!(!text.contains(PASSWORD), "{text}");
}

async fn refused(url: &str, timeout: Duration) -> Error {
    testkit::logs::capture();
    let started = Instant::now();
    let connect = acemq::connect(url).connect_timeout(timeout);
    assert!(!format!("{connect:?}").contains(PASSWORD));
    let error = connect.await.unwrap_err();
    assert!(started.elapsed() < BOUND, "{url} took {:?}", started.elapsed());
    assert_discreet(&error);
    assert!(testkit::logs::of_the_process(&[PASSWORD]).is_empty());
    error
}

#[tokio::test]
async fn a_wrong_url_is_refused_and_its_password_not_shown() {
    for url in [
        String::new(),
        "localhost".to_owned(),
        format!("http://user:{PASSWORD}@localhost"),
        format!("amqp://user:{PASSWORD}@"),
        format!("amqp://user:{PASSWORD}@host:notaport"),
        format!("amqp://user:{PASSWORD}@host:99999"),
        format!("amqp://user:{PASSWORD}@host/vhost/more"),
        format!("amqp://user:{PASSWORD}@[::1/vhost"),
        "memory://".to_owned(),
    ] {
        let error = refused(&url, BOUND).await;
        assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error}");
        let lazy = acemq::connect_lazy(&*url).unwrap_err();
        assert_eq!(lazy.kind(), ErrorKind::Config, "{url}: {lazy}");
        assert_discreet(&lazy);
    }
}

#[tokio::test]
async fn a_broker_that_cannot_be_reached_is_named() {
    let url = format!("amqp://user:{PASSWORD}@127.0.0.1:1");
    let error = refused(&url, BOUND).await;
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
    assert!(error.is_transient());
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");

    let url = format!("amqp://user:{PASSWORD}@no-such-host.invalid");
    let error = refused(&url, BOUND).await;
    assert!(matches!(error.kind(), ErrorKind::Connect | ErrorKind::Timeout), "{error}");
    assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
}

#[tokio::test]
async fn a_refused_login_and_a_missing_virtual_host_are_told_apart() {
    for (_, url) in brokers() {
        let with_password = url.replace("guest:guest@", &format!("guest:{PASSWORD}@"));
        let error = refused(&with_password, BOUND).await;
        assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
        assert!(!error.is_transient());
        assert!(error.to_string().contains("guest"), "{error}");

        let error = refused(&format!("{url}/no-such-vhost"), BOUND).await;
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("no-such-vhost"), "{error}");
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let options = BrokerOptions { tls: true, ..BrokerOptions::default() };
    let Some(broker) = OwnBroker::start_with(options).await else { return };
    let error = refused(&broker.tls_url(), BOUND).await;
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
    assert!(error.to_string().contains("localhost"), "{error}");
    // TLS where the broker speaks none.
    let error = refused(&broker.url().replace("amqp:", "amqps:"), BOUND).await;
    assert!(matches!(error.kind(), ErrorKind::Tls | ErrorKind::Connect), "{error}");
}

#[tokio::test]
async fn a_peer_that_says_nothing_or_hangs_up_is_an_error_within_the_bound() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let url = format!("amqp://user:{PASSWORD}@{address}");
    let accept = async {
        let mut open = Vec::new();
        loop {
            open.push(silent.accept().await.unwrap());
        }
    };
    let error = tokio::select! {
        error = refused(&url, Duration::from_millis(300)) => error,
        () = accept => unreachable!(),
    };
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");

    let hang_up = async {
        loop {
            drop(silent.accept().await.unwrap());
        }
    };
    let error = tokio::select! {
        error = refused(&url, BOUND) => error,
        () = hang_up => unreachable!(),
    };
    assert!(matches!(error.kind(), ErrorKind::Connect | ErrorKind::Lost), "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

/// Publishes `count` messages to a queue of its own, with `meanwhile` in the middle of them.
async fn with_neighbours<T>(mq: &Client, count: u32, meanwhile: impl Future<Output = T>) -> T {
    let queue = unique("neighbours");
    mq.declare_queue(&Queue::new(&*queue).classic()).await.unwrap();
    let numbers: Vec<u32> = (0..count).collect();
    let mut before: Vec<_> =
        numbers.iter().map(|n| mq.send_to_queue(&queue, n).into_future()).collect();
    let after = before.split_off(numbers.len() / 2);
    let (before, found, after) = tokio::join!(join_all(before), meanwhile, join_all(after));
    for sent in before.into_iter().chain(after) {
        sent.unwrap();
    }
    let arrived = mq.inspect_queue(&queue).await.unwrap().unwrap().messages;
    mq.delete_queue(&queue).await.unwrap();
    // Where the broker closed the channel, what it had not confirmed was sent once more.
    assert!(arrived >= u64::from(count), "{arrived}");
    found
}

on_every_broker! {
    async fn a_queue_with_other_arguments_is_a_conflict_that_names_both(broker: Broker) {
        let mq = broker.client().await;
        let queue = unique("orders");
        let with = |ttl| Queue::new(&*queue).classic().message_ttl(Duration::from_millis(ttl));
        mq.declare_queue(&with(10_000)).await.unwrap();

        let declared = with(20_000);
        let error = with_neighbours(&mq, 50, mq.declare_queue(&declared)).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert_eq!(error.queue(), Some(&*queue));
        let conflict = error.conflict().unwrap();
        assert_eq!(conflict.argument, "x-message-ttl");
        assert_eq!((&*conflict.declared, &*conflict.existing), ("20000", "10000"));
        mq.delete_queue(&queue).await.unwrap();
        mq.close().await.unwrap();
    }

    async fn a_missing_exchange_is_the_failure_of_its_own_message_only(broker: Broker) {
        // After a 404 the suspects are published one by one.
        let mq =
            acemq::connect(&*broker.url).confirm_timeout(Duration::from_secs(60)).await.unwrap();
        let missing = unique("missing");
        let exchange = unique("exchange");
        let publisher = mq.publisher::<String>(&*missing, "key");

        let payload = "o-1".to_owned();
        let send = publisher.send(&payload).id("m-1").into_future();
        let error = with_neighbours(&mq, 1_000, send).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!((error.exchange(), error.message_id()), (Some(&*missing), Some("m-1")));
        assert!(!error.may_have_been_published());

        // One that was there when it was used first, and then was not.
        mq.declare(&Topology::new().exchange(Exchange::fanout(&*exchange))).await.unwrap();
        let gone = mq.publisher::<String>(&*exchange, "key").allow_unroutable();
        gone.send(&payload).await.unwrap();
        mq.delete_exchange(&exchange).await.unwrap();
        let send = gone.send(&payload).into_future();
        let error = with_neighbours(&mq, 1_000, send).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");

        // And that is back.
        mq.declare(&Topology::new().exchange(Exchange::fanout(&*exchange))).await.unwrap();
        gone.send(&payload).await.unwrap();
        mq.delete_exchange(&exchange).await.unwrap();
        mq.close().await.unwrap();
    }

    async fn names_that_amqp_cannot_carry_are_refused_and_counted_in_bytes(broker: Broker) {
        let mq = broker.client().await;
        let (fits, emoji) = ("k".repeat(255), "😀".repeat(64));
        assert_eq!(emoji.len(), 256);
        let payload = "o-1".to_owned();
        let name = unique("exchange");
        let queue = unique("orders");
        mq.declare(&Topology::new().exchange(Exchange::direct(&*name)).queue(Queue::new(&*queue)).bind(&*queue, &*name, &*fits))
            .await
            .unwrap();
        mq.publisher::<String>(&*name, &*fits).send(&payload).id(&*fits).await.unwrap();

        for long in [&*emoji, &"k".repeat(256)] {
            let too_large = async {
                let by_key = mq.publisher::<String>(&*name, long).send(&payload).await;
                let by_exchange = mq.publisher::<String>(long, "key").send(&payload).await;
                let by_id = mq.publisher::<String>(&*name, &*fits).send(&payload).id(long).await;
                let by_header = mq.send_to_queue(&queue, &payload).header(long, 1).await;
                [("routing key", by_key), ("exchange", by_exchange), ("id", by_id), ("header", by_header)]
            };
            for (what, result) in with_neighbours(&mq, 50, too_large).await {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TooLarge, "{what}: {error}");
                assert!(error.to_string().contains(what), "{error}");
                assert!(error.to_string().contains("256"), "{error}");
                assert!(!error.may_have_been_published());
            }
        }
        assert_eq!(mq.inspect_queue(&queue).await.unwrap().unwrap().messages, 1);
        mq.delete_queue(&queue).await.unwrap();
        mq.delete_exchange(&name).await.unwrap();
        mq.close().await.unwrap();
    }

    async fn headers_over_a_frame_are_refused_before_they_end_the_connection(broker: Broker) {
        let mq = broker.client().await;
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
        let large = HeaderValue::from("h".repeat(200_000));

        let send = mq.send_to_queue(&queue, "o-1").id("m-1").header("x-large", large).into_future();
        let error = with_neighbours(&mq, 200, send).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert_eq!(error.message_id(), Some("m-1"));
        assert!(error.to_string().contains("headers"), "{error}");
        mq.send_to_queue(&queue, "o-1").header("x", "h".repeat(100_000)).await.unwrap();
        mq.delete_queue(&queue).await.unwrap();
        mq.close().await.unwrap();
    }

    async fn a_body_over_the_limit_that_was_set_is_refused(broker: Broker) {
        let mq = acemq::connect(&*broker.url).largest_body(1_000).await.unwrap();
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
        let (fits, too_large) = ("b".repeat(998), "b".repeat(999));

        mq.send_to_queue(&queue, &fits).await.unwrap();
        let send = mq.send_to_queue(&queue, &too_large).id("m-1").into_future();
        let error = with_neighbours(&mq, 100, send).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert_eq!(error.message_id(), Some("m-1"));
        let text = error.to_string();
        assert!(text.contains("1001") && text.contains("1000"), "{text}");
        mq.delete_queue(&queue).await.unwrap();
        mq.close().await.unwrap();
    }

    async fn a_header_with_a_reserved_name_is_refused_by_name(broker: Broker) {
        let mq = broker.client().await;
        let send = mq.send_to_queue("orders", "o-1").header("x-acemq-id", "mine").into_future();
        let error = with_neighbours(&mq, 50, send).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Encode);
        assert!(error.to_string().contains("x-acemq-id"), "{error}");
        mq.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_over_the_limit_of_rabbitmq_4_harms_none_of_its_neighbours() {
    let Some(url) = testkit::amqp4_url() else { return };
    let body = "b".repeat(17 * 1024 * 1024);
    // With the limit known, and with one that was set too high: then the broker refuses it.
    for largest in [None, Some(64 * 1024 * 1024)] {
        let mut connect = acemq::connect(&*url);
        if let Some(bytes) = largest {
            connect = connect.largest_body(bytes);
        }
        let mq = connect.await.unwrap();
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue).classic()).await.unwrap();

        let send = mq.send_to_queue(&queue, &body).id("m-1").into_future();
        let error = with_neighbours(&mq, 100, send).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert_eq!(error.message_id(), Some("m-1"));
        assert!(error.to_string().len() < 1_000, "{error}");
        mq.delete_queue(&queue).await.unwrap();
        mq.close().await.unwrap();
    }
}
