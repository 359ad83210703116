use super::{store::Down, *};
use crate::transport::BoxFuture;

/// A run that is dropped where it is, as a crash leaves it: at the so-manieth step or compensation
/// that it begins.
async fn crash_at(saga: &Numbers, trace: &Trace, noted: usize) {
    let running = saga.run("o-1", &1);
    tokio::pin!(running);
    loop {
        tokio::select! {
            biased;
            _ = &mut running => panic!("it was to crash at {noted}"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        if trace.all().len() >= noted {
            return;
        }
    }
}

/// Notes that it begins, and takes a while.
fn slowly<T: Send + 'static>(
    trace: &Trace,
    what: &'static str,
    made: fn(u32) -> Result<T, HandlerError>,
) -> impl Fn(u32, StepContext) -> BoxFuture<'static, Result<T, HandlerError>> + use<T> {
    let trace = trace.clone();
    move |given, step: StepContext| {
        trace.note(format!("{what}{} {given} #{}", step.step(), step.attempt()));
        Box::pin(async move {
            tokio::time::sleep(SECOND).await;
            made(given)
        })
    }
}

fn slow_saga(store: MemorySagaStore, trace: &Trace) -> Numbers {
    let next: fn(u32) -> Result<u32, HandlerError> = |given| Ok(given + 1);
    Saga::durable("order", store)
        .step("pay", slowly(trace, "", next))
        .compensate_with(slowly(trace, "undo ", |_| Ok(())))
        .when_in_doubt(slowly(trace, "undo ", |_| Ok(())))
        .step("reserve", slowly(trace, "", next))
        .compensate_with(slowly(trace, "undo ", |_| Ok(())))
        .step("ship", slowly(trace, "", |_| Err::<u32, _>(HandlerError::fatal("no ship"))))
        .when_in_doubt(slowly(trace, "undo ", |_| Ok(())))
        .build()
        .unwrap()
}

// promise: SG-5
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_step_or_compensation_goes_on_from_where_it_stood() {
    let expected = ["pay 1", "reserve 2", "ship 3", "undo reserve 3", "undo pay 2"];
    for place in 1..=expected.len() {
        let mut expected = expected.to_vec();
        if expected[place - 1] == "ship 3" {
            // It says that it did nothing, and the attempt that nobody saw the end of does not.
            expected.insert(place, "undo ship 3");
        }
        let trace = Trace::default();
        let saga = slow_saga(MemorySagaStore::new(), &trace);
        crash_at(&saga, &trace, place).await;
        let began = tokio::time::Instant::now();
        let _worker = saga.worker().start();
        until(&saga, "o-1", SagaStatus::Compensated).await;
        assert!(began.elapsed() >= LEASE - 10 * SECOND, "the lease was not over");
        // What was under way runs again and is told so; nothing else does.
        let mut all: Vec<String> = trace.all();
        let again = all.remove(place);
        assert_eq!(again, format!("{} #2", expected[place - 1]));
        let first: Vec<String> =
            all.iter().map(|line| line.trim_end_matches(" #1").to_owned()).collect();
        assert_eq!(first, expected, "{place}");
    }
}

