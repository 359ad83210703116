use super::*;
use crate::transport::ConsumeEnd;

/// Acknowledges `count` messages at full speed and closes; how many come back.
async fn come_back_after_close(url: &str, link: &Arc<dyn Link>, queue: &str, cancel: bool) -> u64 {
    const COUNT: usize = 10_000;
    let verdicts: Vec<_> =
        (0..COUNT).map(|number| send(link, message("", queue, &format!("m-{number}")))).collect();
    for pending in verdicts {
        verdict(pending).await.unwrap();
    }
    let consuming = dial(url).await;
    let mut channel = subscribe(&consuming, queue, 1000).await;
    let settler = channel.settler();
    let mut held = Vec::new();
    for number in 0..COUNT {
        let ConsumeEvent::Delivery(delivery) = next(&mut channel).await else { panic!("ended") };
        assert!(!delivery.redelivered);
        if cancel && number >= COUNT - 500 {
            held.push(delivery.tag);
        } else {
            assert!(settler.ack(delivery.tag));
        }
    }
    if cancel {
        channel.cancel().await.unwrap();
        for tag in held {
            assert!(settler.ack(tag));
        }
    }
    channel.close().await;
    consuming.close().await;
    // What comes back is ready again as soon as the broker has noticed the end of the channel;
    // a purge goes through the queue's log, behind it.
    link.purge_queue(queue).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_comes_back_after_close() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        for cancel in [false, true] {
            let queue = declare(&link, quorum()).await;
            for run in 0..2 {
                let back = come_back_after_close(&url, &link, &queue, cancel).await;
                assert_eq!(back, 0, "run {run}, cancelled first: {cancel}");
            }
            link.delete_queue(&queue).await.unwrap();
        }
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_queue_ends_its_consumer_and_nothing_else() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let (queue, other) =
            (declare(&link, Headers::new()).await, declare(&link, Headers::new()).await);
        let mut channel = subscribe(&link, &queue, 1).await;
        let mut neighbour = subscribe(&link, &other, 1).await;
        link.delete_queue(&queue).await.unwrap();
        let end = next(&mut channel).await;
        assert!(matches!(end, ConsumeEvent::Ended(ConsumeEnd::CancelledByBroker)), "{end:?}");
        channel.close().await;
        verdict(send(&link, message("", &other, "m-1"))).await.unwrap();
        assert!(matches!(next(&mut neighbour).await, ConsumeEvent::Delivery(_)));
        neighbour.close().await;
        link.delete_queue(&other).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_consumer_gives_what_had_arrived_and_then_ends() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let queue = declare(&link, Headers::new()).await;
        for number in 0..10 {
            verdict(send(&link, message("", &queue, &format!("m-{number}")))).await.unwrap();
        }
        let mut channel = subscribe(&link, &queue, 5).await;
        let ConsumeEvent::Delivery(first) = next(&mut channel).await else { panic!("ended") };
        channel.cancel().await.unwrap();
        let settler = channel.settler();
        assert!(settler.ack(first.tag));
        for _ in 1..5 {
            let ConsumeEvent::Delivery(delivery) = next(&mut channel).await else {
                panic!("ended")
            };
            assert!(settler.nack(delivery.tag, true));
        }
        let end = next(&mut channel).await;
        assert!(matches!(end, ConsumeEvent::Ended(ConsumeEnd::Cancelled)), "{end:?}");
        assert!(settler.is_open());
        channel.close().await;
        assert!(!settler.is_open());
        assert!(!settler.ack(first.tag));
        assert_eq!(link.purge_queue(&queue).await.unwrap(), 9);
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_consumer_gives_its_messages_back_and_settles_no_more() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let queue = declare(&link, Headers::new()).await;
        verdict(send(&link, message("", &queue, "m-1"))).await.unwrap();
        let mut channel = subscribe(&link, &queue, 1).await;
        let ConsumeEvent::Delivery(held) = next(&mut channel).await else { panic!("ended") };
        let stale = channel.settler();
        drop(channel);
        testkit::eventually("the consumer is gone", BOUND, async || {
            link.inspect_queue(&queue).await.unwrap().unwrap().consumers == 0
        })
        .await;
        // The next channel gives the same tag to the same message.
        let mut channel = subscribe(&link, &queue, 1).await;
        let ConsumeEvent::Delivery(again) = next(&mut channel).await else { panic!("ended") };
        assert_eq!(again.tag, held.tag);
        assert!(again.redelivered);
        assert!(!stale.ack(held.tag));
        channel.close().await;
        assert_eq!(link.purge_queue(&queue).await.unwrap(), 1);
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_the_broker_closes_is_lost_with_its_reason() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let queue = declare(&link, Headers::new()).await;
        let mut channel = subscribe(&link, &queue, 1).await;
        // An unknown tag is answered as an acknowledgement that came too late is.
        assert!(channel.settler().ack(42));
        let end = next(&mut channel).await;
        let ConsumeEvent::Ended(ConsumeEnd::Lost(reason)) = end else { panic!("{end:?}") };
        assert!(reason.contains("unknown delivery tag 42"), "{reason}");
        assert!(!channel.settler().is_open());
        channel.close().await;
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_of_channels_that_both_sides_close_at_once_are_used_again() {
    for (_, url) in testkit::brokers() {
        let link = dial(&format!("{url}?channel_max=4")).await;
        let queue = declare(&link, Headers::new()).await;
        for _ in 0..20 {
            let wanted = Subscription {
                queue: queue.clone(),
                prefetch: 1,
                exclusive: false,
                arguments: Headers::new(),
            };
            let channel = loop {
                match link.subscribe(wanted.clone()).await {
                    Ok(channel) => break channel,
                    Err(error) => assert!(error.to_string().contains("is in use"), "{error}"),
                }
            };
            // For the first the broker closes the channel, and by the second we do.
            channel.settler().ack(42);
            drop(channel);
        }
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_consumer_of_an_exclusive_one_is_refused() {
    let Some(url) = testkit::amqp_url() else { return };
    let link = dial(&url).await;
    let queue = declare(&link, Headers::new()).await;
    let exclusive = Subscription {
        queue: queue.clone(),
        prefetch: 1,
        exclusive: true,
        arguments: Headers::new(),
    };
    let first = link.subscribe(exclusive.clone()).await.unwrap();
    let error = link.subscribe(exclusive).await.unwrap_err();
    assert_eq!(error.kind(), crate::error::ErrorKind::Refused, "{error:?}");
    assert_eq!(error.queue(), Some(&*queue));
    first.close().await;
    link.delete_queue(&queue).await.unwrap();
    link.close().await;
}
