//! What is a failure of a step, and how often it is tried.

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

/// A step that fails as told on its first attempts, and then succeeds.
fn scripted<const N: usize>(
    trace: &Trace,
    script: [fn() -> HandlerError; N],
) -> impl Fn(u32) -> std::future::Ready<Result<u32, HandlerError>> + use<N> {
    let trace = trace.clone();
    move |given| {
        let attempt = trace.count("attempt");
        trace.note(format!("attempt, given {given}"));
        std::future::ready(script.get(attempt).map_or(Ok(given + 1), |error| Err(error())))
    }
}

fn transient() -> HandlerError {
    HandlerError::transient("busy")
}

fn fatal() -> HandlerError {
    HandlerError::fatal("declined")
}

#[tokio::test]
async fn a_panic_is_a_failure_with_its_text() {
    fn at_once(_: u32) -> std::future::Ready<Result<u32, HandlerError>> {
        panic!("before its future")
    }
    async fn later(_: u32) -> Result<u32, HandlerError> {
        tokio::task::yield_now().await;
        panic!("on its {}", "way")
    }
    let trace = Trace::default();
    let first = Saga::named("s")
        .step("good", noted(&trace, "good"))
        .compensate_with(undone(&trace, "undo"));
    let result = first.step("bad", at_once).build().unwrap().run(1).await;
    assert_eq!(result.failure().unwrap().reason(), "it panicked: before its future");
    assert_eq!(trace.all(), ["good 1", "undo 2"]);

    let result = Saga::named("s").step("bad", later).build().unwrap().run(1).await;
    let failure = result.failure().unwrap();
    assert_eq!(failure.reason(), "it panicked: on its way");
    assert!(failure.is_in_doubt() && !failure.is_fatal());
}

