use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use super::*;
use crate::{
    Saga,
    consume::HandlerError,
    error::{Error, ErrorKind, Result},
    retry::RetryPolicy,
    saga::SagaResult,
};

mod backward;
mod crashing;
mod looking;
mod replies;
mod settings;
mod store;
mod time;
mod trouble;
mod worker;

pub(super) use self::store::Spy;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const LEASE: Duration = Duration::from_secs(60);

/// What happened, in its order.
#[derive(Clone, Default)]
pub(super) struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    pub(super) fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(super) fn count(&self, what: &str) -> usize {
        self.all().iter().filter(|noted| noted.starts_with(what)).count()
    }
}

/// A step that succeeds and is noted, and makes one more than it was given.
pub(super) fn noted(
    trace: &Trace,
) -> impl Fn(u32, StepContext) -> std::future::Ready<Result<u32, HandlerError>> + use<> {
    let trace = trace.clone();
    move |given, step| {
        trace.note(format!("{} {given} #{}", step.step(), step.attempt()));
        std::future::ready(Ok(given + 1))
    }
}

/// A compensation that succeeds and is noted.
pub(super) fn undone(
    trace: &Trace,
) -> impl Fn(u32, StepContext) -> std::future::Ready<Result<(), HandlerError>> + use<> {
    let trace = trace.clone();
    move |given, step| {
        trace.note(format!("undo {} {given} #{}", step.step(), step.attempt()));
        std::future::ready(Ok(()))
    }
}

/// A step that fails so often, and then succeeds.
pub(super) fn fails_at_first(
    trace: &Trace,
    times: u32,
) -> impl Fn(u32, StepContext) -> std::future::Ready<Result<u32, HandlerError>> + use<> {
    let (trace, left) = (trace.clone(), AtomicU32::new(times));
    move |given, step| {
        trace.note(format!("{} {given} #{}", step.step(), step.attempt()));
        let fails =
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        std::future::ready(match fails {
            Ok(_) => Err(HandlerError::transient("none is free")),
            Err(_) => Ok(given + 1),
        })
    }
}

pub(super) async fn fails<T>(_: u32, _: StepContext) -> Result<T, HandlerError> {
    Err(HandlerError::transient("none is free"))
}

pub(super) async fn hangs<T>(_: u32, _: StepContext) -> Result<T, HandlerError> {
    std::future::pending().await
}

pub(super) type Numbers<S = MemorySagaStore> = DurableSaga<u32, u32, S>;

/// Pay, reserve and ship, each of which can be undone.
pub(super) fn three_steps<S: SagaStore>(store: S, trace: &Trace) -> Numbers<S> {
    Saga::durable("order", store)
        .step("pay", noted(trace))
        .compensate_with(undone(trace))
        .step("reserve", noted(trace))
        .compensate_with(undone(trace))
        .step("ship", noted(trace))
        .compensate_with(undone(trace))
        .build()
        .unwrap()
}

/// Waits until an instance stands there.
pub(super) async fn until<S: SagaStore>(
    saga: &Numbers<S>,
    id: &str,
    status: SagaStatus,
) -> SagaInstance {
    let reached = async {
        loop {
            if let Some(instance) = saga.instances().find(id).await.unwrap()
                && instance.status == status
            {
                return instance;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let hours = Duration::from_secs(10 * 3_600);
    tokio::time::timeout(hours, reached).await.unwrap_or_else(|_| panic!("{id} is never {status}"))
}

pub(super) fn ended<T>(result: &SagaResult<T>) -> (Vec<&str>, Vec<&str>) {
    (
        result.completed().iter().map(String::as_str).collect(),
        result.compensated().iter().map(String::as_str).collect(),
    )
}

// promise: SG-5
#[tokio::test(start_paused = true)]
async fn three_local_steps_cost_four_statements_and_give_what_the_last_one_made() {
    let (store, trace) = (Spy::new(), Trace::default());
    let saga = three_steps(store.clone(), &trace);
    let result = saga.run("o-1", &1).await.unwrap();
    assert!(result.is_complete() && !result.needs_attention());
    assert_eq!((result.output(), result.saga()), (Some(&4), "order"));
    assert_eq!(trace.all(), ["pay 1 #1", "reserve 2 #1", "ship 3 #1"]);
    assert_eq!(store.calls(), ["insert", "write", "write", "write"], "six are allowed");
}

// promise: SG-5
#[tokio::test(start_paused = true)]
async fn before_a_step_runs_the_store_says_that_it_is_about_to() {
    let (store, trace) = (MemorySagaStore::new(), Trace::default());
    let looking = SagaInstances::of("order", &store);
    let look = |store: MemorySagaStore, trace: Trace| {
        move |given: u32, step: StepContext| {
            let (store, trace) = (store.clone(), trace.clone());
            async move {
                let instances = SagaInstances::of("order", &store);
                let instance = instances.find(step.id()).await?.unwrap();
                let this = instance.step(step.step()).unwrap();
                assert!(this.attempts.is_under_way && this.attempts.begun == 1, "{this:?}");
                assert!(instance.is_held);
                trace.note(step.key());
                Ok(given + 1)
            }
        }
    };
    let saga = Saga::durable("order", store.clone())
        .step("pay", look(store.clone(), trace.clone()))
        .step("ship", look(store.clone(), trace.clone()))
        .build()
        .unwrap();
    assert!(saga.run("o/1", &1).await.unwrap().is_complete());
    assert_eq!(trace.all(), ["order/o/1/pay", "order/o/1/ship"]);
    let instance = looking.find("o/1").await.unwrap().unwrap();
    assert_eq!((instance.status, instance.due_at), (SagaStatus::Completed, None));
    assert_eq!(instance.step("pay").unwrap().made.as_deref(), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn a_second_run_of_an_id_joins_the_first_and_gives_its_result() {
    let (store, trace) = (MemorySagaStore::new(), Trace::default());
    let saga = Saga::durable("order", store)
        .step("pay", fails_at_first(&trace, 1))
        .retry(RetryPolicy::fixed(2, 10 * SECOND))
        .build()
        .unwrap();
    let (first, second) = tokio::join!(saga.run("o-1", &1), saga.run("o-1", &50));
    assert_eq!((first.unwrap().output(), second.unwrap().output()), (Some(&2), Some(&2)));
    assert_eq!(saga.run("o-1", &99).await.unwrap().output(), Some(&2));
    assert_eq!(trace.all(), ["pay 1 #1", "pay 1 #2"]);
}

#[tokio::test(start_paused = true)]
async fn sagas_of_two_names_share_a_store_and_ids_and_nothing_else() {
    let (store, trace) = (MemorySagaStore::new(), Trace::default());
    let order = three_steps(store.clone(), &trace);
    let other = Saga::durable("return", store).step("refund", noted(&trace)).build().unwrap();
    assert_eq!(order.run("o-1", &1).await.unwrap().output(), Some(&4));
    assert_eq!(other.run("o-1", &1).await.unwrap().output(), Some(&2));
    assert_eq!(order.instances().list(&SagaFilter::new()).await.unwrap().len(), 1);
}
