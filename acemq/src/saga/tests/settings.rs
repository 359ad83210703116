//! What a saga is built of.

use super::*;

async fn one(n: u32) -> Result<u32, HandlerError> {
    Ok(n + 1)
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let retry = |policy| Saga::named("s").step("one", one).retry(policy).build();
    let second = |name: &str| Saga::named("s").step("one", one).step(name, one).build();
    let refused = [
        Saga::named("").step("one", one).build(),
        Saga::named("s").step("", one).build(),
        second("one"),
        Saga::named("s").step("one", one).timeout(Duration::ZERO).build(),
        Saga::named("s").step("one", one).compensation_timeout(Duration::ZERO).build(),
        retry(RetryPolicy::fixed(3, Duration::ZERO).jitter(f64::NAN)),
        retry(RetryPolicy::exponential(3, Duration::ZERO, Duration::ZERO).multiplier(0.5)),
    ];
    for saga in refused {
        let error = saga.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
    let error = second("one").unwrap_err();
    assert_eq!(error.to_string(), "build the saga \"s\": two of its steps are called \"one\"");
    assert!(second("two").is_ok());
}

#[test]
fn a_saga_knows_its_steps_by_name() {
    let saga = Saga::<u32>::named("s").step("one", one).step("two", one).build().unwrap();
    assert_eq!(saga.name(), "s");
    assert_eq!(saga.steps().collect::<Vec<_>>(), ["one", "two"]);
    let debug = format!("{saga:?}");
    assert!(debug.contains("\"one\"") && debug.contains("\"two\""), "{debug}");
}

#[tokio::test]
async fn the_types_can_be_named_and_steps_may_be_closures_with_state() {
    struct Service {
        saga: Saga<String, usize>,
    }
    let prefix = "order ".to_owned();
    let saga = Saga::named("s")
        .step("name", move |id: String| {
            let prefix = prefix.clone();
            async move { Ok(prefix + &id) }
        })
        .step("measure", async |name: String| Ok(name.len()))
        .build()
        .unwrap();
    let service = Service { saga };
    let run: RunSaga<usize> = service.saga.run("o-1".to_owned());
    let result: SagaResult<usize> = tokio::spawn(run).await.unwrap();
    assert_eq!(result.output(), Some(&9));
}
