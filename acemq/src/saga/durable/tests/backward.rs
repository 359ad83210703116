use super::*;

#[tokio::test(start_paused = true)]
async fn the_finished_steps_are_compensated_last_first_each_given_what_it_made() {
    let trace = Trace::default();
    let saga = Saga::durable("order", MemorySagaStore::new())
        .step("pay", noted(&trace))
        .compensate_with(undone(&trace))
        .step("tell", noted(&trace))
        .step("reserve", noted(&trace))
        .compensate_with(undone(&trace))
        .step("ship", fails::<u32>)
        .compensate_with(undone(&trace))
        .build()
        .unwrap();
    let result = saga.run("o-1", &1).await.unwrap();
    assert_eq!(
        trace.all(),
        ["pay 1 #1", "tell 2 #1", "reserve 3 #1", "undo reserve 4 #1", "undo pay 2 #1"]
    );
    assert_eq!(ended(&result), (vec!["pay", "tell", "reserve"], vec!["reserve", "pay"]));
    assert_eq!(result.failed_at(), Some("ship"));
    assert_eq!(result.failure().unwrap().reason(), "none is free");
    assert!(!result.needs_attention());
    let instance = saga.instances().find("o-1").await.unwrap().unwrap();
    assert_eq!(instance.status, SagaStatus::Compensated);
    assert_eq!(instance.step("tell").unwrap().status, SagaStepStatus::Done);
}

// promise: SG-8
#[tokio::test(start_paused = true)]
async fn a_compensation_that_fails_always_leaves_it_unresolved_and_the_others_still_run() {
    let trace = Trace::default();
    let tries = Trace::default();
    let never = {
        let tries = tries.clone();
        move |_: u32, step: StepContext| {
            tries.note(format!("#{}", step.attempt()));
            async move {
                assert!(step.attempt().is_multiple_of(2), "it panics every other time");
                Err::<(), _>(HandlerError::transient("the bank is shut"))
            }
        }
    };
    let saga = Saga::durable("order", MemorySagaStore::new())
        .step("pay", noted(&trace))
        .compensate_with(undone(&trace))
        .step("reserve", noted(&trace))
        .compensate_with(never)
        .compensation_retry(RetryPolicy::fixed(4, SECOND))
        .step("ship", fails::<u32>)
        .build()
        .unwrap();
    let result = saga.run("o-1", &1).await.unwrap();
    assert_eq!(tries.all(), ["#1", "#2", "#3", "#4"]);
    assert_eq!(trace.all().last().unwrap(), "undo pay 2 #1");
    assert_eq!(ended(&result).1, ["pay"]);
    let [left] = result.unresolved() else { panic!("{result}") };
    assert_eq!((left.step(), left.attempts()), ("reserve", 4));
    assert_eq!(left.reason(), "the bank is shut");
    assert!(result.needs_attention());
    let instance = saga.instances().find("o-1").await.unwrap().unwrap();
    assert_eq!(instance.status, SagaStatus::Unresolved);
    let [left] = &*instance.unresolved().collect::<Vec<_>>() else { panic!("{instance:?}") };
    assert_eq!(left.compensation.failure.as_deref(), Some("the bank is shut"));
}

#[tokio::test(start_paused = true)]
async fn a_compensation_that_fails_three_times_and_then_succeeds_leaves_nothing() {
    let trace = Trace::default();
    let failing = fails_at_first(&trace, 3);
    let saga = Saga::durable("order", MemorySagaStore::new())
        .step("pay", noted(&trace))
        .compensate_with(move |given, step| {
            let tried = failing(given, step);
            async move { tried.await.map(drop) }
        })
        .compensation_retry(RetryPolicy::fixed(5, SECOND))
        .step("ship", fails::<u32>)
        .build()
        .unwrap();
    let result = saga.run("o-1", &1).await.unwrap();
    assert_eq!(trace.all(), ["pay 1 #1", "pay 2 #1", "pay 2 #2", "pay 2 #3", "pay 2 #4"]);
    assert_eq!(ended(&result).1, ["pay"]);
    assert!(!result.needs_attention());
}

#[tokio::test(start_paused = true)]
async fn a_step_in_doubt_is_asked_about_or_left_unresolved() {
    for asks in [true, false] {
        let trace = Trace::default();
        let saga = Saga::durable("order", MemorySagaStore::new())
            .step("pay", noted(&trace))
            .compensate_with(undone(&trace))
            .step("reserve", hangs::<u32>)
            .timeout(SECOND);
        let saga = match asks {
            true => saga.when_in_doubt(undone(&trace)),
            false => saga,
        };
        let saga = saga.build().unwrap();
        let result = saga.run("o-1", &1).await.unwrap();
        let failure = result.failure().unwrap();
        assert!(failure.is_in_doubt() && failure.reason().contains("longer than 1s"));
        assert_eq!(result.needs_attention(), !asks);
        let instance = saga.instances().find("o-1").await.unwrap().unwrap();
        if asks {
            assert_eq!(trace.all(), ["pay 1 #1", "undo reserve 2 #1", "undo pay 2 #1"]);
            assert_eq!(instance.status, SagaStatus::Compensated);
        } else {
            assert_eq!(trace.all(), ["pay 1 #1", "undo pay 2 #1"]);
            assert_eq!(instance.status, SagaStatus::Unresolved);
            assert!(instance.step("reserve").unwrap().is_in_doubt);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn panics_are_failures_and_what_cannot_be_kept_was_done() {
    let trace = Trace::default();
    let panics = |_: u32, _: StepContext| -> std::future::Ready<Result<u32, HandlerError>> {
        panic!("no such room")
    };
    let saga = Saga::durable("order", MemorySagaStore::new()).step("pay", panics).build().unwrap();
    let result = saga.run("o-1", &1).await.unwrap();
    let failure = result.failure().unwrap();
    assert!(failure.is_in_doubt() && failure.reason().contains("no such room"), "{failure}");

    let nan = |_: u32, _: StepContext| std::future::ready(Ok::<_, HandlerError>(f64::NAN));
    let saga = Saga::durable("nan", MemorySagaStore::new())
        .step("weigh", nan)
        .retry(RetryPolicy::fixed(3, SECOND))
        .when_in_doubt(undone(&trace))
        .build()
        .unwrap();
    let result = saga.run("o-1", &1).await.unwrap();
    assert_eq!(result.failure().unwrap().attempts(), 1);
    assert!(result.failure().unwrap().reason().contains("cannot be kept"));
    assert_eq!(trace.all(), ["undo weigh 1 #1"]);
}
