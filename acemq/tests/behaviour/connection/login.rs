//! Logins that change.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use acemq::{ConnectionState, Credentials, CredentialsProvider, ErrorKind, StateWatch};
use testkit::{OwnBroker, Proxy, amqp_url};

const SOON: Duration = Duration::from_secs(30);

async fn wait_for(states: &mut StateWatch, wanted: impl FnMut(&ConnectionState) -> bool) {
    tokio::time::timeout(SOON, states.wait_for(wanted)).await.expect("the state in time");
}

#[tokio::test]
async fn a_login_that_was_changed_is_used_from_the_next_connection_on() {
    let Some(broker) = OwnBroker::start().await else { return };
    broker.ctl(&["add_user", "ada", "one:hush"]).await;
    broker.ctl(&["set_permissions", "ada", ".*", ".*", ".*"]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("login");
    std::fs::write(&file, "ada:one:hush\n").unwrap();
    let (log, _guard) = testkit::logs::of_this_thread();
    let mq =
        acemq::connect(broker.url()).credentials(CredentialsProvider::file(&file)).await.unwrap();
    let mut states = mq.publishing();
    let address = states.address().unwrap();
    assert!(address.starts_with("amqp://ada@"), "{address}");

    broker.ctl(&["change_password", "ada", "two hush"]).await;
    broker.ctl(&["close_all_connections", "the password was changed"]).await;
    wait_for(
        &mut states,
        |state| matches!(state, ConnectionState::Recovering { attempt, .. } if *attempt > 1),
    )
    .await;
    let ConnectionState::Recovering { reason, .. } = states.current() else {
        panic!("{:?}", states.current())
    };
    assert!(reason.contains("check the user and the password"), "{reason}");

    std::fs::write(&file, "ada:two hush").unwrap();
    wait_for(&mut states, |state| *state == ConnectionState::Connected).await;
    mq.declare_queue(&acemq::Queue::new("orders")).await.unwrap();
    mq.send_to_queue("orders", "o-1").await.unwrap();
    mq.close().await.unwrap();
    assert_eq!(log.lines_with(&["hush"]), Vec::<String>::new());
}

#[tokio::test]
async fn a_password_may_hold_any_character() {
    let Some(broker) = OwnBroker::start().await else { return };
    let at = broker.url().split_once('@').unwrap().1.to_owned();
    let password = " p@ss/w:ö,rd?#%[]\"'&=+\\ ";
    broker.ctl(&["add_user", "a b/c", password]).await;
    broker.ctl(&["set_permissions", "a b/c", ".*", ".*", ".*"]).await;
    let encoded: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let by_address = acemq::connect(format!("amqp://a%20b%2Fc:{encoded}@{at}"));
    let by_provider =
        acemq::connect(format!("amqp://{at}")).credentials(Credentials::new("a b/c", password));
    for connect in [by_address, by_provider] {
        connect.await.unwrap().close().await.unwrap();
    }
}

#[tokio::test]
async fn a_provider_that_fails_fails_the_attempt_and_is_asked_again() {
    let Some(url) = amqp_url() else { return };
    let mut proxy = Proxy::in_front_of(&url).await;
    let sealed = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&sealed);
    let provider = CredentialsProvider::function(move || {
        let sealed = state.load(Ordering::SeqCst);
        async move {
            match sealed {
                true => Err("the vault is sealed".into()),
                false => Ok(Credentials::new("guest", "guest")),
            }
        }
    });
    let connect = || {
        acemq::connect(proxy.url_for(&url).replace("guest:guest", "ada:wrong"))
            .credentials(provider.clone())
    };
    let error = connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(error.to_string().contains("the vault is sealed"), "{error}");

    sealed.store(false, Ordering::SeqCst);
    let mq = connect().await.unwrap();
    let mut states = mq.publishing();
    sealed.store(true, Ordering::SeqCst);
    proxy.cut().await;
    proxy.restore().await;
    wait_for(&mut states, |state| {
        matches!(state, ConnectionState::Recovering { reason, .. } if reason.contains("sealed"))
    })
    .await;
    sealed.store(false, Ordering::SeqCst);
    wait_for(&mut states, |state| *state == ConnectionState::Connected).await;
    mq.close().await.unwrap();
}

#[tokio::test]
async fn a_provider_that_never_answers_costs_the_bound() {
    let error = acemq::connect("amqp://127.0.0.1:1")
        .credentials(CredentialsProvider::function(std::future::pending))
        .connect_timeout(Duration::from_millis(50))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("login"), "{error}");
}
