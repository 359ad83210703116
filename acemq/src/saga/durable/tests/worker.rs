use super::{store::Down, *};

#[tokio::test(start_paused = true)]
async fn a_worker_drives_what_was_begun_many_at_a_time() {
    let (store, trace) = (MemorySagaStore::new(), Trace::default());
    let now = Arc::new(AtomicU32::new(0));
    let most = Arc::new(AtomicU32::new(0));
    let step = {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        move |given: u32, _: StepContext| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                let running = now.fetch_add(1, Ordering::Relaxed) + 1;
                most.fetch_max(running, Ordering::Relaxed);
                tokio::time::sleep(SECOND).await;
                now.fetch_sub(1, Ordering::Relaxed);
                Ok::<_, HandlerError>(given)
            }
        }
    };
    let saga = Saga::durable("order", store)
        .step("work", step)
        .step("note", noted(&trace))
        .build()
        .unwrap();
    for id in 0..100 {
        let begun = saga.start(&format!("o-{id}"), &id).await.unwrap();
        assert_eq!(begun, SagaBegun::New);
    }
    assert_eq!(saga.start("o-7", &0).await.unwrap(), SagaBegun::AlreadyThere);
    let workers = [0, 1].map(|_| saga.worker().concurrency(5).start());
    for id in 0..100 {
        until(&saga, &format!("o-{id}"), SagaStatus::Completed).await;
    }
    let counters = workers.each_ref().map(SagaWorker::counters);
    assert_eq!(counters.iter().map(|counters| counters.completed).sum::<u64>(), 100);
    assert!(counters.iter().all(|counters| counters.taken >= 20), "{counters:?}");
    assert_eq!((trace.all().len(), most.load(Ordering::Relaxed)), (100, 10));
}

// promise: SG-7
#[tokio::test(start_paused = true)]
async fn a_worker_whose_store_is_down_says_so_and_goes_on_by_itself() {
    let (store, trace) = (Spy::new(), Trace::default());
    let saga = three_steps(store.clone(), &trace);
    let _ = saga.start("o-1", &1).await.unwrap();
    store.is(Down::Yes);
    let (log, _guard) = testkit::logs::of_this_thread();
    let worker = saga.worker().start();
    let mut states = worker.states();
    let failing = |state: &SagaWorkerState| matches!(state, SagaWorkerState::Failing { .. });
    let reason = format!("{:?}", *states.wait_for(failing).await.unwrap());
    assert!(reason.contains("the database is away"), "{reason}");
    let asked = store.calls().len();
    tokio::time::sleep(600 * SECOND).await;
    let asked = store.calls().len() - asked;
    assert!((10..100).contains(&asked), "{asked} times in ten minutes");
    assert_eq!(log.lines_with(&["WARN", "saga store failed"]).len(), 1);
    store.is(Down::No);
    until(&saga, "o-1", SagaStatus::Completed).await;
    assert_eq!(worker.state(), SagaWorkerState::Active);
    assert_eq!(trace.all().len(), 3);
}

// promise: SG-7
#[tokio::test(start_paused = true)]
async fn a_worker_keeps_what_a_step_made_until_the_store_is_back() {
    let (store, trace) = (Spy::new(), Trace::default());
    let down = {
        let (store, trace) = (store.clone(), trace.clone());
        move |given: u32, step: StepContext| {
            trace.note(format!("pay #{}", step.attempt()));
            store.is(Down::Yes);
            std::future::ready(Ok::<_, HandlerError>(given + 1))
        }
    };
    let saga = Saga::durable("order", store.clone())
        .step("pay", down)
        .step("ship", noted(&trace))
        .build()
        .unwrap();
    let _ = saga.start("o-1", &1).await.unwrap();
    let _worker = saga.worker().start();
    tokio::time::sleep(10 * LEASE).await;
    store.is(Down::No);
    until(&saga, "o-1", SagaStatus::Completed).await;
    assert_eq!(trace.all(), ["pay #1", "ship 2 #1"]);
}

#[tokio::test(start_paused = true)]
async fn closing_lets_the_step_in_hand_end_and_puts_the_rest_down_at_once() {
    let trace = Trace::default();
    let slow = {
        let trace = trace.clone();
        move |given: u32, step: StepContext| {
            trace.note(format!("{} #{}", step.step(), step.attempt()));
            async move {
                tokio::time::sleep(5 * SECOND).await;
                Ok::<_, HandlerError>(given + 1)
            }
        }
    };
    let saga = Saga::durable("order", MemorySagaStore::new())
        .step("pay", slow)
        .step("ship", noted(&trace))
        .build()
        .unwrap();
    let _ = saga.start("o-1", &1).await.unwrap();
    let worker = saga.worker().start();
    while trace.all().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    worker.close().await.unwrap();
    worker.close().await.unwrap();
    assert_eq!(worker.state(), SagaWorkerState::Stopped);
    assert_eq!(trace.all(), ["pay #1"]);
    let instance = saga.instances().find("o-1").await.unwrap().unwrap();
    assert!(!instance.is_held);
    assert_eq!(instance.step("pay").unwrap().status, SagaStepStatus::Done);
    // Nothing counts as crashed.
    let _worker = saga.worker().start();
    until(&saga, "o-1", SagaStatus::Completed).await;
    assert_eq!(trace.all(), ["pay #1", "ship 2 #1"]);
}

#[tokio::test(start_paused = true)]
async fn closing_is_bounded_and_dropping_stops_at_once() {
    let saga = Saga::durable("order", MemorySagaStore::new())
        .step("pay", hangs::<u32>)
        .timeout(100 * LEASE)
        .build()
        .unwrap();
    let _ = saga.start("o-1", &1).await.unwrap();
    let worker = saga.worker().drain_timeout(3 * SECOND).start();
    let held = async || saga.instances().find("o-1").await.unwrap().unwrap().is_held;
    while !held().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let began = tokio::time::Instant::now();
    worker.close().await.unwrap();
    assert_eq!(began.elapsed(), 3 * SECOND);
    tokio::time::sleep(LEASE).await;
    assert!(!held().await, "whatever was in hand renews nothing");
}

// promise: SG-14
#[tokio::test(start_paused = true)]
async fn another_list_of_steps_is_refused_by_name_and_left_as_it_is_while_others_go_on() {
    let (store, trace) = (MemorySagaStore::new(), Trace::default());
    let old = three_steps(store.clone(), &trace);
    let _ = old.start("o-old", &1).await.unwrap();
    let before = store.find("order/o-old").await.unwrap().unwrap();
    let new = Saga::durable("order", store.clone())
        .step("pay", noted(&trace))
        .step("ship", noted(&trace))
        .build()
        .unwrap();
    let (log, _guard) = testkit::logs::of_this_thread();
    let _ = new.start("o-new", &1).await.unwrap();
    let worker = new.worker().start();
    until(&new, "o-new", SagaStatus::Completed).await;
    tokio::time::sleep(10 * LEASE).await;
    let error = new.run("o-old", &1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("[pay, reserve, ship]"), "{error}");
    assert!(!log.lines_with(&["WARN", "o-old", "[pay, reserve, ship]", "[pay, ship]"]).is_empty());
    assert_eq!(worker.counters().other_steps, 1);
    let after = store.find("order/o-old").await.unwrap().unwrap();
    assert_eq!((before.state, before.version), (after.state, after.version));
    // A program with the old list finishes it.
    let _old_worker = old.worker().start();
    until(&old, "o-old", SagaStatus::Completed).await;
}
