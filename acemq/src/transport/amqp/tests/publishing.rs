use bytes::Bytes;

use super::*;
use crate::{
    envelope::HeaderValue,
    error::{Error, ErrorKind},
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
            // The bindings go before the exchange does.
            Err(PublishFailure::Unroutable { .. }) if victim => {}
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

#[tokio::test(flavor = "multi_thread")]
async fn every_type_of_header_comes_back_as_it_went() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let queue = declare(&link, Headers::new()).await;
        let mut values = vec![
            HeaderValue::Null,
            true.into(),
            (-8_i8).into(),
            8_u8.into(),
            (-16_i16).into(),
            16_u16.into(),
            (-32_i32).into(),
            32_u32.into(),
            i64::MIN.into(),
            1.5_f32.into(),
            (-2.25_f64).into(),
            HeaderValue::Decimal { scale: 2, value: 12_345 },
            "täxt".into(),
            "".into(),
            HeaderValue::OpaqueText(Bytes::from_static(b"\xff\xfe")),
            Bytes::from_static(b"\x00\x01").into(),
            HeaderValue::Timestamp(1_767_323_045),
        ];
        values.push(values.clone().into());
        let nested: Headers = values
            .iter()
            .enumerate()
            .map(|(number, value)| (format!("v-{number}"), value.clone()))
            .collect();
        values.push(nested.into());
        values.push(Headers::new().into());
        values.push(Vec::new().into());
        let mut channel = subscribe(&link, &queue, 1).await;
        for value in values {
            let mut out = message("", &queue, "m-1");
            out.properties.headers = Headers::from([("h".to_owned(), value)]);
            verdict(send(&link, out.clone())).await.unwrap();
            let ConsumeEvent::Delivery(delivery) = next(&mut channel).await else {
                panic!("ended: {out:?}")
            };
            assert_eq!(delivery.properties, out.properties);
            channel.settler().ack(delivery.tag);
        }
        channel.close().await;
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

/// Sends `poison` between neighbours; gives its error and what the queue held.
async fn between_neighbours(link: &Arc<dyn Link>, queue: &str, poison: Outgoing) -> (Error, u64) {
    let mut before: Vec<_> =
        (0..100).map(|number| send(link, message("", queue, &format!("a-{number}")))).collect();
    let poisoned = send(link, poison);
    let after = (0..100).map(|number| send(link, message("", queue, &format!("b-{number}"))));
    before.extend(after.collect::<Vec<_>>());
    for pending in before {
        verdict(pending).await.unwrap();
    }
    match verdict(poisoned).await {
        Err(PublishFailure::Refused(error)) => (error, link.purge_queue(queue).await.unwrap()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_be_seen_to_be_refused_is_never_written() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let queue = declare(&link, Headers::new()).await;
        let plain = message("", &queue, "poison");
        let large = |bytes: usize| HeaderValue::Text("x".repeat(bytes));
        let limit = link.limits().frame_max;
        let header = |name: &str, value: HeaderValue| {
            let mut poison = plain.clone();
            poison.properties.headers = Headers::from([(name.to_owned(), value)]);
            poison
        };
        let long = "x".repeat(256);
        let inner = Headers::from([(long.clone(), true.into())]);
        let mut foreign = plain.clone();
        foreign.properties.user_id = Some("somebody".to_owned());
        let mut kind = plain.clone();
        kind.properties.message_type = Some("😀".repeat(64));
        let body = Bytes::from(vec![0; link.limits().body_max + 1]);
        let poisons = [
            (Outgoing { routing_key: long.clone(), ..plain.clone() }, ErrorKind::TooLarge),
            (Outgoing { exchange: long.clone(), ..plain.clone() }, ErrorKind::TooLarge),
            (kind, ErrorKind::TooLarge),
            (header(&long, true.into()), ErrorKind::TooLarge),
            (header("table", vec![inner.into()].into()), ErrorKind::TooLarge),
            (header("large", large(limit)), ErrorKind::TooLarge),
            (Outgoing { body, ..plain.clone() }, ErrorKind::TooLarge),
            (foreign, ErrorKind::Refused),
        ];
        for (poison, kind) in poisons {
            let (error, held) = between_neighbours(&link, &queue, poison).await;
            assert_eq!(error.kind(), kind, "{error:?}");
            assert_eq!(error.message_id(), Some("poison"));
            assert_eq!(held, 200, "{error}");
        }
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_table_that_just_fits_a_frame_goes_out() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let queue = declare(&link, Headers::new()).await;
        let mut out = message("", &queue, "m-1");
        let header = |bytes: usize| {
            Headers::from([("large".to_owned(), HeaderValue::Text("x".repeat(bytes)))])
        };
        let mut bytes = link.limits().frame_max;
        let accepted = loop {
            out.properties.headers = header(bytes);
            match verdict(send(&link, out.clone())).await {
                Ok(()) => break bytes,
                Err(PublishFailure::Refused(error)) => {
                    assert_eq!(error.kind(), ErrorKind::TooLarge);
                    bytes -= 1;
                }
                Err(other) => panic!("{other:?}"),
            }
        };
        assert!(accepted > link.limits().frame_max - 100);
        assert_eq!(link.purge_queue(&queue).await.unwrap(), 1);
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_broker_sees_is_refused_and_its_neighbours_go_out() {
    for (_, url) in testkit::brokers() {
        let transport = AmqpTransport::new(&url).unwrap();
        let body_max = Some(usize::MAX);
        let link = transport.dial(DialOptions { body_max, ..options() }).await.unwrap();
        let queue = declare(&link, Headers::new()).await;
        let internal = ExchangeSpec {
            name: testkit::unique("internal"),
            kind: ExchangeKind::Fanout,
            durable: false,
            auto_delete: false,
            internal: true,
            arguments: Headers::new(),
        };
        link.declare_exchange(&internal).await.unwrap();
        let forbidden = message(&internal.name, &queue, "poison");
        let mut expiration = message("", &queue, "poison");
        expiration.properties.expiration = Some("soon".to_owned());
        let body = Bytes::from(vec![0; 128 * 1024 * 1024 + 1]);
        let large = Outgoing { body, ..message("", &queue, "poison") };
        for (poison, kind) in [
            (forbidden, ErrorKind::Refused),
            (expiration, ErrorKind::Config),
            (large, ErrorKind::TooLarge),
        ] {
            let (error, held) = between_neighbours(&link, &queue, poison).await;
            assert_eq!(error.kind(), kind, "{error:?}");
            assert_eq!(error.message_id(), Some("poison"));
            // Those in flight may have been there already.
            assert!((200..=400).contains(&held), "{held}: {error}");
        }
        link.delete_exchange(&internal.name).await.unwrap();
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_and_large_bodies_arrive_as_they_are() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let queue = declare(&link, Headers::new()).await;
        let mut channel = subscribe(&link, &queue, 1).await;
        for bytes in [0, 1, 131_063, 131_064, 131_065, 1_000_000] {
            let body = Bytes::from(vec![7; bytes]);
            verdict(send(&link, Outgoing { body: body.clone(), ..message("", &queue, "m") }))
                .await
                .unwrap();
            let ConsumeEvent::Delivery(delivery) = next(&mut channel).await else {
                panic!("ended")
            };
            assert_eq!(delivery.body, body);
            channel.settler().ack(delivery.tag);
        }
        channel.close().await;
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_full_rejects() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let full = Headers::from([
            ("x-max-length".to_owned(), HeaderValue::I32(1)),
            ("x-overflow".to_owned(), "reject-publish".into()),
        ]);
        let queue = declare(&link, full).await;
        verdict(send(&link, message("", &queue, "m-1"))).await.unwrap();
        let rejected = verdict(send(&link, message("", &queue, "m-2"))).await;
        assert!(matches!(rejected, Err(PublishFailure::Rejected)), "{rejected:?}");
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_tasks_messages_keep_their_order() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let queue = declare(&link, Headers::new()).await;
        let exchange = fanout(&link, &queue).await;
        let verdicts: Vec<_> = (0..2000)
            .map(|number| send(&link, message(&exchange, &queue, &format!("{number}"))))
            .collect();
        for pending in verdicts {
            verdict(pending).await.unwrap();
        }
        let mut channel = subscribe(&link, &queue, 0).await;
        for number in 0..2000 {
            let ConsumeEvent::Delivery(delivery) = next(&mut channel).await else {
                panic!("ended")
            };
            assert_eq!(delivery.properties.message_id, Some(number.to_string()));
        }
        drop(channel);
        link.delete_exchange(&exchange).await.unwrap();
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}
