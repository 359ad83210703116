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
