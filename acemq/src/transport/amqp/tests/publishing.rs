use super::*;
use crate::{
    error::ErrorKind,
    transport::{BindingSpec, ExchangeKind, ExchangeSpec},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_published_message_arrives_as_it_was() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let queue = declare(&link, Headers::new()).await;
        let mut out = message("", &queue, "m-1");
        out.properties.content_type = Some("text/plain".to_owned());
        out.properties.headers = Headers::from([("x-tenant".to_owned(), "acme".into())]);
        out.properties.timestamp = Some(1_767_323_045);
        verdict(send(&link, out.clone())).await.unwrap();
        let mut channel = subscribe(&link, &queue, 10).await;
        let ConsumeEvent::Delivery(delivery) = next(&mut channel).await else { panic!("ended") };
        assert_eq!(delivery.properties, out.properties);
        assert_eq!(delivery.body, out.body);
        assert_eq!(delivery.routing_key, queue);
        assert!(channel.settler().ack(delivery.tag));
        channel.close().await;
        assert_eq!(link.inspect_queue(&queue).await.unwrap().unwrap().messages, 0);
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

/// Every third of `COUNT` publishes in flight is unroutable; nothing may be said of another.
async fn nobody_elses_return(link: &Arc<dyn Link>, queue: &str, id: impl Fn(usize) -> String) {
    const COUNT: usize = 3000;
    let nowhere = testkit::unique("nowhere");
    let verdicts: Vec<_> = (0..COUNT)
        .map(|number| {
            let key = if number % 3 == 0 { &nowhere } else { queue };
            send(link, message("", key, &id(number)))
        })
        .collect();
    let mut wrong = 0;
    for (number, pending) in verdicts.into_iter().enumerate() {
        let unroutable = match verdict(pending).await {
            Ok(()) => false,
            Err(PublishFailure::Unroutable { code: 312, .. }) => true,
            Err(other) => panic!("{other:?}"),
        };
        wrong += usize::from(unroutable != (number % 3 == 0));
    }
    assert_eq!(wrong, 0, "misattributed");
    let purged = link.purge_queue(queue).await.unwrap();
    assert_eq!(purged as usize, COUNT - COUNT / 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unroutable_message_is_never_taken_for_another() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        for arguments in [Headers::new(), quorum()] {
            let queue = declare(&link, arguments).await;
            for run in 0..20 {
                nobody_elses_return(&link, &queue, |number| match run % 2 {
                    0 => format!("m-{number}"),
                    // Repeated ids: ten of each.
                    _ => format!("m-{}", number % 300),
                })
                .await;
            }
            link.delete_queue(&queue).await.unwrap();
        }
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_exchange_hurts_nobody_but_its_own_messages() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let queue = declare(&link, Headers::new()).await;
        let missing = testkit::unique("missing");
        let verdicts: Vec<_> = (0..1000)
            .map(|number| {
                let exchange = if number == 500 { &missing } else { "" };
                send(&link, message(exchange, &queue, &format!("m-{number}")))
            })
            .collect();
        for (number, pending) in verdicts.into_iter().enumerate() {
            match verdict(pending).await {
                Ok(()) => assert_ne!(number, 500),
                Err(PublishFailure::Refused(error)) => {
                    assert_eq!(number, 500);
                    assert_eq!(error.kind(), ErrorKind::NotFound);
                    assert_eq!(error.exchange(), Some(&*missing));
                    assert_eq!(error.message_id(), Some("m-500"));
                }
                Err(other) => panic!("{number}: {other:?}"),
            }
        }
        // Exactly once each: the channel was never closed.
        assert_eq!(link.purge_queue(&queue).await.unwrap(), 999);
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_that_goes_away_at_full_speed_hurts_nobody_else() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        for _ in 0..5 {
            exchange_goes_away(&url, &link).await;
        }
        link.close().await;
    }
}

async fn exchange_goes_away(url: &str, link: &Arc<dyn Link>) {
    let queue = declare(link, Headers::new()).await;
    let exchange = fanout(link, &queue).await;
    let other = dial(url).await;
    let mut verdicts = std::collections::VecDeque::new();
    let (mut sent, mut refused, mut number) = (0, 0, 0);
    let mut deletion = std::pin::pin!(other.delete_exchange(&exchange));
    let mut deleted = false;
    while refused < 50 {
        // Neighbours and victims alternate, a thousand in flight.
        let victim = number % 10 == 0;
        let to = if victim { &*exchange } else { "" };
        verdicts.push_back((victim, send(link, message(to, &queue, &format!("m-{number}")))));
        number += 1;
        if number > 5000 && !deleted {
            deleted = std::future::poll_fn(|context| {
                std::task::Poll::Ready(deletion.as_mut().poll(context).is_ready())
            })
            .await;
        }
        if verdicts.len() < 1000 {
            continue;
        }
        let Some((victim, pending)) = verdicts.pop_front() else { break };
        match verdict(pending).await {
            Ok(()) => sent += 1,
            Err(PublishFailure::Refused(error)) => {
                assert!(victim, "{error}");
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                refused += 1;
            }
            Err(other) => panic!("message {number}, victim: {victim}: {other:?}"),
        }
    }
    assert!(sent > 4000);
    drop(verdicts);
    link.delete_queue(&queue).await.unwrap();
    other.close().await;
}

async fn fanout(link: &Arc<dyn Link>, queue: &str) -> String {
    let name = testkit::unique("fanout");
    link.declare_exchange(&ExchangeSpec {
        name: name.clone(),
        kind: ExchangeKind::Fanout,
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: Headers::new(),
    })
    .await
    .unwrap();
    link.bind_queue(&BindingSpec {
        queue: queue.to_owned(),
        exchange: name.clone(),
        routing_key: String::new(),
        arguments: Headers::new(),
    })
    .await
    .unwrap();
    name
}
