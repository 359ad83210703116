use super::*;

#[test]
fn what_cannot_work_is_refused_when_the_saga_is_built() {
    let build = |name: &str, steps: &[&str]| {
        let (first, rest) = steps.split_first().unwrap();
        let saga = Saga::durable(name, MemorySagaStore::new());
        let mut saga = saga.step(*first, noted(&Trace::default()));
        for step in rest {
            saga = saga.step(*step, noted(&Trace::default()));
        }
        saga.build().map(drop)
    };
    for (name, steps, fault) in [
        ("", &["a"][..], "it has no name"),
        ("a/b", &["a"], "a slash"),
        (&"n".repeat(101), &["a"], "101 bytes"),
        ("s", &["a", ""], "no name"),
        ("s", &["a", "b", "a"], "two of its steps are called \"a\""),
    ] {
        let error = build(name, steps).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(fault), "{error}");
    }
    build(&"n".repeat(100), &["a", "b"]).unwrap();

    let saga = || Saga::durable("s", MemorySagaStore::new());
    let zero = saga().deadline(Duration::ZERO).step("a", noted(&Trace::default())).build();
    assert!(zero.unwrap_err().to_string().contains("deadline is zero"));
    let zero = saga().step("a", noted(&Trace::default())).timeout(Duration::ZERO).build();
    assert!(zero.unwrap_err().to_string().contains("timeout"));
    let sends = |_: u32, _: StepContext| std::future::ready(Ok::<_, HandlerError>([]));
    let without = saga().step_by_message::<u32, _, _, _>("a", sends).build().unwrap_err();
    assert!(without.to_string().contains("no outbox"), "{without}");
}

#[tokio::test(start_paused = true)]
async fn the_longest_of_all_times_are_taken() {
    let saga = Saga::durable("s", MemorySagaStore::new())
        .lease(Duration::MAX)
        .deadline(Duration::MAX)
        .step("a", noted(&Trace::default()))
        .timeout(Duration::MAX)
        .build()
        .unwrap();
    assert!(saga.run("o-1", &1).await.unwrap().is_complete());
}

#[tokio::test]
async fn an_id_that_cannot_be_a_key_is_refused_before_anything_runs() {
    let (store, trace) = (Spy::new(), Trace::default());
    let saga = three_steps(store.clone(), &trace);
    for (id, kind) in [
        ("", ErrorKind::Config),
        ("a\0b", ErrorKind::Encode),
        (&*"i".repeat(250), ErrorKind::TooLarge),
    ] {
        assert_eq!(saga.run(id, &1).await.unwrap_err().kind(), kind);
        assert_eq!(saga.start(id, &1).await.unwrap_err().kind(), kind);
    }
    let nan = Saga::durable("s", store.clone())
        .step("a", |_: f64, _| std::future::ready(Ok::<_, HandlerError>(1)))
        .build()
        .unwrap();
    assert_eq!(nan.run("o-1", &f64::NAN).await.unwrap_err().kind(), ErrorKind::Encode);
    assert!(store.calls().is_empty() && trace.all().is_empty());
}
