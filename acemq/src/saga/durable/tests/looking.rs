use super::*;

/// A saga whose third step fails, and whose second cannot be undone until it is told that it can.
fn stuck(store: MemorySagaStore, trace: &Trace, mended: &Arc<AtomicU32>) -> Numbers {
    let (noting, mended) = (trace.clone(), Arc::clone(mended));
    let release = move |given: u32, step: StepContext| {
        noting.note(format!("undo {} {given} #{}", step.step(), step.attempt()));
        std::future::ready(match mended.load(Ordering::Relaxed) {
            0 => Err(HandlerError::transient("the hotel does not answer")),
            _ => Ok(()),
        })
    };
    Saga::durable("order", store)
        .step("pay", noted(trace))
        .compensate_with(undone(trace))
        .step("reserve", noted(trace))
        .compensate_with(release)
        .step("ship", hangs::<u32>)
        .timeout(SECOND)
        .build()
        .unwrap()
}

// promise: SG-8
#[tokio::test(start_paused = true)]
async fn an_unresolved_step_is_resolved_by_hand_with_a_note_or_compensated_once_more() {
    let (store, trace, mended) = (MemorySagaStore::new(), Trace::default(), Arc::default());
    let saga = stuck(store.clone(), &trace, &mended);
    let result = saga.run("o-1", &1).await.unwrap();
    assert!(result.needs_attention() && result.has_unresolved());
    let instances = SagaInstances::of("order", &store);
    let find = async || instances.find("o-1").await.unwrap().unwrap();
    let names: Vec<_> = find().await.unresolved().map(|step| step.name.clone()).collect();
    assert_eq!(names, ["reserve", "ship"]);

    for (id, step, expected) in [
        ("o-2", "pay", SagaResolution::NotFound),
        ("o-1", "fly", SagaResolution::NotFound),
        ("o-1", "pay", SagaResolution::NotUnresolved),
    ] {
        assert_eq!(instances.resolve(id, step, "").await.unwrap(), expected);
        assert_eq!(instances.retry_compensation(id, step).await.unwrap(), expected);
    }
    // Nothing asks about it, so there is nothing to run once more.
    let again = instances.retry_compensation("o-1", "ship").await.unwrap();
    assert_eq!(again, SagaResolution::NotUnresolved);
    assert_eq!(
        instances.resolve("o-1", "ship", "asked them: they have nothing").await.unwrap(),
        SagaResolution::Done
    );
    assert_eq!(find().await.status, SagaStatus::Unresolved, "one is left");

    mended.store(1, Ordering::Relaxed);
    assert_eq!(
        saga.instances().retry_compensation("o-1", "reserve").await.unwrap(),
        SagaResolution::Done
    );
    assert_eq!(find().await.status, SagaStatus::Compensating);
    let goes_on = instances.resolve("o-1", "reserve", "").await.unwrap();
    assert_eq!(goes_on, SagaResolution::GoesOn);
    let _worker = saga.worker().start();
    let instance = until(&saga, "o-1", SagaStatus::Compensated).await;
    assert_eq!(instance.step("reserve").unwrap().status, SagaStepStatus::Compensated);
    let ship = instance.step("ship").unwrap();
    assert_eq!(ship.status, SagaStepStatus::Resolved);
    assert_eq!(ship.note.as_deref(), Some("asked them: they have nothing"));
    assert_eq!(trace.count("undo reserve"), 2);
    assert_eq!(trace.count("undo pay"), 1);
    assert!(!saga.run("o-1", &1).await.unwrap().needs_attention());
}

