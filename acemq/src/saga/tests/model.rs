//! Any saga, whatever fails in it and wherever its run is dropped, against a model.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::{collection::vec, prelude::*};

use super::{dropped::polled, *};
use crate::transport::BoxFuture;

/// How one attempt goes.
#[derive(Clone, Copy, Debug)]
enum Attempt {
    Succeeds,
    Fails,
    FailsForGood,
    Panics,
    Hangs,
}

/// How a function of the user's goes, attempt by attempt.
type Script = [Attempt; 3];

#[derive(Clone, Debug)]
struct Planned {
    attempts: u32,
    action: Script,
    compensation_attempts: u32,
    compensation: Option<Script>,
    in_doubt: Option<Script>,
}

/// What is to happen, and to be in the result.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    trace: Vec<String>,
    completed: Vec<String>,
    compensated: Vec<String>,
    unresolved: Vec<String>,
    /// The step, its attempts, and whether it is in doubt.
    failed: Option<(String, u32, bool)>,
    needs_attention: bool,
}

fn attempt() -> impl Strategy<Value = Attempt> {
    use Attempt::{Fails, FailsForGood, Hangs, Panics, Succeeds};
    prop_oneof![
        4 => Just(Succeeds),
        2 => Just(Fails),
        1 => Just(FailsForGood),
        1 => Just(Panics),
        1 => Just(Hangs),
    ]
}

fn script() -> impl Strategy<Value = Script> {
    [attempt(), attempt(), attempt()]
}

fn planned() -> impl Strategy<Value = Planned> {
    let functions = (script(), prop::option::of(script()), prop::option::of(script()));
    (functions, 1..=3u32, 1..=3u32).prop_map(
        |((action, compensation, in_doubt), attempts, compensation_attempts)| Planned {
            attempts,
            action,
            compensation_attempts,
            compensation,
            in_doubt,
        },
    )
}

/// The model's attempts at one function: how many it takes, of at most `may_begin`, and what is
/// then known of it: done, or not, or in doubt.
fn tries(script: Script, attempts: u32, may_begin: usize) -> (u32, Result<(), bool>) {
    let mut in_doubt = false;
    let mut made = 0;
    for attempt in script.into_iter().take(attempts as usize).take(may_begin) {
        made += 1;
        match attempt {
            Attempt::Succeeds => return (made, Ok(())),
            Attempt::Fails => {}
            Attempt::FailsForGood => break,
            Attempt::Panics | Attempt::Hangs => in_doubt = true,
        }
    }
    (made, Err(in_doubt))
}

/// What happens to a run that begins no more than so many attempts at its steps.
fn expected(plan: &[Planned], mut may_begin: usize) -> Expected {
    let mut expected = Expected::default();
    let mut undo: Vec<(usize, &str, usize, Script)> = Vec::new();
    for (at, step) in plan.iter().enumerate() {
        let (made, ended) = tries(step.action, step.attempts, may_begin);
        may_begin -= made as usize;
        let note = format!("do {at} given {at}");
        expected.trace.extend(std::iter::repeat_n(note, made as usize));
        let Err(in_doubt) = ended else {
            expected.completed.push(at.to_string());
            undo.extend(step.compensation.map(|script| (at, "undo", at + 1, script)));
            continue;
        };
        expected.failed = Some((at.to_string(), made, in_doubt));
        expected.needs_attention = in_doubt;
        if in_doubt && let Some(script) = step.in_doubt {
            undo.push((at, "doubt", at, script));
        }
        break;
    }
    if expected.failed.is_none() {
        return expected;
    }
    for (at, what, given, script) in undo.into_iter().rev() {
        let (made, ended) = tries(script, plan[at].compensation_attempts, usize::MAX);
        let note = format!("{what} {at} given {given}");
        expected.trace.extend(std::iter::repeat_n(note, made as usize));
        if ended.is_ok() {
            expected.compensated.push(at.to_string());
        } else {
            expected.unresolved.push(at.to_string());
        }
        if what == "doubt" {
            expected.needs_attention = ended.is_err();
        }
    }
    expected.needs_attention |= !expected.unresolved.is_empty();
    expected
}

