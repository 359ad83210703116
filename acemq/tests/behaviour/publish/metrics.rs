//! What is reported about publishes and outbox records.

use std::{collections::BTreeMap, time::Duration};

use acemq::{
    BoxError, MemoryOutboxStore, OutboxRelay, PublishContext, PublishInterceptor, Queue,
    testing::MemoryBroker,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// Every counter, by its name and tags; a histogram counts its values.
fn series(snapshotter: &Snapshotter) -> BTreeMap<String, u64> {
    let all = snapshotter.snapshot().into_vec().into_iter();
    all.map(|(key, _, _, value)| {
        let key = key.key();
        let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value()));
        let name = format!("{} {}", key.name(), labels.collect::<Vec<_>>().join(" "));
        let value = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Histogram(values) => values.len() as u64,
            DebugValue::Gauge(_) => 0,
        };
        (name, value)
    })
    .collect()
}

/// What was published, by outcome, as counter and as timer.
fn publishes(series: &BTreeMap<String, u64>, tags: &str, outcome: &str) -> (u64, u64) {
    let of = |name: &str| {
        series.get(&format!("{name} {tags} outcome={outcome}")).copied().unwrap_or_default()
    };
    (of("acemq.publish.total"), of("acemq.publish.duration"))
}

const TO_ORDERS: &str = "exchange= routing.key=orders message.type=orders transport=memory";

#[tokio::test]
async fn every_publish_is_counted_and_timed_under_its_outcome() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url())
        .confirm_timeout(Duration::from_millis(30))
        .blocked_timeout(Duration::from_millis(60))
        .await
        .unwrap();
    mq.declare_queue(&Queue::new("orders")).await.unwrap();

    mq.send_to_queue("orders", "o-1").await.unwrap();
    mq.send_to_queue("orders", "o-2").without_confirm().await.unwrap();
    mq.send_to_queue("orders", "o-3").version(0).await.unwrap_err();
    mq.send_to_queue("nobody", "o-4").await.unwrap_err();
    mq.publisher::<String>("", "orders")
        .message_type("order.placed")
        .send(&"o-5".into())
        .await
        .unwrap();
    broker.block("low on memory");
    // Never written.
    mq.send_to_queue("orders", "o-6").await.unwrap_err();
    broker.unblock();
    // Given up by its caller.
    let given_up = tokio::time::timeout(Duration::ZERO, async {
        broker.block("low on memory");
        mq.send_to_queue("orders", "o-7").await
    });
    given_up.await.unwrap_err();
    broker.unblock();

    let series = series(&snapshotter);
    let to_orders = |outcome| publishes(&series, TO_ORDERS, outcome);
    assert_eq!(to_orders("confirmed"), (1, 1), "{series:#?}");
    assert_eq!(to_orders("published"), (1, 1), "{series:#?}");
    assert_eq!(to_orders("failed"), (2, 2), "{series:#?}");
    assert_eq!(to_orders("refused"), (1, 1), "{series:#?}");
    let nobody = TO_ORDERS.replace("orders", "nobody");
    assert_eq!(publishes(&series, &nobody, "unroutable"), (1, 1), "{series:#?}");
    let placed = TO_ORDERS.replace("type=orders", "type=order.placed");
    assert_eq!(publishes(&series, &placed, "confirmed"), (1, 1), "{series:#?}");
}

#[tokio::test]
async fn what_an_interceptor_redirects_is_counted_where_it_went() {
    struct Reroute;
    impl PublishInterceptor for Reroute {
        fn before_publish(&self, message: &mut PublishContext) -> Result<(), BoxError> {
            message.routing_key = "orders".to_owned();
            Ok(())
        }
    }
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).intercept_publish(Reroute).await.unwrap();
    mq.declare_queue(&Queue::new("orders")).await.unwrap();

    mq.send_to_queue("elsewhere", "o-1").message_type("orders").await.unwrap();

    let series = series(&snapshotter);
    assert_eq!(publishes(&series, TO_ORDERS, "confirmed"), (1, 1), "{series:#?}");
}

#[tokio::test]
async fn routing_keys_that_never_end_do_not_make_series_that_never_end() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let mq = crate::support::Broker::memory().client().await;

    for n in 0..3_000 {
        mq.send_to_queue(&format!("reply-{n}"), "o-1").allow_unroutable().await.unwrap();
    }

    let series = series(&snapshotter);
    let totals: Vec<u64> = series
        .iter()
        .filter(|(name, _)| name.starts_with("acemq.publish.total"))
        .map(|(_, count)| *count)
        .collect();
    assert_eq!(totals.iter().sum::<u64>(), 3_000);
    assert!(totals.len() <= 1_001, "{} series", totals.len());
}

#[tokio::test]
async fn outbox_records_are_counted_with_their_lag() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let mq = crate::support::Broker::memory().client().await;
    mq.declare_queue(&Queue::new("orders")).await.unwrap();
    let outbox = MemoryOutboxStore::new();
    for queue in ["orders", "orders", "nobody"] {
        let publisher = mq.publisher::<String>("", queue);
        outbox.add(&publisher.record(&"o-1".into()).await.unwrap());
    }

    OutboxRelay::builder(&mq, outbox).build().drain_once().await.unwrap();

    let series = series(&snapshotter);
    assert_eq!(series["acemq.outbox.total outcome=published"], 2, "{series:#?}");
    assert_eq!(series["acemq.outbox.total outcome=failed"], 1, "{series:#?}");
    assert_eq!(series["acemq.outbox.lag "], 2, "{series:#?}");
}
