//! What is reported about requests.

use std::{collections::BTreeMap, time::Duration};

use acemq::{HandlerError, Message};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::{request::bench::Bench, support::Broker};

#[tokio::test]
async fn every_request_is_counted_and_timed_under_its_outcome() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let broker = Broker::memory();
    let mut bench = Bench::new(&broker).await;
    bench.queue = "prices".to_owned();
    bench.mq.declare_queue(&acemq::Queue::new("prices").dead_letters()).await.unwrap();
    let handler = |message: Message<String>| async move {
        match &**message.payload() {
            "slow" => std::future::pending().await,
            "fails" => Err(HandlerError::fatal("no")),
            _ => Ok(message.into_payload()),
        }
    };
    let builder = bench.mq.consumer::<String>("prices").concurrency(8);
    let responder = builder.respond(handler).await.unwrap();
    let requester = bench.requester().await;
    let requests = bench.requests(&requester);
    let moment = Duration::from_millis(50);

    requests.request(&"works".to_owned()).await.unwrap();
    requests.request(&"works".to_owned()).await.unwrap();
    requests.request(&"fails".to_owned()).await.unwrap_err();
    requests.request(&"slow".to_owned()).timeout(moment).await.unwrap_err();
    // Given up by its caller.
    tokio::time::timeout(moment, requests.request(&"slow".to_owned()).into_future())
        .await
        .unwrap_err();
    requests.clone().message_type("price.wanted").request(&"works".to_owned()).await.unwrap();

    let all = snapshotter.snapshot().into_vec().into_iter();
    let series: BTreeMap<String, u64> = all
        .filter(|(key, ..)| key.key().name().starts_with("acemq.request."))
        .map(|(key, _, _, value)| {
            let labels =
                key.key().labels().map(|label| format!("{}={}", label.key(), label.value()));
            let count = match value {
                DebugValue::Counter(count) => count,
                DebugValue::Histogram(values) => values.len() as u64,
                DebugValue::Gauge(_) => 0,
            };
            (format!("{} {}", key.key().name(), labels.collect::<Vec<_>>().join(" ")), count)
        })
        .collect();
    let expected = [
        ("prices", "answered", 2),
        ("prices", "failed", 2),
        ("prices", "timed_out", 1),
        ("price.wanted", "answered", 1),
    ];
    let expected: BTreeMap<String, u64> = expected
        .into_iter()
        .flat_map(|(message_type, outcome, count)| {
            ["duration", "total"].map(|name| {
                let tags = format!("routing.key=prices message.type={message_type}");
                (format!("acemq.request.{name} {tags} outcome={outcome}"), count)
            })
        })
        .collect();
    assert_eq!(series, expected);
    // Two of its handlers would run for ever.
    drop(responder);
    bench.mq.close().await.unwrap();
}
