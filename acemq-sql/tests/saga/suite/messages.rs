use acemq::{
    Envelope, Message, OutboxRecord, OutboxRelay, OutboxStore as _, Queue, ReplyOutcome, SagaStore,
};
use testkit::unique;

use super::*;

fn room_wanted(queue: &str, given: u32) -> Result<[OutboxRecord; 1], HandlerError> {
    let envelope = Envelope::new("room.wanted");
    let record = OutboxRecord::new("", queue, "application/json", given.to_string(), &envelope);
    record.map(|record| [record]).map_err(HandlerError::fatal)
}

fn with_a_room(store: Sagas, queue: &str) -> Numbers {
    let (asking, undoing) = (queue.to_owned(), queue.to_owned());
    Saga::durable("order", store)
        .step("pay", add)
        .step_by_message::<u32, _, _, _>("room", move |given: u32, _| {
            std::future::ready(room_wanted(&asking, given))
        })
        .compensate_by_message(move |given: u32, _| {
            std::future::ready(room_wanted(&undoing, given))
        })
        .step("ship", add)
        .build()
        .unwrap()
}

// promises: SG-12, SG-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_go_out_through_the_relay_and_their_replies_go_on_with_the_saga() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let store = database.sagas().await.outbox(outbox.clone());
    let mq = acemq::connect(format!("memory://{}", unique("trip"))).await.unwrap();
    for queue in ["rooms.wanted", "rooms.booked"] {
        mq.declare_queue(&Queue::new(queue).dead_letters()).await.unwrap();
    }
    // The hotel, which knows nothing of sagas: what it publishes is caused by what it got.
    let booked = mq.publisher::<u32>("", "rooms.booked");
    let hotel = mq
        .consumer::<u32>("rooms.wanted")
        .start(move |wanted: Message<u32>| {
            let booked = booked.clone();
            async move {
                // At once: the answer is there before anybody has drawn breath.
                booked.send(&(wanted.payload() + 10)).caused_by(wanted.envelope()).await?;
                booked.send(&(wanted.payload() + 10)).caused_by(wanted.envelope()).await?;
                Ok::<_, HandlerError>(())
            }
        })
        .await
        .unwrap();
    let saga = with_a_room(store.clone(), "rooms.wanted");
    let answering = saga.clone();
    let (told, mut outcomes) = tokio::sync::mpsc::unbounded_channel();
    let replies = mq
        .consumer::<u32>("rooms.booked")
        .concurrency(4)
        .start(move |room: Message<u32>| {
            let (saga, told) = (answering.clone(), told.clone());
            async move {
                let id =
                    saga.id_in(room.envelope()).ok_or_else(|| HandlerError::fatal("whose?"))?;
                let outcome = saga.reply(id, "room", room.payload()).await?;
                let _ = told.send(outcome);
                Ok::<_, HandlerError>(())
            }
        })
        .await
        .unwrap();
    let relay = OutboxRelay::builder(&mq, outbox).start();
    let worker = saga.worker().start();
    let results = futures(20, |id| {
        let saga = saga.clone();
        async move { saga.run(&format!("o-{id}"), &id).await.unwrap() }
    });
    for (id, result) in results.await.into_iter().enumerate() {
        assert_eq!(result.output(), Some(&(id as u32 + 12)), "{result}");
    }
    let mut counts = (0, 0);
    for _ in 0..40 {
        match tokio::time::timeout(SOON, outcomes.recv()).await.unwrap().unwrap() {
            ReplyOutcome::Continued => counts.0 += 1,
            ReplyOutcome::Duplicate => counts.1 += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(counts, (20, 20));
    worker.close().await.unwrap();
    relay.close().await.unwrap();
    drop((hotel, replies));
    mq.close().await.unwrap();
}

/// Runs so many at once.
async fn futures<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    count: u32,
    run: impl Fn(u32) -> F,
) -> Vec<T> {
    let tasks: Vec<_> = (0..count).map(|n| tokio::spawn(run(n))).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}

// promise: SG-12
#[tokio::test]
async fn a_message_is_in_the_outbox_exactly_if_it_is_written_that_it_is_sent() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let store = database.sagas().await.outbox(outbox.clone());
    let held = insert(&store, "1", LEASE).await;
    let mut write = acemq::SagaWrite::new(SagaStatus::Waiting, "{}", acemq::SagaNext::After(LEASE));
    write.records = vec![crate::support::record("r-1")];
    // By somebody who has lost it.
    let lost = acemq::SagaClaim::new("s/1", "another's");
    assert!(!store.write(&lost, &write).await.unwrap());
    assert_eq!(outbox.pending_count().await.unwrap(), 0);
    assert!(store.write(&held.claim, &write).await.unwrap());
    assert_eq!(outbox.pending_count().await.unwrap(), 1);

    // Where the record cannot be added, the state is not written either.
    let held = insert(&store, "2", LEASE).await;
    database.execute("DROP TABLE acemq_outbox").await;
    store.write(&held.claim, &write).await.unwrap_err();
    let found = store.find("s/2").await.unwrap().unwrap();
    assert_eq!((found.status, found.is_held), (SagaStatus::Running, true));
}
