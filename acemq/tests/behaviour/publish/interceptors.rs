//! What publish interceptors see and may do.

use std::sync::{Arc, Mutex};

use acemq::{
    BoxError, Error, ErrorKind, PublishContext, PublishInterceptor, Queue, Receipt,
    testing::MemoryBroker,
};

type Log = Arc<Mutex<Vec<String>>>;

/// Writes down its calls; refuses or panics when told to by its name.
struct Notes {
    name: &'static str,
    order: i32,
    log: Log,
}

impl Notes {
    fn note(&self, what: &str, message: &PublishContext) {
        let note = format!("{} {what} {}", self.name, message.envelope.id());
        self.log.lock().unwrap().push(note);
    }
}

impl PublishInterceptor for Notes {
    fn order(&self) -> i32 {
        self.order
    }

    fn before_publish(&self, message: &mut PublishContext) -> Result<(), BoxError> {
        self.note("before", message);
        match self.name {
            "refuses" => Err("not today".into()),
            "panics" => panic!("on purpose"),
            _ => Ok(()),
        }
    }

    fn after_confirm(&self, message: &PublishContext, _: &Receipt) {
        self.note("after", message);
        assert_ne!(self.name, "panics later", "on purpose");
    }

    fn on_error(&self, message: &PublishContext, error: &Error) {
        self.note(&format!("error {:?}", error.kind()), message);
    }
}

async fn client(broker: &MemoryBroker, names: &[(&'static str, i32)]) -> (acemq::Client, Log) {
    let log = Log::default();
    let mut connect = acemq::connect(broker.url());
    for &(name, order) in names {
        connect = connect.intercept_publish(Notes { name, order, log: Arc::clone(&log) });
    }
    let mq = connect.await.unwrap();
    mq.declare_queue(&Queue::new("orders")).await.unwrap();
    (mq, log)
}

fn notes(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

#[tokio::test]
async fn interceptors_run_in_their_order_and_backwards_on_the_way_back() {
    let broker = MemoryBroker::new();
    let (mq, log) = client(&broker, &[("second", 1), ("third", 1), ("first", -1)]).await;

    mq.send_to_queue("orders", "o-1").id("m").await.unwrap();
    assert_eq!(
        notes(&log),
        [
            "first before m",
            "second before m",
            "third before m",
            "third after m",
            "second after m",
            "first after m"
        ]
    );

    mq.send_to_queue("nobody", "o-1").id("m").await.unwrap_err();
    assert_eq!(
        notes(&log)[3..],
        ["third error Unroutable m", "second error Unroutable m", "first error Unroutable m"]
    );
}

#[tokio::test]
async fn a_refusal_sends_nothing_and_is_told_to_those_that_had_their_turn() {
    let broker = MemoryBroker::new();
    for name in ["refuses", "panics"] {
        let (mq, log) = client(&broker, &[("first", 0), (name, 1), ("last", 2)]).await;

        let error = mq.send_to_queue("orders", "o-1").id("m").await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Interceptor);
        assert_eq!(error.message_id(), Some("m"));
        let reason = if name == "panics" { "it panicked" } else { "not today" };
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(
            notes(&log),
            [
                "first before m".to_owned(),
                format!("{name} before m"),
                "first error Interceptor m".to_owned()
            ]
        );
    }
    assert!(broker.published().is_empty());
}

#[tokio::test]
async fn a_panic_on_the_way_back_changes_nothing_about_the_message() {
    let broker = MemoryBroker::new();
    let (mq, log) = client(&broker, &[("first", 0), ("panics later", 1)]).await;
    assert!(mq.send_to_queue("orders", "o-1").id("m").await.unwrap().confirmed);
    assert_eq!(notes(&log).last().unwrap(), "first after m");
}

#[tokio::test]
async fn an_interceptor_may_change_where_a_message_goes_and_what_is_on_it() {
    struct Reroute;
    impl PublishInterceptor for Reroute {
        fn before_publish(&self, message: &mut PublishContext) -> Result<(), BoxError> {
            message.exchange = String::new();
            message.routing_key = "orders".to_owned();
            message.envelope = message.envelope.clone().with_header("x-tenant", "acme")?;
            Ok(())
        }
    }
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).intercept_publish(Reroute).await.unwrap();
    mq.declare_queue(&Queue::new("orders")).await.unwrap();

    mq.publisher::<String>("elsewhere", "key").send(&"o-1".into()).id("m").await.unwrap();

    let queue = broker.queue("orders").unwrap();
    assert_eq!(queue[0].message_id(), Some("m"));
    assert_eq!(queue[0].headers()["x-tenant"].as_str(), Some("acme"));
}

#[tokio::test]
async fn in_a_batch_interceptors_run_once_per_message() {
    let broker = MemoryBroker::new();
    let (mq, log) = client(&broker, &[("one", 0)]).await;
    mq.publisher::<u32>("", "orders").send_all(&[1, 2, 3]).await.unwrap();
    let notes = notes(&log);
    assert_eq!(notes.iter().filter(|note| note.contains("before")).count(), 3);
    assert_eq!(notes.iter().filter(|note| note.contains("after")).count(), 3);
}
