//! The way of a message from a publish into queues.

use std::sync::Arc;

use super::{
    death::{self, Reason},
    message::MemoryMessage,
    queue::Stored,
    state::{QueueName, State},
};
use crate::{
    envelope::HeaderValue,
    error::ErrorKind,
    transport::{Outgoing, PublishFailure, limits},
};

/// The one user of a memory broker, for the `user-id` property.
pub(super) const USER: &str = "guest";

/// The longest lifetime that RabbitMQ takes, in milliseconds: ten years.
pub(super) const TTL_MAX: u64 = 10 * 365 * 86_400_000;

impl State {
    /// Publishes one message and says what RabbitMQ would answer.
    pub(super) fn publish(&mut self, message: &Arc<Outgoing>) -> Result<(), PublishFailure> {
        self.check(message)?;
        let queues = self.route(message, &["CC", "BCC"]);
        if let Some(queue) = queues.iter().find(|queue| self.cannot_order(queue, message)) {
            return Err(refused(
                message,
                ErrorKind::Unsupported,
                &format!(
                    "a priority changes the order in quorum queue {queue:?}, which the memory \
                     transport does not do"
                ),
            ));
        }
        self.remember(MemoryMessage::published(message.clone(), !queues.is_empty()));
        if queues.is_empty() {
            return if message.mandatory {
                Err(PublishFailure::Unroutable { code: 312, reason: "NO_ROUTE".to_owned() })
            } else {
                Ok(())
            };
        }
        let message = without_blind_copies(message);
        for queue in &*queues {
            self.enqueue(queue, message.clone());
        }
        Ok(())
    }

    /// What a queue does with a message that it gives up.
    pub(super) fn bury(&mut self, name: &str, stored: &Stored, reason: Reason) {
        let Some(rules) = self.queues.get(name).map(|queue| &queue.rules) else { return };
        let Some(exchange) = rules.dead_letter_exchange.as_deref() else { return };
        let target = (exchange, rules.dead_letter_routing_key.as_deref());
        let now = self.clock.now();
        let letter = death::dead_letter(&stored.message, name, reason, target, now);
        let letter = Arc::new(letter);
        for queue in &*self.route(&letter, &["CC"]) {
            if reason == Reason::Rejected || !death::goes_round(&letter, queue) {
                self.enqueue(queue, letter.clone());
            }
        }
    }

    fn check(&self, message: &Outgoing) -> Result<(), PublishFailure> {
        let refuse = |kind, why: &str| Err(refused(message, kind, why));
        if !message.exchange.is_empty() {
            match self.exchanges.get(&message.exchange) {
                None => {
                    return refuse(ErrorKind::NotFound, "the exchange does not exist; declare it");
                }
                Some(exchange) if exchange.internal => {
                    return refuse(ErrorKind::Refused, "the exchange is internal");
                }
                Some(_) => {}
            }
        }
        let properties = &message.properties;
        if let Some(expiration) = &properties.expiration
            && !expiration.parse::<u64>().is_ok_and(|millis| millis <= TTL_MAX)
        {
            return refuse(
                ErrorKind::Config,
                &format!("the expiration {expiration:?} is not a number of milliseconds"),
            );
        }
        if properties.reply_to.as_deref() == Some("amq.rabbitmq.reply-to") {
            return refuse(
                ErrorKind::Unsupported,
                "the memory transport has no direct reply-to; reply to a queue",
            );
        }
        for name in ["CC", "BCC"] {
            let keys = match properties.headers.get(name) {
                None => continue,
                Some(HeaderValue::List(keys)) => keys,
                Some(_) => return refuse(ErrorKind::Config, &format!("{name} is not a list")),
            };
            if keys.iter().any(|key| key.as_str().is_none()) {
                return refuse(
                    ErrorKind::Config,
                    &format!("{name} holds something that is no text"),
                );
            }
        }
        Ok(())
    }

    /// The queues for a message: by its routing key, and by those in the headers named.
    fn route(&mut self, message: &Outgoing, copies: &[&str]) -> Arc<[QueueName]> {
        let headers = &message.properties.headers;
        let mut queues = self.route_key(&message.exchange, &message.routing_key);
        for key in copies.iter().flat_map(|name| death::copy_keys(headers, name)) {
            let more = self.route_key(&message.exchange, key);
            let new = more.iter().filter(|queue| !queues.contains(queue));
            queues = queues.iter().chain(new).cloned().collect();
        }
        queues
    }

    fn route_key(&mut self, exchange: &str, key: &str) -> Arc<[QueueName]> {
        if exchange.is_empty() {
            // The default exchange: every queue is bound to it by its name.
            return self
                .queues
                .get_key_value(key)
                .map(|(name, _)| name.clone())
                .into_iter()
                .collect();
        }
        self.exchanges.get_mut(exchange).map(|exchange| exchange.route(key)).unwrap_or_default()
    }

    /// RabbitMQ 4's quorum queues look at a message's priority without having been asked to; a
    /// classic queue does only where it was declared with priorities, which is refused.
    fn cannot_order(&self, queue: &str, message: &Outgoing) -> bool {
        message.properties.priority.is_some()
            && self.queues.get(queue).is_some_and(|queue| queue.rules.quorum)
    }
}

fn refused(message: &Outgoing, kind: ErrorKind, why: &str) -> PublishFailure {
    PublishFailure::Refused(limits::about(message, kind, why))
}

/// Blind copies are not for the readers to see.
fn without_blind_copies(message: &Arc<Outgoing>) -> Arc<Outgoing> {
    if !message.properties.headers.contains_key("BCC") {
        return message.clone();
    }
    let mut message = Outgoing::clone(message);
    message.properties.headers.remove("BCC");
    Arc::new(message)
}
