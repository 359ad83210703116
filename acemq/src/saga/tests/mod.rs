use std::{
    error::Error as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use super::*;
use crate::{consume::HandlerError, error::ErrorKind, retry::RetryPolicy};

mod dropped;
mod failures;
mod model;
mod settings;

/// What happened, in its order.
#[derive(Clone, Default)]
struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self, what: &str) -> usize {
        self.all().iter().filter(|noted| noted.starts_with(what)).count()
    }
}

/// A step that succeeds and is noted, and makes one more than it was given.
fn noted(
    trace: &Trace,
    what: &'static str,
) -> impl Fn(u32) -> std::future::Ready<Result<u32, HandlerError>> + use<> {
    let trace = trace.clone();
    move |given| {
        trace.note(format!("{what} {given}"));
        std::future::ready(Ok(given + 1))
    }
}

/// A compensation that succeeds and is noted.
fn undone(
    trace: &Trace,
    what: &'static str,
) -> impl Fn(u32) -> std::future::Ready<Result<(), HandlerError>> + use<> {
    let trace = trace.clone();
    move |given| {
        trace.note(format!("{what} {given}"));
        std::future::ready(Ok(()))
    }
}

async fn fails(_: u32) -> Result<u32, HandlerError> {
    Err(HandlerError::transient("none is free"))
}

async fn hangs<T>(_: u32) -> Result<T, HandlerError> {
    std::future::pending().await
}

fn names(failures: &[StepFailure]) -> Vec<&str> {
    failures.iter().map(StepFailure::step).collect()
}

#[tokio::test]
async fn a_complete_saga_compensates_nothing_and_gives_what_its_last_step_made() {
    let trace = Trace::default();
    let saga = Saga::named("place-order")
        .step("pay", noted(&trace, "pay"))
        .compensate_with(undone(&trace, "refund"))
        .step("book", noted(&trace, "book"))
        .compensate_with(undone(&trace, "cancel"))
        .build()
        .unwrap();
    let result = saga.run(1).await;
    assert!(result.is_complete() && !result.needs_attention());
    assert_eq!((result.output(), result.failed_at()), (Some(&3), None));
    assert_eq!((result.saga(), result.completed().len()), ("place-order", 2));
    assert!(result.compensated().is_empty() && !result.has_unresolved());
    assert_eq!(result.into_result().unwrap(), 3);
    assert_eq!(trace.all(), ["pay 1", "book 2"]);
}

// promise: SG-1
#[tokio::test]
async fn the_finished_steps_are_compensated_last_first_each_given_what_it_made() {
    let trace = Trace::default();
    let saga = Saga::named("place-order")
        .step("pay", noted(&trace, "pay"))
        .compensate_with(undone(&trace, "refund"))
        .step("reserve", noted(&trace, "reserve"))
        .compensate_with(undone(&trace, "release"))
        .step("book", fails)
        .compensate_with(undone(&trace, "cancel"))
        .step("tell", noted(&trace, "tell"))
        .build()
        .unwrap();
    let result = saga.run(1).await;
    // The step that failed has made nothing that could be undone.
    assert_eq!(trace.all(), ["pay 1", "reserve 2", "release 3", "refund 2"]);
    assert!(!result.is_complete() && result.output().is_none());
    assert_eq!(result.failed_at(), Some("book"));
    assert_eq!(result.completed(), ["pay", "reserve"]);
    assert_eq!(result.compensated(), ["reserve", "pay"]);
    assert!(!result.has_unresolved() && !result.needs_attention());
    assert_eq!(result.failure().unwrap().reason(), "none is free");
}

// promises: SG-2, SG-3
#[tokio::test]
async fn a_compensation_that_fails_is_logged_and_listed_and_the_others_still_run() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let trace = Trace::default();
    let saga = Saga::named("place-order")
        .step("pay", noted(&trace, "pay"))
        .compensate_with(undone(&trace, "refund"))
        .step("reserve", noted(&trace, "reserve"))
        .compensate_with(|_| async { Err(std::io::Error::other("the stock is locked").into()) })
        .step("print", noted(&trace, "print"))
        .compensate_with(|_| async { panic!("out of paper") })
        .step("book", fails)
        .build()
        .unwrap();
    let result = saga.run(1).await;
    assert_eq!(trace.all(), ["pay 1", "reserve 2", "print 3", "refund 2"]);
    assert_eq!(result.compensated(), ["pay"]);
    assert_eq!(names(result.unresolved()), ["print", "reserve"]);
    assert!(result.has_unresolved() && result.needs_attention());
    let [print, reserve] = result.unresolved() else { panic!("{result:?}") };
    assert_eq!(print.reason(), "it panicked: out of paper");
    assert_eq!(reserve.reason(), "the stock is locked");
    assert_eq!(reserve.to_string(), "the compensation of \"reserve\" failed after 1 attempt");
    for part in ["the stock is locked", "out of paper"] {
        assert_eq!(log.lines_with(&["ERROR", "place-order", part]).len(), 1, "{part}");
    }
    assert_eq!(
        result.to_string(),
        "saga \"place-order\" failed at \"book\": none is free; compensated: pay; unresolved: \
         print (it panicked: out of paper), reserve (the stock is locked)"
    );
}

// promise: SG-4
#[tokio::test]
async fn a_step_without_a_compensation_is_passed_over() {
    let trace = Trace::default();
    let saga = Saga::named("place-order")
        .step("pay", noted(&trace, "pay"))
        .compensate_with(undone(&trace, "refund"))
        .step("look", noted(&trace, "look"))
        .step("reserve", noted(&trace, "reserve"))
        .compensate_with(undone(&trace, "release"))
        .step("book", fails)
        .build()
        .unwrap();
    let result = saga.run(1).await;
    assert_eq!(trace.all(), ["pay 1", "look 2", "reserve 3", "release 4", "refund 2"]);
    assert_eq!(result.completed(), ["pay", "look", "reserve"]);
    assert_eq!(result.compensated(), ["reserve", "pay"]);
    assert!(!result.needs_attention());
}

#[tokio::test]
async fn a_saga_runs_as_often_as_wanted_and_at_the_same_time() {
    let trace = Trace::default();
    let saga = Saga::named("count").step("one", noted(&trace, "one")).build().unwrap();
    let (first, second) = tokio::join!(saga.run(1), saga.clone().run(5));
    assert_eq!((first.output(), second.output()), (Some(&2), Some(&6)));
    assert_eq!(saga.run(7).await.output(), Some(&8));
}

#[tokio::test]
async fn a_run_is_a_span_and_says_how_it_ended() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let good = Saga::named("good").step("one", |n: u32| async move { Ok(n) }).build().unwrap();
    let bad = Saga::named("bad").step("one", fails).build().unwrap();
    assert!(good.run(1).await.is_complete());
    assert!(!bad.run(1).await.is_complete());
    assert_eq!(log.lines_with(&["close", "saga=good", "outcome=\"completed\""]).len(), 1);
    assert_eq!(log.lines_with(&["close", "saga=bad", "outcome=\"compensated\""]).len(), 1);
    assert_eq!(log.lines_with(&["WARN", "saga=bad", "none is free"]).len(), 1);
}
