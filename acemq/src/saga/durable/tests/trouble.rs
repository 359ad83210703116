//! Stores that misbehave, and instances that cannot be gone on with.

use std::sync::atomic::AtomicBool;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A number that some programs cannot read.
#[derive(Debug, serde::Serialize)]
struct Picky(u32);

static IS_PICKY: AtomicBool = AtomicBool::new(false);

impl<'de> serde::Deserialize<'de> for Picky {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        if IS_PICKY.load(Ordering::Relaxed) {
            return Err(serde::de::Error::custom("it is another type by now"));
        }
        u32::deserialize(from).map(Self)
    }
}

/// What is put aside, for a minute.
fn is_put_aside(write: &SagaWrite) -> bool {
    write.next == SagaNext::After(MINUTE)
}

// promise: SG-15
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_put_down_with_all_that_was_done_and_a_person_has_a_way_out() {
    IS_PICKY.store(true, Ordering::Relaxed);
    let (store, trace) = (MemorySagaStore::new(), Trace::default());
    let paying = trace.clone();
    let saga = Saga::durable("order", store)
        .step("pay", move |given: u32, step: StepContext| {
            paying.note(format!("pay #{}", step.attempt()));
            std::future::ready(Ok::<_, HandlerError>(Picky(given)))
        })
        .compensate_with(|_: Picky, _| std::future::ready(Ok(())))
        .step("reserve", |given: Picky, _| std::future::ready(Ok::<_, HandlerError>(given.0)))
        .compensate_with(undone(&trace))
        .step("ship", |_: u32, _| {
            IS_PICKY.store(true, Ordering::Relaxed);
            std::future::ready(Err::<u32, _>(HandlerError::fatal("no ship")))
        })
        .build()
        .unwrap();
    let _ = saga.start("o-1", &1).await.unwrap();
    let _worker = saga.worker().start();
    tokio::time::sleep(10 * LEASE).await;
    let instance = saga.instances().find("o-1").await.unwrap().unwrap();
    assert_eq!((instance.status, instance.is_held), (SagaStatus::Running, false));
    let reserve = instance.step("reserve").unwrap();
    assert_eq!(instance.step("pay").unwrap().status, SagaStepStatus::Done);
    let attempts = &reserve.attempts;
    assert_eq!((attempts.begun, attempts.crashed, attempts.is_under_way), (0, 0, false));

    IS_PICKY.store(false, Ordering::Relaxed);
    let instance = until(&saga, "o-1", SagaStatus::Unresolved).await;
    assert_eq!(trace.all(), ["pay #1", "undo reserve 1 #1"], "nothing twice");
    let left: Vec<&str> = instance.unresolved().map(|step| &*step.name).collect();
    assert_eq!(left, ["pay"]);
    let resolved = saga.instances().resolve("o-1", "pay", "refunded by hand").await.unwrap();
    assert_eq!(resolved, SagaResolution::Done);
    until(&saga, "o-1", SagaStatus::Compensated).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_refused_is_no_crash_and_goes_on_once_it_is_not() {
    for (kind, undoes) in [(ErrorKind::Config, false), (ErrorKind::TooLarge, true)] {
        let (store, trace) = (Spy::new(), Trace::default());
        let order = three_steps(store.clone(), &trace);
        let fails = Saga::durable("order", store.clone())
            .step("pay", noted(&trace))
            .compensate_with(undone(&trace))
            .step("ship", fails::<u32>)
            .build()
            .unwrap();
        let saga = if undoes { fails } else { order };
        store.refuses(move |call, _, write| {
            let write = write.filter(|write| call == "write" && !is_put_aside(write))?;
            let is_undone = write.status == SagaStatus::Compensated;
            (!undoes || is_undone).then_some(kind)
        });
        let _ = saga.start("o-1", &1).await.unwrap();
        let worker = saga.worker().start();
        tokio::time::sleep(20 * MINUTE).await;
        let instance = saga.instances().find("o-1").await.unwrap().unwrap();
        let pay = instance.step("pay").unwrap();
        assert_eq!((pay.attempts.crashed, pay.compensation.crashed), (0, 0), "{pay:?}");
        assert!(!instance.is_held && !instance.status.is_over(), "{instance:?}");
        // What ran and is not written may have been done.
        assert_eq!(pay.is_in_doubt, !undoes);
        assert!(worker.counters().failed >= 15, "{:?}", worker.counters());
        store.refuses_nothing();
        let end = if undoes { SagaStatus::Compensated } else { SagaStatus::Completed };
        until(&saga, "o-1", end).await;
    }
}

// promise: SG-7
#[tokio::test(start_paused = true)]
async fn one_instance_that_cannot_be_written_does_not_stop_its_worker() {
    for refuses_renewals in [false, true] {
        let (store, trace) = (Spy::new(), Trace::default());
        let saga = three_steps(store.clone(), &trace);
        store.refuses(move |call, key, write| {
            let asked = match call {
                "write" => write.is_some_and(|write| !is_put_aside(write)),
                "renew" => refuses_renewals,
                _ => false,
            };
            (asked && key == "order/bad").then_some(ErrorKind::Store)
        });
        let _ = saga.start("bad", &1).await.unwrap();
        let worker = saga.worker().start();
        while trace.all().is_empty() {
            tokio::time::sleep(SECOND).await;
        }
        if refuses_renewals {
            let mut states = worker.states();
            let failing =
                |state: &SagaWorkerState| matches!(state, SagaWorkerState::Failing { .. });
            let reason = format!("{:?}", *states.wait_for(failing).await.unwrap());
            assert!(reason.contains("cannot be written"), "{reason}");
        }
        let _ = saga.start("good", &1).await.unwrap();
        let began = tokio::time::Instant::now();
        until(&saga, "good", SagaStatus::Completed).await;
        let most = if refuses_renewals { 2 * LEASE } else { 10 * SECOND };
        assert!(began.elapsed() <= most, "{:?}", began.elapsed());
        assert_eq!(worker.state(), SagaWorkerState::Active);
        store.refuses_nothing();
        until(&saga, "bad", SagaStatus::Completed).await;
    }
}

// promise: SG-10
#[tokio::test(start_paused = true)]
async fn a_step_that_kills_its_process_takes_none_of_its_neighbours_with_it() {
    let trace = Trace::default();
    let noting = trace.clone();
    let step = move |given: u32, step: StepContext| {
        noting.note(step.id());
        async move {
            match given {
                0 => std::future::pending().await,
                _ => tokio::time::sleep(SECOND).await,
            }
            Ok::<_, HandlerError>(given)
        }
    };
    let saga = Saga::durable("order", MemorySagaStore::new())
        .step("work", step)
        .timeout(10 * LEASE)
        .build()
        .unwrap();
    for n in 0..10_u32 {
        let _ = saga.start(&format!("o-{n}"), &n).await.unwrap();
    }
    for kills in 1..=6 {
        let worker = saga.worker().start();
        while trace.count("o-0") < kills {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(worker);
        tokio::time::sleep(LEASE).await;
    }
    let _worker = saga.worker().start();
    for n in 1..10 {
        let instance = until(&saga, &format!("o-{n}"), SagaStatus::Completed).await;
        assert_eq!(instance.step("work").unwrap().attempts.crashed, 2, "o-{n}");
    }
    let killer = until(&saga, "o-0", SagaStatus::Unresolved).await;
    assert_eq!(killer.step("work").unwrap().attempts.crashed, 6);
}

// promise: SG-14
#[tokio::test(start_paused = true)]
async fn what_fails_while_other_lists_are_looked_for_holds_up_no_instance() {
    let (store, trace) = (Spy::new(), Trace::default());
    let saga = three_steps(store.clone(), &trace);
    store.refuses(|call, _, _| (call == "with_other_steps").then_some(ErrorKind::Decode));
    let _ = saga.start("o-1", &1).await.unwrap();
    let worker = saga.worker().start();
    until(&saga, "o-1", SagaStatus::Completed).await;
    assert_eq!(worker.state(), SagaWorkerState::Active);
}

// promise: SG-11
#[tokio::test(start_paused = true)]
async fn a_step_ends_with_its_lease_and_not_later() {
    let (store, trace) = (Spy::new(), Trace::default());
    let noting = trace.clone();
    let step = move |given: u32, _: StepContext| {
        let trace = noting.clone();
        async move {
            for second in 0.. {
                trace.note(second.to_string());
                tokio::time::sleep(SECOND).await;
            }
            Ok::<_, HandlerError>(given)
        }
    };
    let saga = Saga::durable("order", store.clone())
        .step("pay", step)
        .timeout(10 * LEASE)
        .build()
        .unwrap();
    // Renewals hang until somebody gives up on them.
    store.refuses(|call, _, _| (call == "renew").then_some(ErrorKind::Timeout));
    let _ = tokio::time::timeout(LEASE + LEASE / 2, saga.run("o-1", &1)).await;
    assert_eq!((trace.count("59"), trace.count("61")), (1, 0));
}

// promise: SG-16
#[tokio::test(start_paused = true)]
async fn a_commit_that_is_still_under_way_is_waited_for_and_its_step_runs_once() {
    let trace = Trace::default();
    let noting = trace.clone();
    let step = move |given: u32, step: StepContext, (): ()| {
        noting.note(format!("{} {given} #{}", step.step(), step.attempt()));
        std::future::ready(Ok::<_, HandlerError>((given + 1, ())))
    };
    let saga = Saga::durable("order", Spy::new())
        .step_in_transaction("pay", step.clone())
        .step_in_transaction("ship", step)
        .build()
        .unwrap();
    assert_eq!(saga.run("o-1", &1).await.unwrap().output(), Some(&3));
    assert_eq!(trace.all(), ["pay 1 #1", "ship 2 #1"]);
}
