//! The waiting queues of a retry policy, declared ahead.

use std::time::Duration;

use acemq::{Message, Queue, RetryPolicy, Topology};

use crate::on_every_broker;

on_every_broker! {
    async fn a_queue_with_retries_has_all_that_its_consumer_would_declare(broker: Broker) {
        let (mq, queue) = (broker.client().await, broker.name("work"));
        let policy = RetryPolicy::exponential(4, Duration::from_secs(60), Duration::from_secs(600));
        let declared = Queue::new(&*queue).dead_letters().retries(policy.clone());
        mq.apply(&declared.into()).await.unwrap();
        let topology = Topology::from(Queue::new(&*queue).dead_letters().retries(policy.clone()));
        mq.validate(&topology).await.unwrap();

        // Declared again by the consumer: a queue of another form would be a conflict.
        let before = mq.plan(&topology).await.unwrap();
        assert!(before.objects().iter().any(|it| it.object.to_string().contains(".retry.")), "{before}");
        let consumer = mq
            .consumer::<String>(&*queue)
            .retry(policy)
            .start(async |_: Message<String>| Ok::<(), acemq::HandlerError>(()))
            .await
            .unwrap();
        consumer.close().await.unwrap();
        assert_eq!(mq.plan(&topology).await.unwrap(), before);
        mq.close().await.unwrap();
    }
}