#[tokio::test(start_paused = true)]
async fn instances_are_listed_by_where_they_stand_and_how_long_they_have() {
    let (store, trace) = (MemorySagaStore::new(), Trace::default());
    let saga = three_steps(store.clone(), &trace);
    for id in ["a", "b", "c"] {
        let _ = saga.start(id, &1).await.unwrap();
        tokio::time::sleep(SECOND).await;
    }
    let listed = async |filter: SagaFilter| {
        let found = saga.instances().list(&filter).await.unwrap();
        found.into_iter().map(|instance| instance.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(SagaFilter::new().going_on()).await, ["a", "b", "c"]);
    assert_eq!(listed(SagaFilter::new().limit(2)).await, ["a", "b"]);
    assert_eq!(listed(SagaFilter::new().unchanged_for(2 * SECOND)).await, ["a", "b"]);
    assert!(saga.run("b", &1).await.unwrap().is_complete());
    assert_eq!(listed(SagaFilter::new().status(SagaStatus::Completed)).await, ["b"]);
    assert_eq!(listed(SagaFilter::new().going_on()).await, ["a", "c"]);
    assert_eq!(listed(SagaFilter::new()).await, ["a", "c", "b"]);

    // What is over goes, when it is old enough, and nothing else does.
    assert_eq!(store.purge_finished(SECOND).await.unwrap(), 0);
    tokio::time::sleep(SECOND).await;
    assert_eq!(store.purge_finished(SECOND).await.unwrap(), 1);
    assert_eq!(listed(SagaFilter::new()).await, ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn the_maintenance_removes_what_is_over_and_leaves_what_is_not() {
    let (store, trace) = (MemorySagaStore::new(), Trace::default());
    let saga = three_steps(store.clone(), &trace);
    assert!(saga.run("over", &1).await.unwrap().is_complete());
    let _ = saga.start("going", &1).await.unwrap();
    let mq = crate::connect("memory://saga-maintenance").await.unwrap();
    let maintenance = crate::Maintenance::builder(&mq).sagas(store.clone(), LEASE).start();
    tokio::time::sleep(3 * 3_600 * SECOND).await;
    assert_eq!(maintenance.purged(), 1);
    let left = saga.instances().list(&SagaFilter::new()).await.unwrap();
    assert_eq!(left.into_iter().map(|saga| saga.id).collect::<Vec<_>>(), ["going"]);
    mq.close().await.unwrap();
}

/// Writes a state by hand.
async fn tampered(store: &MemorySagaStore, saga: &Numbers, id: &str, state: String) {
    let _ = saga.start(id, &1).await.unwrap();
    let stored = store.find(&format!("order/{id}")).await.unwrap().unwrap();
    let next = SagaNext::After(Duration::ZERO);
    let write = SagaWrite::new(SagaStatus::Running, state, next);
    assert!(store.change(&stored, &write).await.unwrap());
}

// promise: SG-15
#[tokio::test(start_paused = true)]
async fn a_hostile_state_is_an_error_that_names_its_instance_and_holds_up_nobody() {
    let (store, trace) = (MemorySagaStore::new(), Trace::default());
    let saga = three_steps(store.clone(), &trace);
    let _ = saga.start("fine", &1).await.unwrap();
    let good = store.find("order/fine").await.unwrap().unwrap().state;
    let deep = format!("{{\"a\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let steps = |stages: &str| format!("{{\"input\": \"1\", \"steps\": [{stages}]}}");
    let pending = r#"{"name": "pay", "stage": "pending"}"#;
    let ahead = r#"{"name": "reserve", "stage": "done", "made": "1"}"#;
    let hostile = [
        String::new(),
        "null".to_owned(),
        deep,
        steps(""),
        steps(r#"{"name": "pay", "stage": "done"}"#),
        steps(&format!("{pending}, {ahead}")),
        good.replace("\"input\"", "\"failed\": 7, \"input\""),
        // Its steps are others than its row says.
        steps(pending),
        // What a step is given is not its type.
        good.replace("\"input\":\"1\"", "\"input\":\"\\\"a\\\"\""),
        good.replace("\"input\":\"1\"", &format!("\"input\":\"{}\"", "[".repeat(100_000))),
    ];
    let count = hostile.len();
    for (n, state) in hostile.into_iter().enumerate() {
        tampered(&store, &saga, &format!("h-{n}"), state).await;
    }
    let (log, _guard) = testkit::logs::of_this_thread();
    let worker = saga.worker().start();
    until(&saga, "fine", SagaStatus::Completed).await;
    tokio::time::sleep(10 * SECOND).await;
    for n in 0..count {
        assert!(!log.lines_with(&["ERROR", &format!("order/h-{n}")]).is_empty(), "{n}");
        let instance = saga.instances().find(&format!("h-{n}")).await.unwrap().unwrap();
        assert_eq!(instance.status, SagaStatus::Running, "{n} is left as it is");
        assert!(!instance.is_held);
    }
    assert_eq!(trace.all().len(), 3, "{:?}", trace.all());
    assert_eq!(worker.counters().failed, count as u64);
    assert_eq!(saga.instances().list(&SagaFilter::new()).await.unwrap().len(), count + 1);
    let error = saga.run("h-2", &1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(error.to_string().contains("order/h-2"), "{error}");
}
