use super::{store::Down, *};
use crate::{
    envelope::Envelope,
    outbox::{MemoryOutboxStore, OutboxRecord, OutboxStore as _},
};

/// What a step asks somebody else for.
fn asking(
    trace: &Trace,
) -> impl Fn(u32, StepContext) -> std::future::Ready<Result<[OutboxRecord; 1], HandlerError>> + use<>
{
    let trace = trace.clone();
    move |given, step| {
        trace.note(format!("ask {} {given} #{}", step.step(), step.attempt()));
        let envelope = Envelope::new("room.wanted");
        let record = OutboxRecord::new("", "rooms", "text/plain", given.to_string(), &envelope);
        std::future::ready(record.map(|record| [record]).map_err(HandlerError::fatal))
    }
}

/// Pay, ask for a room by message, ship.
fn with_a_room<S: SagaStore>(store: S, trace: &Trace, retry: RetryPolicy) -> Numbers<S> {
    Saga::durable("trip", store)
        .step("pay", noted(trace))
        .compensate_with(undone(trace))
        .step_by_message::<u32, _, _, _>("room", asking(trace))
        .timeout(60 * SECOND)
        .retry(retry)
        .compensate_by_message(asking(trace))
        .when_in_doubt_by_message(asking(trace))
        .step("ship", noted(trace))
        .build()
        .unwrap()
}

async fn waiting<S: SagaStore>(saga: &Numbers<S>) -> SagaWorker {
    let _ = saga.start("t-1", &1).await.unwrap();
    let worker = saga.worker().start();
    until(saga, "t-1", SagaStatus::Waiting).await;
    worker
}

// promise: SG-12
#[tokio::test(start_paused = true)]
async fn a_message_goes_out_with_the_state_and_its_reply_goes_on_with_the_instance() {
    let (outbox, trace) = (MemoryOutboxStore::new(), Trace::default());
    let saga = with_a_room(Spy::sending(&outbox), &trace, RetryPolicy::none());
    let worker = waiting(&saga).await;
    let instance = saga.instances().find("t-1").await.unwrap().unwrap();
    assert!(!instance.is_held, "nobody holds what waits");
    let sent = outbox.claim_batch(9, LEASE).await.unwrap();
    let [record] = &*sent else { panic!("{sent:?}") };
    let headers = record.content().unwrap().headers();
    assert_eq!(headers["x-acemq-correlation"].as_str(), Some("trip/t-1"));
    assert_eq!(headers["acemq-saga-step"].as_str(), Some("room"));

    let reply = Envelope::new("room.booked").with_correlation_id("trip/t-1");
    assert_eq!(saga.id_in(&reply), Some("t-1"));
    assert_eq!(saga.id_in(&Envelope::new("other")), None);
    assert_eq!(saga.reply("t-1", "room", &41).await.unwrap(), ReplyOutcome::Continued);
    until(&saga, "t-1", SagaStatus::Completed).await;
    assert_eq!(trace.all(), ["pay 1 #1", "ask room 2 #1", "ship 41 #1"]);
    assert_eq!(saga.run("t-1", &1).await.unwrap().output(), Some(&42));
    worker.close().await.unwrap();
}

// promise: SG-13
#[tokio::test(start_paused = true)]
async fn duplicate_late_early_and_strange_replies_are_ignored_and_told() {
    let (outbox, trace) = (MemoryOutboxStore::new(), Trace::default());
    let saga = with_a_room(Spy::sending(&outbox), &trace, RetryPolicy::none());
    let (log, _guard) = testkit::logs::of_this_thread();
    // Nobody drives it yet.
    let _ = saga.start("t-1", &1).await.unwrap();
    let early = saga.reply("t-1", "room", &7).await.unwrap();
    assert_eq!(early, ReplyOutcome::NotAwaited);
    assert_eq!(saga.reply("t-2", "room", &7).await.unwrap(), ReplyOutcome::Unknown);
    assert_eq!(saga.reply("t-1", "pay", &7).await.unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(saga.reply("t-1", "rum", &7).await.unwrap_err().kind(), ErrorKind::Config);
    let wrong = saga.reply("t-1", "room", "a suite").await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Decode);

    let _worker = waiting(&saga).await;
    assert_eq!(saga.reply("t-1", "room", &7).await.unwrap(), ReplyOutcome::Continued);
    assert_eq!(saga.reply("t-1", "room", &8).await.unwrap(), ReplyOutcome::Duplicate);
    until(&saga, "t-1", SagaStatus::Completed).await;
    assert_eq!(saga.reply("t-1", "room", &9).await.unwrap(), ReplyOutcome::Duplicate);
    assert_eq!(saga.reply_failed("t-1", "room", "no").await.unwrap(), ReplyOutcome::Duplicate);
    assert_eq!(trace.all().last().unwrap(), "ship 7 #1");
    assert_eq!(log.lines_with(&["answered before", "t-1"]).len(), 3);
    assert_eq!(log.lines_with(&["WARN", "for no saga there is", "t-2"]).len(), 1);
}

