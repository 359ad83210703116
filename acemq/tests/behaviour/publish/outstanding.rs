//! The bound on publishes that wait for the broker.

use std::{sync::Arc, time::Duration};

use acemq::{ErrorKind, Queue};
use futures_util::future::join_all;
use testkit::{Proxy, brokers, eventually, unique};

use crate::on_every_broker;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_broker_that_falls_silent_is_met_by_waiting_and_then_an_error_that_says_so() {
    for (_, url) in brokers() {
        let mut proxy = Proxy::in_front_of(&url).await;
        let mq = acemq::connect(proxy.url_for(&url))
            .max_outstanding_publishes(2)
            .confirm_timeout(Duration::from_millis(500))
            .await
            .unwrap();
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
        mq.send_to_queue(&queue, "o-0").await.unwrap();
        proxy.stall();

        let sends =
            ["o-1", "o-2", "o-3"].map(|order| mq.send_to_queue(&queue, order).into_future());
        let mut results = join_all(sends).await.into_iter();

        for written in results.by_ref().take(2) {
            let error = written.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert!(error.may_have_been_published(), "{error}");
            assert!(
                error.to_string().ends_with("no confirm within 500ms; it may have been published")
            );
        }
        let error = results.next().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(!error.may_have_been_published(), "{error}");
        assert!(
            error.to_string().contains(
                "2 publishes are already waiting for a confirm and none completed within 500ms. \
                 The broker is not keeping up; publish more slowly rather than buffering more"
            ),
            "{error}"
        );

        // The late confirms free their places, and both are free.
        proxy.restore().await;
        eventually("publishing goes on", SOON, async || {
            let sends = ["o-4", "o-5"].map(|order| mq.send_to_queue(&queue, order).into_future());
            join_all(sends).await.iter().all(Result::is_ok)
        })
        .await;
        mq.delete_queue(&queue).await.unwrap();
        mq.close().await.unwrap();
    }
}

on_every_broker! {
    async fn many_more_sends_than_the_bound_wait_for_their_turn(broker: Broker) {
        let mq = acemq::connect(&*broker.url).max_outstanding_publishes(3).await.unwrap();
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
        let queue: Arc<str> = queue.into();

        let sends = (0..300_u32).map(|n| {
            let (mq, queue) = (mq.clone(), Arc::clone(&queue));
            tokio::spawn(async move { mq.send_to_queue(&queue, &n).await })
        });
        for sent in join_all(sends).await {
            assert!(sent.unwrap().unwrap().confirmed);
        }

        assert_eq!(mq.inspect_queue(&queue).await.unwrap().unwrap().messages, 300);
        mq.delete_queue(&queue).await.unwrap();
        mq.close().await.unwrap();
    }
}