/// A function that goes as its script says, and makes one more than it is given.
fn scripted(
    trace: &Trace,
    what: &'static str,
    at: usize,
    script: Script,
) -> impl Fn(usize) -> BoxFuture<'static, Result<usize, HandlerError>> + use<> {
    let trace = trace.clone();
    let made = AtomicUsize::new(0);
    move |given| {
        trace.note(format!("{what} {at} given {given}"));
        let attempt = script[made.fetch_add(1, Ordering::Relaxed)];
        Box::pin(async move {
            tokio::task::yield_now().await;
            match attempt {
                Attempt::Succeeds => Ok(given + 1),
                Attempt::Fails => Err(HandlerError::transient("it failed")),
                Attempt::FailsForGood => Err(HandlerError::fatal("it failed for good")),
                Attempt::Panics => std::panic::resume_unwind(Box::new("it panicked")),
                Attempt::Hangs => std::future::pending().await,
            }
        })
    }
}

fn built(plan: &[Planned], trace: &Trace) -> Saga<usize> {
    let mut building: Option<SagaStepBuilder<usize, usize, usize>> = None;
    for (at, step) in plan.iter().enumerate() {
        let action = scripted(trace, "do", at, step.action);
        let name = at.to_string();
        let mut with = match building.take() {
            None => Saga::named("any").step(name, action),
            Some(before) => SagaStepBuilder::step(before, name, action),
        };
        if let Some(script) = step.compensation {
            let undo = scripted(trace, "undo", at, script);
            with = with.compensate_with(move |given| {
                let undone = undo(given);
                async move { undone.await.map(drop) }
            });
        }
        if let Some(script) = step.in_doubt {
            let undo = scripted(trace, "doubt", at, script);
            with = with.when_in_doubt(move |given| {
                let undone = undo(given);
                async move { undone.await.map(drop) }
            });
        }
        let pause = Duration::from_secs(1);
        building = Some(
            with.retry(RetryPolicy::fixed(step.attempts, pause))
                .compensation_retry(RetryPolicy::fixed(step.compensation_attempts, pause)),
        );
    }
    building.unwrap().build().unwrap()
}

fn happened(trace: &Trace, result: &SagaResult<usize>) -> Expected {
    Expected {
        trace: trace.all(),
        completed: result.completed().to_vec(),
        compensated: result.compensated().to_vec(),
        unresolved: names(result.unresolved()).into_iter().map(str::to_owned).collect(),
        failed: result
            .failure()
            .map(|failure| (failure.step().to_owned(), failure.attempts(), failure.is_in_doubt())),
        needs_attention: result.needs_attention(),
    }
}

/// A runtime whose clock is paused.
fn paused() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap()
}

proptest! {
    // promises: SG-1, SG-2, SG-3, SG-4
    #[test]
    fn whatever_fails_each_finished_step_is_compensated_or_listed_in_order(
        plan in vec(planned(), 1..6),
    ) {
        paused().block_on(async {
            let trace = Trace::default();
            let result = built(&plan, &trace).run(0).await;
            prop_assert_eq!(happened(&trace, &result), expected(&plan, usize::MAX));
            prop_assert_eq!(result.output().copied(), result.is_complete().then_some(plan.len()));
            Ok(())
        })?;
    }

    // promises: SG-1, SG-2
    #[test]
    fn a_run_dropped_wherever_it_waits_begins_nothing_more_and_undoes_what_was_done(
        plan in vec(planned(), 1..6),
        polls in 0..40usize,
    ) {
        paused().block_on(async {
            let trace = Trace::default();
            let saga = built(&plan, &trace);
            let mut run = saga.run(0);
            let ended = polled(&mut run, polls).await.is_some();
            drop(run);
            let begun = trace.count("do ");
            saga.drain().await;
            prop_assert_eq!(trace.count("do "), begun);
            let expected = if polls == 0 {
                Expected::default()
            } else {
                expected(&plan, if ended { usize::MAX } else { begun })
            };
            prop_assert_eq!(trace.all(), expected.trace);
            Ok(())
        })?;
    }
}