#[tokio::test]
async fn a_payload_that_panics_when_it_is_copied_is_a_failure_of_its_step() {
    struct Brittle;
    impl Clone for Brittle {
        fn clone(&self) -> Self {
            panic!("brittle")
        }
    }
    let trace = Trace::default();
    let saga = Saga::named("s")
        .step("good", noted(&trace, "good"))
        .compensate_with(undone(&trace, "undo"))
        .step("bad", |_| async { Ok(Brittle) })
        .compensate_with(|_| async { Ok(()) })
        .build()
        .unwrap();
    let result = saga.run(1).await;
    assert_eq!(result.failure().unwrap().reason(), "it panicked: brittle");
    assert_eq!(trace.all(), ["good 1", "undo 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_takes_too_long_has_failed_and_may_have_been_done() {
    let trace = Trace::default();
    let saga = Saga::named("place-order")
        .step("reserve", noted(&trace, "reserve"))
        .compensate_with(undone(&trace, "release"))
        .step("pay", hangs::<u32>)
        .timeout(LIMIT)
        .compensate_with(undone(&trace, "refund"))
        .build()
        .unwrap();
    let began = Instant::now();
    let result = saga.run(1).await;
    assert_eq!(began.elapsed().as_secs(), 5);
    assert_eq!(trace.all(), ["reserve 1", "release 2"]);
    assert!(result.failure().unwrap().is_in_doubt());
    // Nothing is unresolved that was to be undone, and yet somebody has to look.
    assert!(!result.has_unresolved() && result.needs_attention());
    assert_eq!(
        result.to_string(),
        "saga \"place-order\" failed at \"pay\": it took longer than 5s and was stopped (it may \
         have been done all the same); compensated: reserve; unresolved: none"
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_has_thirty_seconds_unless_told_otherwise_and_so_has_its_compensation() {
    let saga = Saga::named("s")
        .step("one", |n: u32| async move { Ok(n) })
        .compensate_with(hangs)
        .step("two", hangs::<u32>)
        .build()
        .unwrap();
    let began = Instant::now();
    let result = saga.run(1).await;
    assert_eq!(began.elapsed().as_secs(), 60);
    assert_eq!(names(result.unresolved()), ["one"]);
    assert!(result.unresolved()[0].is_in_doubt());
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_done_is_undone_first_where_that_is_asked_for() {
    let trace = Trace::default();
    let saga = Saga::named("s")
        .step("reserve", noted(&trace, "reserve"))
        .compensate_with(undone(&trace, "release"))
        .when_in_doubt(undone(&trace, "never"))
        .step("pay", hangs::<u32>)
        .compensate_with(undone(&trace, "never"))
        .when_in_doubt(undone(&trace, "refund if charged"))
        .build()
        .unwrap();
    let result = saga.run(1).await;
    assert_eq!(trace.all(), ["reserve 1", "refund if charged 2", "release 2"]);
    assert_eq!(result.compensated(), ["pay", "reserve"]);
    assert!(!result.needs_attention());

    let failing = Saga::named("s")
        .step("pay", hangs::<u32>)
        .when_in_doubt(|_| async { Err(HandlerError::transient("nobody answers")) })
        .build()
        .unwrap();
    let result = failing.run(1).await;
    assert_eq!(names(result.unresolved()), ["pay"]);
    assert!(result.needs_attention());
}

#[tokio::test]
async fn a_step_that_says_it_has_failed_is_not_in_doubt() {
    let trace = Trace::default();
    let saga = Saga::named("s")
        .step("pay", fails)
        .when_in_doubt(undone(&trace, "refund if charged"))
        .build()
        .unwrap();
    let result = saga.run(1).await;
    assert!(trace.all().is_empty());
    assert!(!result.failure().unwrap().is_in_doubt() && !result.needs_attention());
}

#[tokio::test(start_paused = true)]
async fn a_step_is_in_doubt_when_any_of_its_attempts_is() {
    let trace = Trace::default();
    let counted = trace.clone();
    let saga = Saga::named("s")
        .step("pay", move |_: u32| {
            counted.note("attempt");
            let first = counted.count("attempt") == 1;
            async move {
                if first {
                    std::future::pending::<()>().await;
                }
                Err::<u32, _>(HandlerError::fatal("declined"))
            }
        })
        .retry(RetryPolicy::fixed(3, Duration::ZERO))
        .when_in_doubt(undone(&trace, "refund if charged"))
        .build()
        .unwrap();
    let result = saga.run(1).await;
    let failure = result.failure().unwrap();
    assert_eq!((failure.attempts(), &*failure.reason()), (2, "declined"));
    assert!(failure.is_in_doubt() && failure.is_fatal());
    assert_eq!(result.compensated(), ["pay"]);
}

#[tokio::test(start_paused = true)]
async fn a_step_is_tried_again_with_what_it_was_given_and_waits_as_the_policy_says() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let trace = Trace::default();
    let saga = Saga::named("s")
        .step("one", scripted(&trace, [transient, transient]))
        .retry(RetryPolicy::exponential(3, Duration::from_secs(40), LIMIT * 60).jitter(0.0))
        .build()
        .unwrap();
    let began = Instant::now();
    let result = saga.run(1).await;
    assert_eq!(result.output(), Some(&2));
    assert_eq!(trace.all(), ["attempt, given 1"; 3]);
    // Also a wait that a message would spend in the broker.
    assert_eq!(began.elapsed().as_secs(), 120);
    assert_eq!(log.lines_with(&["INFO", "step=one", "busy", "is tried again"]).len(), 2);
}

#[tokio::test]
async fn a_step_that_keeps_failing_is_given_up_when_its_attempts_are() {
    let trace = Trace::default();
    let saga = Saga::named("s")
        .step("one", scripted(&trace, [transient; 9]))
        .retry(RetryPolicy::fixed(4, Duration::ZERO))
        .build()
        .unwrap();
    let failure = saga.run(1).await.into_result().unwrap_err();
    assert_eq!((failure.attempts(), trace.all().len()), (4, 4));
    assert_eq!(failure.to_string(), "the step \"one\" failed after 4 attempts");
}

#[tokio::test(start_paused = true)]
async fn a_step_is_not_tried_again_once_it_is_too_old() {
    let trace = Trace::default();
    let policy = RetryPolicy::fixed(9, Duration::from_secs(10));
    let saga = Saga::named("s")
        .step("one", scripted(&trace, [transient; 9]))
        .retry(policy.give_up_after(Duration::from_secs(25)))
        .build()
        .unwrap();
    assert_eq!(saga.run(1).await.failure().unwrap().attempts(), 4);
}

#[tokio::test]
async fn a_fatal_failure_is_not_tried_again_and_stays_fatal_for_a_handler() {
    let trace = Trace::default();
    let saga = Saga::named("s")
        .step("pay", scripted(&trace, [fatal; 9]))
        .retry(RetryPolicy::fixed(4, Duration::ZERO))
        .build()
        .unwrap();
    let failure = saga.run(1).await.into_result().unwrap_err();
    assert_eq!((failure.attempts(), trace.all().len()), (1, 1));
    let error = failure.into_handler_error();
    assert!(error.is_fatal());
    assert_eq!(error.to_string(), "the step \"pay\" failed after 1 attempt: declined");

    let saga = Saga::named("s").step("book", fails).build().unwrap();
    let failure = saga.run(1).await.into_result().unwrap_err();
    assert!(!failure.into_handler_error().is_fatal());
}

#[tokio::test]
async fn a_failure_gives_the_error_that_the_step_returned() {
    let saga = Saga::named("s")
        .step("one", |_: u32| async { Ok(std::fs::metadata("/does/not/exist").map(drop)?) })
        .build()
        .unwrap();
    let failure = saga.run(1).await.into_result().unwrap_err();
    let cause = failure.source().unwrap().downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(cause.kind(), std::io::ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_compensation_has_attempts_and_a_timeout_of_its_own() {
    let trace = Trace::default();
    let counted = trace.clone();
    let saga = Saga::named("s")
        .step("pay", noted(&trace, "pay"))
        .compensate_with(move |_| {
            counted.note("refund");
            let attempt = counted.count("refund");
            async move {
                match attempt {
                    1 => Err(HandlerError::transient("busy")),
                    2 => std::future::pending().await,
                    _ => Ok(()),
                }
            }
        })
        .compensation_retry(RetryPolicy::fixed(3, Duration::from_secs(1)))
        .compensation_timeout(LIMIT)
        .step("book", fails)
        .build()
        .unwrap();
    let began = Instant::now();
    let result = saga.run(1).await;
    assert_eq!(trace.all(), ["pay 1", "refund", "refund", "refund"]);
    assert_eq!(result.compensated(), ["pay"]);
    assert_eq!(began.elapsed().as_secs(), 7);
}
