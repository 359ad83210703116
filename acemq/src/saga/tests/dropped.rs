//! A run that nobody waits for any more.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
};

use testkit::eventually;
use tokio::sync::Notify;

use super::*;
use crate::{connection::connect, consume::Message, topology::Queue, transport::BoxFuture};

type Made = Result<u32, HandlerError>;

const SOON: Duration = Duration::from_secs(30);

/// Polls a run so often, and gives its result if that was enough.
pub(super) async fn polled<T>(run: &mut RunSaga<T>, times: usize) -> Option<SagaResult<T>> {
    let mut left = times;
    poll_fn(|cx| {
        let Some(after) = left.checked_sub(1) else { return Poll::Ready(None) };
        left = after;
        match Pin::new(&mut *run).poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            // Right where it waits, and not when it could go on.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A step that ends when it is let to.
fn held(
    trace: &Trace,
    what: &'static str,
) -> (impl Fn(u32) -> BoxFuture<'static, Made> + use<>, Arc<Notify>) {
    let go_on = Arc::new(Notify::new());
    let (trace, let_go) = (trace.clone(), Arc::clone(&go_on));
    let step = move |given: u32| {
        let (trace, go_on) = (trace.clone(), Arc::clone(&go_on));
        let held = async move {
            trace.note(format!("{what} begins"));
            go_on.notified().await;
            trace.note(format!("{what} ends"));
            Ok(given + 1)
        };
        Box::pin(held) as BoxFuture<'static, Made>
    };
    (step, let_go)
}

#[tokio::test]
async fn a_dropped_run_lets_the_step_in_hand_end_and_undoes_what_was_done() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let trace = Trace::default();
    let (reserve, go_on) = held(&trace, "reserve");
    let saga = Saga::named("place-order")
        .step("pay", noted(&trace, "pay"))
        .compensate_with(undone(&trace, "refund"))
        .step("reserve", reserve)
        .compensate_with(undone(&trace, "release"))
        .step("book", noted(&trace, "book"))
        .build()
        .unwrap();
    let mut run = saga.run(1);
    assert!(polled(&mut run, 1).await.is_none());
    drop(run);
    // Nothing is undone while it is not known whether the step succeeds.
    let mut drained = pin!(saga.drain());
    for _ in 0..10 {
        assert!(futures_util::poll!(drained.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(trace.all(), ["pay 1", "reserve begins"]);
    go_on.notify_one();
    drained.await;
    assert_eq!(trace.all(), ["pay 1", "reserve begins", "reserve ends", "release 3", "refund 2"]);
    assert_eq!(log.lines_with(&["WARN", "saga=place-order", "step=book"]).len(), 1);
}

#[tokio::test]
async fn a_run_that_is_dropped_in_its_last_step_is_complete_if_that_succeeds() {
    let trace = Trace::default();
    let (book, go_on) = held(&trace, "book");
    let saga = Saga::named("s")
        .step("pay", noted(&trace, "pay"))
        .compensate_with(undone(&trace, "refund"))
        .step("book", book)
        .build()
        .unwrap();
    let mut run = saga.run(1);
    assert!(polled(&mut run, 1).await.is_none());
    drop(run);
    go_on.notify_one();
    saga.drain().await;
    assert_eq!(trace.all(), ["pay 1", "book begins", "book ends"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_between_two_attempts_makes_no_other() {
    let trace = Trace::default();
    let counted = trace.clone();
    let saga = Saga::named("s")
        .step("pay", noted(&trace, "pay"))
        .compensate_with(undone(&trace, "refund"))
        .step("book", move |given| {
            counted.note("book");
            fails(given)
        })
        .retry(RetryPolicy::fixed(5, Duration::from_secs(60)))
        .build()
        .unwrap();
    let began = Instant::now();
    let limit = Duration::from_secs(90);
    assert!(tokio::time::timeout(limit, saga.run(1)).await.is_err());
    saga.drain().await;
    assert_eq!(trace.all(), ["pay 1", "book", "book", "refund 2"]);
    assert_eq!(began.elapsed().as_secs(), 90);
}

#[tokio::test]
async fn a_run_that_is_dropped_while_it_compensates_goes_on_with_it() {
    let trace = Trace::default();
    let (release, go_on) = held(&trace, "release");
    let saga = Saga::named("s")
        .step("pay", noted(&trace, "pay"))
        .compensate_with(undone(&trace, "refund"))
        .step("reserve", noted(&trace, "reserve"))
        .compensate_with(move |given| {
            let released = release(given);
            async move { released.await.map(drop) }
        })
        .step("book", fails)
        .build()
        .unwrap();
    let mut run = saga.run(1);
    assert!(polled(&mut run, 1).await.is_none());
    drop((run, saga.clone()));
    go_on.notify_one();
    saga.drain().await;
    assert_eq!(trace.all(), ["pay 1", "reserve 2", "release begins", "release ends", "refund 2"]);
}

#[tokio::test]
async fn a_run_that_nobody_has_awaited_does_nothing() {
    let trace = Trace::default();
    let saga = Saga::named("s").step("pay", noted(&trace, "pay")).build().unwrap();
    drop(saga.run(1));
    saga.drain().await;
    assert!(trace.all().is_empty());
}

#[test]
fn a_run_that_the_end_of_its_runtime_cuts_off_says_what_it_leaves() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let trace = Trace::default();
    let saga = Saga::named("place-order")
        .step("pay", noted(&trace, "pay"))
        .compensate_with(undone(&trace, "refund"))
        .step("look", noted(&trace, "look"))
        .step("book", hangs::<u32>)
        .build()
        .unwrap();
    runtime.block_on(async {
        let run = tokio::spawn(saga.run(1));
        while trace.count("look") == 0 {
            tokio::task::yield_now().await;
        }
        drop(run);
    });
    drop(runtime);
    assert_eq!(log.lines_with(&["ERROR", "saga=place-order", "steps=\"book, pay\""]).len(), 1);
}

#[tokio::test]
async fn a_handler_that_is_stopped_leaves_no_half_a_saga() {
    let trace = Trace::default();
    let (book, go_on) = held(&trace, "book");
    let saga = Saga::named("s")
        .step("pay", noted(&trace, "pay"))
        .compensate_with(undone(&trace, "refund"))
        .step("book", book)
        .step("tell", noted(&trace, "tell"))
        .build()
        .unwrap();
    let mq = connect("memory://saga-in-a-handler").await.unwrap();
    mq.declare_queue(&Queue::new("orders").dead_letters()).await.unwrap();
    let booking = saga.clone();
    let consumer = mq
        .consumer::<u32>("orders")
        .handler_timeout(Duration::from_millis(50))
        .start(move |order: Message<u32>| {
            let run = booking.run(order.into_payload());
            async move { run.await.into_result().map(drop).map_err(StepFailure::into_handler_error) }
        })
        .await
        .unwrap();
    mq.send_to_queue("orders", &1u32).await.unwrap();
    eventually("it is dead-lettered", SOON, async || consumer.counters().dead_lettered == 1).await;
    go_on.notify_one();
    saga.drain().await;
    assert_eq!(trace.all(), ["pay 1", "book begins", "book ends", "refund 2"]);
    mq.close().await.unwrap();
}
