use tokio::time::Instant;

use super::*;

// promise: SG-9
#[tokio::test(start_paused = true)]
async fn a_retry_waits_in_the_store_and_nobody_holds_the_instance_meanwhile() {
    let (store, trace) = (MemorySagaStore::new(), Trace::default());
    let hour = Duration::from_secs(3_600);
    let saga = Saga::durable("order", store.clone())
        .step("pay", fails_at_first(&trace, 2))
        .retry(RetryPolicy::fixed(3, hour))
        .build()
        .unwrap();
    let _ = saga.start("o-1", &1).await.unwrap();
    let worker = saga.worker().start();
    let began = Instant::now();
    loop {
        let instance = saga.instances().find("o-1").await.unwrap().unwrap();
        if instance.step("pay").unwrap().attempts.failed == 1 {
            assert!(!instance.is_held && instance.due_at > Some(instance.updated_at));
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Whoever waited dies, which neither shortens the wait nor forgets the attempt.
    drop(worker);
    let _other = saga.worker().start();
    until(&saga, "o-1", SagaStatus::Completed).await;
    assert!(began.elapsed() >= 2 * hour && began.elapsed() < 2 * hour + 5 * SECOND);
    assert_eq!(trace.all(), ["pay 1 #1", "pay 1 #2", "pay 1 #3"]);
}

// promise: SG-9
#[tokio::test(start_paused = true)]
async fn past_its_deadline_a_saga_goes_backward_however_it_is_spent() {
    // In a step.
    let trace = Trace::default();
    let saga = Saga::durable("order", MemorySagaStore::new())
        .deadline(10 * SECOND)
        .step("pay", noted(&trace))
        .compensate_with(undone(&trace))
        .step("reserve", hangs::<u32>)
        .retry(RetryPolicy::fixed(9, SECOND))
        .when_in_doubt(undone(&trace))
        .build()
        .unwrap();
    let began = Instant::now();
    let result = saga.run("o-1", &1).await.unwrap();
    assert!(began.elapsed() >= 10 * SECOND && began.elapsed() < 11 * SECOND);
    assert_eq!(trace.all(), ["pay 1 #1", "undo reserve 2 #1", "undo pay 2 #1"]);
    assert!(result.failure().unwrap().is_in_doubt());

    // Between attempts.
    let saga = Saga::durable("order", MemorySagaStore::new())
        .deadline(10 * SECOND)
        .step("pay", fails::<u32>)
        .retry(RetryPolicy::fixed(99, 4 * SECOND))
        .build()
        .unwrap();
    let began = Instant::now();
    let result = saga.run("o-1", &1).await.unwrap();
    assert!(began.elapsed() >= 10 * SECOND && began.elapsed() < 12 * SECOND);
    assert!(result.failure().unwrap().reason().contains("deadline of 10s"), "{result}");

    // While nobody was there.
    let (store, trace) = (MemorySagaStore::new(), Trace::default());
    let saga = Saga::durable("order", store)
        .deadline(10 * SECOND)
        .step("pay", noted(&trace))
        .build()
        .unwrap();
    let _ = saga.start("o-1", &1).await.unwrap();
    tokio::time::sleep(11 * SECOND).await;
    let _worker = saga.worker().start();
    until(&saga, "o-1", SagaStatus::Compensated).await;
    assert!(trace.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_a_step_takes_longer() {
    let trace = Trace::default();
    let slow = {
        let trace = trace.clone();
        move |given: u32, step: StepContext| {
            trace.note(format!("{} #{}", step.step(), step.attempt()));
            async move {
                tokio::time::sleep(10 * LEASE).await;
                Ok::<_, HandlerError>(given + 1)
            }
        }
    };
    let saga = Saga::durable("order", MemorySagaStore::new())
        .step("pay", slow)
        .timeout(20 * LEASE)
        .build()
        .unwrap();
    let _idle = saga.worker().start();
    let worker = saga.worker().start();
    assert_eq!(saga.run("o-1", &1).await.unwrap().output(), Some(&2));
    assert_eq!(trace.all(), ["pay #1"]);
    assert_eq!(worker.counters().taken, 0);
}
