//! Order where it matters, on every broker.

mod by_key;
mod failing;
mod partitions;
mod partitions_failing;
mod pausing;
mod replicas;
mod watching;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use acemq::{HandlerError, Message, Publisher};

use crate::support::Broker;

/// A message's payload: a key and a number, counted for each key.
fn payload(key: &str, number: u32) -> String {
    format!("{key}:{number}")
}

fn key_of(payload: &str) -> &str {
    payload.split(':').next().unwrap()
}

fn number_of(payload: &str) -> u32 {
    payload.split(':').nth(1).unwrap().parse().unwrap()
}

/// What was handled, in the order in which handlers began, and whether any two of one key ran at once.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    handled: Vec<String>,
    running: HashMap<String, u32>,
    most_at_once: usize,
    overlapped: bool,
}

impl Log {
    fn begin(&self, payload: &str) {
        let mut seen = self.0.lock().unwrap();
        seen.handled.push(payload.to_owned());
        let running = seen.running.entry(key_of(payload).to_owned()).or_default();
        *running += 1;
        let overlaps = *running > 1;
        seen.overlapped |= overlaps;
        seen.most_at_once = seen.most_at_once.max(seen.running.len());
    }

    fn end(&self, payload: &str) {
        self.0.lock().unwrap().running.remove(key_of(payload));
    }

    fn handled(&self) -> Vec<String> {
        self.0.lock().unwrap().handled.clone()
    }

    /// The numbers of a key, as they were handled.
    fn numbers(&self, key: &str) -> Vec<u32> {
        let handled = self.handled();
        handled.iter().filter(|seen| key_of(seen) == key).map(|seen| number_of(seen)).collect()
    }

    fn most_at_once(&self) -> usize {
        self.0.lock().unwrap().most_at_once
    }

    /// Every key's messages came once each, one after the other, in their order.
    fn in_order(&self, keys: u32, each: u32) {
        for key in 0..keys {
            assert_eq!(self.numbers(&key.to_string()), Vec::from_iter(0..each), "key {key}");
        }
        assert!(!self.0.lock().unwrap().overlapped, "two of one key ran at once");
    }

    /// A handler that takes a moment, and a longer one every now and then.
    async fn handle(self, message: Message<String>) -> Result<(), HandlerError> {
        let payload = message.payload();
        self.begin(payload);
        if number_of(payload).is_multiple_of(3) {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        } else {
            tokio::task::yield_now().await;
        }
        self.end(payload);
        Ok(())
    }
}

/// Sends `each` messages of each key, the keys taking turns, with the key in a header.
async fn send_all(publisher: &Publisher<String>, keys: u32, each: u32) {
    for number in 0..each {
        let payloads: Vec<_> = (0..keys).map(|key| payload(&key.to_string(), number)).collect();
        let sends = payloads
            .iter()
            .map(|payload| publisher.send(payload).header("x-key", key_of(payload)).into_future());
        // One after the other would take long, and keys do not care for each other's order.
        for sent in futures_util::future::join_all(sends).await {
            sent.unwrap();
        }
    }
}

/// Has the queues of partitions deleted after the test, and their exchange.
fn partitions_of(broker: &Broker, prefix: &str, count: u32) -> String {
    let name = broker.name(prefix);
    broker.leaves(format!("{name}.partitions"));
    for partition in 0..count {
        for suffix in ["", ".dlq", ".parked"] {
            broker.leaves(format!("{name}.p{partition}{suffix}"));
        }
    }
    name
}
