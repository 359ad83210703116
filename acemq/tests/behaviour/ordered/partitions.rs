//! Partitions: names, numbers, and the way in and out.

use std::collections::BTreeSet;

use acemq::{ErrorKind, Exchange, HeaderValue, Message, Queue, Topology, testing::MemoryBroker};
use testkit::eventually;

use super::{Log, key_of, partitions_of, payload};
use crate::{consumer::bench::SOON, on_every_broker};

on_every_broker! {
    // promise: OR-3
    async fn each_key_has_one_partition_and_each_partition_is_handled_in_order(broker: Broker) {
        let mq = broker.client().await;
        let name = partitions_of(&broker, "orders", 4);
        let orders = mq.partitions(&*name, 4).await.unwrap();
        assert_eq!((orders.name(), orders.count()), (&*name, 4));
        assert_eq!(orders.queue(3), format!("{name}.p3"));
        let publisher = orders.publisher::<String>();
        let keys: Vec<String> = (0..12).map(|key| key.to_string()).collect();
        for number in 0..10 {
            let payloads: Vec<_> = keys.iter().map(|key| payload(key, number)).collect();
            publisher.send_all(keys.iter().map(String::as_str).zip(&payloads)).await.unwrap();
        }
        for partition in 0..4 {
            let expected = keys.iter().filter(|key| orders.of(key) == partition).count() as u64 * 10;
            eventually("they are where they belong", SOON, async || {
                let queue = mq.inspect_queue(&orders.queue(partition)).await.unwrap().unwrap();
                queue.messages == expected
            })
            .await;
        }

        let log = Log::default();
        let handler = {
            let log = log.clone();
            move |message: Message<String>| {
                let log = log.clone();
                async move {
                    assert_eq!(message.routing_key(), message.queue().rsplit('.').next().unwrap());
                    log.handle(message).await
                }
            }
        };
        let consumer = orders.consumer::<String>().start(handler).await.unwrap();
        eventually("all are handled", SOON, async || consumer.counters().acknowledged == 120).await;
        log.in_order(12, 10);
        let at_once = log.most_at_once();
        assert!((2..=4).contains(&at_once), "{at_once} partitions at once");
        assert_eq!(consumer.partition(0).unwrap().queue(), format!("{name}.p0"));
        assert!(consumer.partition(4).is_none());
        consumer.close().await.unwrap();
        mq.delete_exchange(&name).await.unwrap();
        mq.close().await.unwrap();
    }

    // promise: OR-3
    async fn an_empty_key_is_a_key_as_any_other(broker: Broker) {
        let mq = broker.client().await;
        let name = partitions_of(&broker, "orders", 4);
        let orders = mq.partitions(&*name, 4).await.unwrap();
        // As the family's hash has it.
        assert_eq!(orders.of(""), 1);
        let publisher = orders.publisher::<String>().message_type("order.placed").version(2);
        for number in 0..3 {
            publisher.send("", &payload("", number)).await.unwrap();
        }
        let log = Log::default();
        let handler = {
            let log = log.clone();
            move |message: Message<String>| {
                assert_eq!(message.envelope().message_type(), "order.placed");
                assert_eq!(message.envelope().version(), 2);
                log.clone().handle(message)
            }
        };
        let consumer = orders.consumer::<String>().start(handler).await.unwrap();
        eventually("all are handled", SOON, async || consumer.counters().acknowledged == 3).await;
        assert_eq!(log.numbers(""), [0, 1, 2]);
        assert_eq!(consumer.partition(1).unwrap().counters().acknowledged, 3);
        mq.delete_exchange(&name).await.unwrap();
        mq.close().await.unwrap();
    }

    // promise: OR-5
    async fn another_number_of_partitions_than_there_are_is_refused(broker: Broker) {
        let mq = broker.client().await;
        let name = partitions_of(&broker, "orders", 16);
        let _ = mq.partitions(&*name, 8).await.unwrap();
        let _ = mq.partitions(&*name, 8).await.unwrap();
        for other in [1, 2, 4, 16, 1_024] {
            for declares in [true, false] {
                let error = mq.partitions(&*name, other).declare(declares).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Conflict);
                let conflict = error.conflict().unwrap();
                assert_eq!((&*conflict.declared, &*conflict.existing), (&*other.to_string(), "8"));
                assert!(error.to_string().contains("there are 8"), "{error}");
            }
        }
        assert!(mq.inspect_queue(&format!("{name}.p8")).await.unwrap().is_none());
        mq.delete_exchange(&name).await.unwrap();
        mq.close().await.unwrap();
    }

    // promise: OR-5
    async fn of_two_numbers_that_are_asked_for_at_the_same_moment_one_is_refused(broker: Broker) {
        let clients = [broker.client().await, broker.client().await];
        for _ in 0..5 {
            let name = partitions_of(&broker, "orders", 16);
            // Two processes with two replicas of each number.
            let declares = (0..8).map(|turn| {
                let (client, count) = (&clients[turn % 2], [8, 16][turn / 2 % 2]);
                let name = name.clone();
                async move { (count, client.partitions(name, count).await) }
            });
            let declared = futures_util::future::join_all(declares).await;
            let numbers: BTreeSet<u32> =
                declared.iter().filter(|(_, one)| one.is_ok()).map(|(count, _)| *count).collect();
            let [number] = Vec::from_iter(numbers)[..] else { panic!("{declared:?}") };
            for (count, one) in declared {
                assert_eq!(one.is_ok(), count == number, "{one:?}");
                let Err(error) = one else { continue };
                assert_eq!(error.kind(), ErrorKind::Conflict);
                let conflict = error.conflict().unwrap();
                let expected = [count, number].map(|number| number.to_string());
                assert_eq!([&conflict.declared, &conflict.existing], [&expected[0], &expected[1]]);
            }
            let ninth = clients[0].inspect_queue(&format!("{name}.p8")).await.unwrap();
            assert_eq!(ninth.is_some(), number == 16, "the refused one has declared something");
            clients[0].delete_exchange(&name).await.unwrap();
        }
        for client in clients {
            client.close().await.unwrap();
        }
    }

    // promise: OR-5
    async fn what_a_killed_process_has_declared_says_how_many_there_were_to_be(broker: Broker) {
        let mq = broker.client().await;
        let name = partitions_of(&broker, "orders", 8);
        let orders = mq.partitions(&*name, 8).await.unwrap();
        for partition in [0, 3, 4] {
            mq.delete_queue(&orders.queue(partition)).await.unwrap();
        }
        for other in [1, 2, 4, 16] {
            let error = mq.partitions(&*name, other).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
            assert_eq!(error.conflict().unwrap().existing, "8");
            assert!(error.to_string().contains("take 8"), "{error}");
        }
        let missing = mq.partitions(&*name, 8).declare(false).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        // Who may not declare cannot ask the queue that says it.
        let error = mq.partitions(&*name, 2).declare(false).await.unwrap_err();
        assert_eq!(error.conflict().unwrap().existing, "more than 2");
        let _ = mq.partitions(&*name, 8).await.unwrap();
        mq.delete_exchange(&name).await.unwrap();
        mq.close().await.unwrap();
    }

    // promise: OR-5
    async fn another_number_that_another_language_has_declared_is_refused_and_leaves_nothing(broker: Broker) {
        let mq = broker.client().await;
        let name = partitions_of(&broker, "orders", 4);
        for partition in 0..4 {
            mq.declare_queue(&Queue::new(format!("{name}.p{partition}"))).await.unwrap();
        }
        for other in [2, 8] {
            let error = mq.partitions(&*name, other).await.unwrap_err();
            assert_eq!(error.conflict().unwrap().existing, "4");
        }
        let _ = mq.partitions(&*name, 4).await.unwrap();
        // It may also come later, and with more.
        mq.declare_queue(&Queue::new(format!("{name}.p4"))).await.unwrap();
        let error = mq.partitions(&*name, 4).await.unwrap_err();
        assert_eq!(error.conflict().unwrap().existing, "5");
        mq.delete_queue(&format!("{name}.p4")).await.unwrap();
        mq.delete_exchange(&name).await.unwrap();
        mq.close().await.unwrap();
    }

    async fn partitions_that_were_declared_half_are_completed(broker: Broker) {
        let mq = broker.client().await;
        let name = partitions_of(&broker, "orders", 4);
        let missing = mq.partitions(&*name, 4).declare(false).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let orders = mq.partitions(&*name, 4).await.unwrap();
        // As where the process was killed on the way: the first comes last.
        for partition in [0, 2] {
            mq.delete_queue(&orders.queue(partition)).await.unwrap();
        }
        let orders = mq.partitions(&*name, 4).await.unwrap();
        for partition in 0..4 {
            assert!(mq.inspect_queue(&orders.queue(partition)).await.unwrap().is_some());
        }
        let keys: Vec<String> = (0..20).map(|key| key.to_string()).collect();
        let used: BTreeSet<u32> = keys.iter().map(|key| orders.of(key)).collect();
        assert_eq!(used.len(), 4);
        let sent = keys.iter().map(|key| (&**key, key));
        orders.publisher::<String>().send_all(sent).await.unwrap();
        let _ = mq.partitions(&*name, 4).declare(false).await.unwrap();
        mq.delete_exchange(&name).await.unwrap();
        mq.close().await.unwrap();
    }

    // promise: OR-3
    async fn queues_that_another_language_has_declared_are_used_as_they_are(broker: Broker) {
        let mq = broker.client().await;
        let name = partitions_of(&broker, "orders", 2);
        let topology = Topology::new()
            .exchange(Exchange::direct(&*name))
            .queue(Queue::new(format!("{name}.p0")))
            .queue(Queue::new(format!("{name}.p1")))
            .bind(format!("{name}.p0"), &*name, "p0")
            .bind(format!("{name}.p1"), &*name, "p1");
        mq.declare(&topology).await.unwrap();
        for shared in [false, true] {
            let partitions = mq.partitions(&*name, 2);
            let partitions = if shared { partitions.shared_with_family() } else { partitions };
            let orders = partitions.await.unwrap();
            orders.publisher::<String>().send("k", &payload("k", 0)).await.unwrap();
        }
        for partition in 0..2 {
            mq.delete_queue(&format!("{name}.p{partition}")).await.unwrap();
        }
        // And the other way about: what we declare for the family is what Java declares.
        let _ = mq.partitions(&*name, 2).shared_with_family().await.unwrap();
        mq.declare(&topology).await.unwrap();
        mq.delete_exchange(&name).await.unwrap();
        mq.close().await.unwrap();
    }
}