// promise: SG-10
#[tokio::test(start_paused = true)]
async fn a_step_that_kills_its_process_does_not_do_so_for_ever() {
    let trace = Trace::default();
    let (store, noting) = (MemorySagaStore::new(), trace.clone());
    let build = |kills: bool| {
        let noting = noting.clone();
        let pays = noting.clone();
        let pay = move |_: u32, step: StepContext| {
            pays.note(format!("pay #{}", step.attempt()));
            async move {
                if kills {
                    std::future::pending::<()>().await;
                }
                Ok::<u32, HandlerError>(1)
            }
        };
        Saga::durable("order", store.clone())
            .max_crashes(2)
            .step("pay", pay)
            .timeout(10 * LEASE)
            .when_in_doubt(undone(&noting))
            .build()
            .unwrap()
    };
    let saga = build(true);
    let _ = saga.start("o-1", &1).await.unwrap();
    for crash in 1..=3 {
        let worker = saga.worker().start();
        while trace.count("pay") < crash {
            tokio::time::sleep(SECOND).await;
        }
        drop(worker);
        tokio::time::sleep(LEASE).await;
    }
    let _worker = saga.worker().start();
    let instance = until(&saga, "o-1", SagaStatus::Compensated).await;
    assert_eq!(trace.all(), ["pay #1", "pay #2", "pay #3", "undo pay 1 #1"]);
    let pay = instance.step("pay").unwrap();
    assert_eq!((pay.attempts.crashed, pay.is_in_doubt), (3, true));
    assert!(pay.attempts.failure.as_deref().unwrap().contains("crash"), "{pay:?}");
}

// promise: SG-11
#[tokio::test(start_paused = true)]
async fn two_workers_never_both_hold_an_instance_and_who_lost_its_lease_cannot_write() {
    let store = Spy::new();
    let trace = Trace::default();
    let gate = Arc::new(tokio::sync::Notify::new());
    let stuck = {
        let (trace, gate, store) = (trace.clone(), Arc::clone(&gate), store.clone());
        move |given: u32, step: StepContext| {
            trace.note(format!("pay #{}", step.attempt()));
            let (gate, store) = (Arc::clone(&gate), store.clone());
            async move {
                if step.attempt() == 1 {
                    // Cut off from the store, and so from its lease, until another has taken over.
                    store.is(Down::Yes);
                    gate.notified().await;
                }
                Ok::<_, HandlerError>(given + step.attempt())
            }
        }
    };
    let saga = Saga::durable("order", store.clone())
        .step("pay", stuck)
        .timeout(10 * LEASE)
        .build()
        .unwrap();
    let _ = saga.start("o-1", &10).await.unwrap();
    let first = saga.worker().poll(SECOND).start();
    while trace.all().is_empty() {
        tokio::time::sleep(SECOND).await;
    }
    tokio::time::sleep(2 * LEASE).await;
    // By then the first has given up its step: it may be another's.
    assert_eq!(first.counters().lost, 1);
    store.is(Down::No);
    let instance = until(&saga, "o-1", SagaStatus::Completed).await;
    gate.notify_waiters();
    assert_eq!(instance.step("pay").unwrap().made.as_deref(), Some("12"));
    assert_eq!(trace.all(), ["pay #1", "pay #2"]);
}

// promise: SG-11
#[tokio::test]
async fn a_claim_that_was_lost_writes_renews_and_changes_nothing() {
    let store = MemorySagaStore::new();
    let new = NewSaga {
        key: "s/1".to_owned(),
        saga: "s".to_owned(),
        steps: "x".to_owned(),
        state: "first".to_owned(),
        deadline: None,
    };
    let first = store.insert(&new, Duration::ZERO).await.unwrap().unwrap();
    assert!(store.insert(&new, LEASE).await.unwrap().is_none());
    let second = store.claim_due("s", "x", 9, LEASE).await.unwrap().remove(0);
    assert!(store.claim_due("s", "x", 9, LEASE).await.unwrap().is_empty());
    assert!(store.claim("s/1", "x", LEASE).await.unwrap().is_none());
    let write = SagaWrite::new(SagaStatus::Completed, "late".to_owned(), SagaNext::Never);
    assert!(!store.write(&first.claim, &write).await.unwrap());
    assert!(!store.renew(&first.claim, LEASE).await.unwrap());
    assert!(!store.change(&second.stored, &write).await.unwrap(), "it is held");
    assert_eq!(store.find("s/1").await.unwrap().unwrap().state, "first");
    assert!(store.renew(&second.claim, LEASE).await.unwrap());
    assert!(store.write(&second.claim, &write).await.unwrap());
    assert!(!store.change(&second.stored, &write).await.unwrap(), "it has changed");
}