// promise: SG-13
#[tokio::test(start_paused = true)]
async fn a_reply_after_the_timeout_is_ignored_while_the_doubt_is_seen_to() {
    let (outbox, trace) = (MemoryOutboxStore::new(), Trace::default());
    let saga = with_a_room(Spy::sending(&outbox), &trace, RetryPolicy::none());
    let (log, _guard) = testkit::logs::of_this_thread();
    let _worker = waiting(&saga).await;
    tokio::time::sleep(61 * SECOND).await;
    let instance = until(&saga, "t-1", SagaStatus::Compensated).await;
    assert_eq!(saga.reply("t-1", "room", &7).await.unwrap(), ReplyOutcome::Late);
    assert_eq!(log.lines_with(&["WARN", "given up on the step", "t-1"]).len(), 1);
    // Asked for, and asked once more since nobody knows; then the payment goes back.
    assert_eq!(trace.all(), ["pay 1 #1", "ask room 2 #1", "ask room 2 #1", "undo pay 2 #1"]);
    let room = instance.step("room").unwrap();
    assert!(room.is_in_doubt && room.status == SagaStepStatus::Compensated, "{room:?}");
    assert!(room.attempts.failure.as_deref().unwrap().contains("no reply came within 60s"));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_not_answered_is_sent_again_and_either_reply_counts() {
    let (outbox, trace) = (MemoryOutboxStore::new(), Trace::default());
    let retry = RetryPolicy::fixed(2, 10 * SECOND);
    let saga = with_a_room(Spy::sending(&outbox), &trace, retry);
    let _worker = waiting(&saga).await;
    tokio::time::sleep(65 * SECOND).await;
    // Late for the first message, before the second has gone out.
    assert_eq!(outbox.pending_count().await.unwrap(), 1);
    assert_eq!(saga.reply("t-1", "room", &7).await.unwrap(), ReplyOutcome::Continued);
    until(&saga, "t-1", SagaStatus::Completed).await;

    let saga = with_a_room(Spy::sending(&outbox), &trace, RetryPolicy::fixed(2, 10 * SECOND));
    let _worker = waiting(&saga).await;
    tokio::time::sleep(75 * SECOND).await;
    assert_eq!(trace.count("ask room 2 #2"), 1);
    assert_eq!(saga.reply("t-1", "room", &8).await.unwrap(), ReplyOutcome::Continued);
    until(&saga, "t-1", SagaStatus::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_says_no_fails_the_step_and_leaves_no_doubt() {
    let (outbox, trace) = (MemoryOutboxStore::new(), Trace::default());
    let saga = with_a_room(Spy::sending(&outbox), &trace, RetryPolicy::fixed(5, SECOND));
    let running = saga.run("t-1", &1);
    let answering = async {
        until(&saga, "t-1", SagaStatus::Waiting).await;
        saga.reply_failed("t-1", "room", "all are taken").await
    };
    let (result, outcome) = tokio::join!(running, answering);
    assert_eq!(outcome.unwrap(), ReplyOutcome::Continued);
    let result = result.unwrap();
    let failure = result.failure().unwrap();
    assert_eq!((failure.step(), failure.reason()), ("room", "all are taken".to_owned()));
    assert!(!failure.is_in_doubt() && failure.is_fatal() && !result.needs_attention());
    assert_eq!(trace.all(), ["pay 1 #1", "ask room 2 #1", "undo pay 2 #1"]);
}

// promise: SG-13
#[tokio::test(start_paused = true)]
async fn of_replies_at_the_same_instant_one_wins() {
    for _ in 0..20 {
        let (outbox, trace) = (MemoryOutboxStore::new(), Trace::default());
        let saga = with_a_room(Spy::sending(&outbox), &trace, RetryPolicy::none());
        let _worker = waiting(&saga).await;
        let replies = (0..8).map(|n| {
            let saga = saga.clone();
            tokio::spawn(async move { saga.reply("t-1", "room", &(100 + n)).await.unwrap() })
        });
        let mut outcomes = Vec::new();
        for reply in replies.collect::<Vec<_>>() {
            outcomes.push(reply.await.unwrap());
        }
        let continued = outcomes.iter().filter(|it| **it == ReplyOutcome::Continued).count();
        let duplicates = outcomes.iter().filter(|it| **it == ReplyOutcome::Duplicate).count();
        assert_eq!((continued, duplicates), (1, 7));
        until(&saga, "t-1", SagaStatus::Completed).await;
        assert_eq!(trace.count("ship"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_write_was_not_answered_goes_out_once() {
    let (outbox, trace) = (MemoryOutboxStore::new(), Trace::default());
    let store = Spy::sending(&outbox);
    let deaf = store.clone();
    let asks = asking(&trace);
    let saga = Saga::durable("trip", store)
        .step_by_message::<u32, _, _, _>("room", move |given, step| {
            deaf.is(Down::Deaf);
            asks(given, step)
        })
        .build()
        .unwrap();
    let _worker = waiting(&saga).await;
    assert_eq!(saga.reply("t-1", "room", &7).await.unwrap(), ReplyOutcome::Continued);
    assert_eq!(outbox.pending_count().await.unwrap(), 1);
    assert_eq!(trace.all(), ["ask room 1 #1"]);
}

// promise: SG-9
#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_saga_ends_its_wait_for_a_reply() {
    let (outbox, trace) = (MemoryOutboxStore::new(), Trace::default());
    let saga = Saga::durable("trip", Spy::sending(&outbox))
        .deadline(10 * SECOND)
        .step_by_message::<u32, _, _, _>("room", asking(&trace))
        .timeout(3_600 * SECOND)
        .retry(RetryPolicy::fixed(5, SECOND))
        .build()
        .unwrap();
    let _worker = waiting(&saga).await;
    tokio::time::sleep(11 * SECOND).await;
    let instance = until(&saga, "t-1", SagaStatus::Unresolved).await;
    let room = instance.step("room").unwrap();
    assert!(room.attempts.failure.as_deref().unwrap().contains("deadline"), "{room:?}");
    assert_eq!(saga.reply("t-1", "room", &7).await.unwrap(), ReplyOutcome::Late);
}