// promise: OR-5
#[tokio::test]
async fn numbers_that_languages_would_not_agree_on_are_refused_unless_it_is_said() {
    let mq = acemq::connect(MemoryBroker::new().url()).await.unwrap();
    for (name, count, said) in [
        ("orders", 3, "no power of two"),
        ("orders", 1_000, "take 1024"),
        ("orders", 0, "from 1 to 1024"),
        ("orders", 1_025, "from 1 to 1024"),
        ("", 4, "no name"),
    ] {
        let error = mq.partitions(name, count).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(said), "{error}");
    }
    let three = mq.partitions("orders", 3).rust_only().await.unwrap();
    assert_eq!((three.count(), three.of("order-1")), (3, 1));
    let one = mq.partitions("alone", 1).await.unwrap();
    assert_eq!(one.of("anything"), 0);
    mq.close().await.unwrap();
}

#[tokio::test]
async fn a_record_for_the_outbox_goes_to_the_partition_of_its_key() {
    let mq = acemq::connect(MemoryBroker::new().url()).await.unwrap();
    let orders = mq.partitions("orders", 8).await.unwrap();
    let publisher = orders.publisher::<String>();
    let payload = payload("customer-42", 1);
    let record =
        publisher.record("customer-42", &payload).header("x-tenant", "acme").await.unwrap();
    assert_eq!((record.exchange(), record.routing_key()), ("orders", "p6"));
    assert_eq!(record.headers()["x-acemq-type"], HeaderValue::from("orders"));
    assert_eq!(key_of(&payload), "customer-42");
    mq.close().await.unwrap();
}
