//! Many messages at once, on every broker.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU32, Ordering},
};

use acemq::{BoxError, ErrorKind, PublishContext, PublishInterceptor, Queue};
use testkit::unique;

use crate::{on_every_broker, support::wire::take};

/// Sends every third message where no queue is.
#[derive(Default)]
struct LoseEveryThird(AtomicU32);

impl PublishInterceptor for LoseEveryThird {
    fn before_publish(&self, message: &mut PublishContext) -> Result<(), BoxError> {
        if self.0.fetch_add(1, Ordering::SeqCst) % 3 == 2 {
            message.routing_key = unique("nobody");
        }
        Ok(())
    }
}

on_every_broker! {
    async fn a_batch_larger_than_the_bound_arrives_whole_and_in_order(broker: Broker) {
        let mq = acemq::connect(&*broker.url).max_outstanding_publishes(10).await.unwrap();
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
        let payloads: Vec<u32> = (0..500).collect();

        let receipts = mq.publisher::<u32>("", &*queue).send_all(&payloads).await.unwrap();

        assert!(receipts.iter().all(|receipt| receipt.confirmed));
        let arrived = take(&broker, &queue).await;
        let bodies: Vec<u32> =
            arrived.iter().map(|m| String::from_utf8_lossy(&m.body).parse().unwrap()).collect();
        assert_eq!(bodies, payloads);
        let ids: Vec<&str> = arrived.iter().map(|m| &*m.properties["message-id"]).collect();
        let of_receipts: Vec<&str> = receipts.iter().map(|receipt| &*receipt.message_id).collect();
        assert_eq!(ids, of_receipts);
        mq.delete_queue(&queue).await.unwrap();
        mq.close().await.unwrap();
    }

    async fn a_batch_that_fails_in_part_says_which_messages_are_confirmed(broker: Broker) {
        let mq = acemq::connect(&*broker.url)
            .max_outstanding_publishes(20)
            .intercept_publish(LoseEveryThird::default())
            .await
            .unwrap();
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
        let payloads: Vec<u32> = (0..90).collect();

        let error = mq.publisher::<u32>("", &*queue).send_all(&payloads).await.unwrap_err();

        assert_eq!(error.results().len(), 90);
        let lost: Vec<usize> = (0..90).filter(|n| n % 3 == 2).collect();
        assert_eq!(error.failed().map(|(at, _)| at).collect::<Vec<_>>(), lost);
        let first = &error.failed().next().unwrap().1.to_string();
        let text = "30 of 90 messages not confirmed; 60 confirmed. The first failure was: ";
        assert_eq!(error.to_string(), format!("{text}{first}"));
        let confirmed: BTreeSet<&str> =
            error.confirmed().map(|(_, receipt)| &*receipt.message_id).collect();
        let arrived = take(&broker, &queue).await;
        let ids: BTreeSet<&str> = arrived.iter().map(|m| &*m.properties["message-id"]).collect();
        assert_eq!(confirmed, ids);

        let as_error = acemq::Error::from(error);
        assert_eq!(as_error.kind(), ErrorKind::Unroutable);
        assert!(as_error.to_string().starts_with(text));
        assert!(!as_error.may_have_been_published());
        mq.delete_queue(&queue).await.unwrap();
        mq.close().await.unwrap();
    }
}

#[tokio::test]
async fn an_empty_batch_is_sent_at_once() {
    let mq = crate::support::Broker::memory().client().await;
    let receipts = mq.publisher::<u32>("", "orders").send_all(&[]).await.unwrap();
    assert!(receipts.is_empty());
}

#[tokio::test]
async fn a_batch_converts_with_the_question_mark() {
    async fn send(mq: &acemq::Client) -> acemq::Result<()> {
        mq.publisher::<u32>("", "nobody").send_all(&[1, 2]).await?;
        Ok(())
    }
    let mq = crate::support::Broker::memory().client().await;
    let error = send(&mq).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unroutable);
    let batch = error.get_ref().unwrap().downcast_ref::<acemq::BatchError>();
    assert_eq!(batch.unwrap().failed().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_batch_do_not_wait_in_turn_for_a_broker_that_is_away() {
    let broker = acemq::testing::MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    mq.send_to_queue("orders", "o-1").allow_unroutable().await.unwrap();
    broker.block("low on memory");
    let started = tokio::time::Instant::now();
    let payloads: Vec<u32> = (0..500).collect();
    let error = mq.publisher::<u32>("", "orders").send_all(&payloads).await.unwrap_err();
    assert_eq!(error.failed().count(), 500);
    assert_eq!(started.elapsed(), std::time::Duration::from_secs(30));
}
