//! What can be known to be wrong with a topology without asking a broker.

use std::collections::HashSet;

use super::{Queue, Topology, objects::Objects};
use crate::error::{Error, ErrorKind, Result};

impl Topology {
    /// Looks for what cannot work, without a broker: two exchanges or queues of one name, or a binding
    /// twice; something without a name; a binding to the default exchange, which has every queue
    /// already; an exclusive, auto-delete or transient quorum queue; dead letters that go two ways; a name
    /// with a control character.
    ///
    /// [`Client::plan`](crate::Client::plan) and what is built on it begin with this.
    ///
    /// ```
    /// use acemq::{ErrorKind, Queue, Topology};
    ///
    /// let topology = Topology::new().queue(Queue::new("orders.new")).queue(Queue::new("orders.new"));
    /// assert_eq!(topology.check().unwrap_err().kind(), ErrorKind::Config);
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming the first of them.
    pub fn check(&self) -> Result<()> {
        let mut exchanges = HashSet::new();
        for exchange in &self.exchanges {
            let name = &*exchange.0.name;
            if name.is_empty() {
                return refuse("an exchange has no name; the default exchange is always there");
            }
            if !exchanges.insert(name) {
                return refuse(&format!("two exchanges are called \"{name}\""));
            }
        }
        let mut queues = HashSet::new();
        for queue in &self.queues {
            queue.check()?;
            if !queues.insert(&*queue.spec.name) {
                return refuse(&format!("two queues are called \"{}\"", queue.spec.name));
            }
        }
        for (place, binding) in self.bindings.iter().enumerate() {
            let [queue, exchange] = [&binding.queue, &binding.exchange];
            if queue.is_empty() {
                return refuse(&format!("a binding to exchange \"{exchange}\" names no queue"));
            }
            if exchange.is_empty() {
                return refuse(&format!(
                    "queue \"{queue}\" is bound to the default exchange, which routes to every \
                     queue by its name already; leave the binding out"
                ));
            }
            if self.bindings.iter().take(place).any(|other| other == binding) {
                let key = &binding.routing_key;
                return refuse(&format!(
                    "queue \"{queue}\" is bound twice to exchange \"{exchange}\" with \"{key}\""
                ));
            }
        }
        Objects::of(self)?.check()
    }
}

impl Objects {
    /// With what belongs to the queues there may be two of one name again, in two forms.
    fn check(&self) -> Result<()> {
        let exchanges: Vec<&str> = self.exchanges.iter().map(|it| &*it.name).collect();
        let queues: Vec<&str> = self.queues.iter().map(|it| &*it.name).collect();
        let ends = self.bindings.iter().flat_map(|it| [&*it.queue, &*it.routing_key]);
        let mut names = exchanges.iter().chain(&queues).copied().chain(ends);
        if let Some(name) = names.find(|name| name.chars().any(char::is_control)) {
            return refuse(&format!("the name {name:?} has a control character in it"));
        }
        for (what, names) in [("exchange", exchanges), ("queue", queues)] {
            let mut seen = HashSet::new();
            if let Some(name) = names.into_iter().find(|name| !seen.insert(*name)) {
                return refuse(&format!(
                    "{what} \"{name}\" is declared by itself and, in another form, by what a queue \
                     brings along (`dead_letters`, `retries`)"
                ));
            }
        }
        Ok(())
    }
}

impl Queue {
    fn check(&self) -> Result<()> {
        let spec = &self.spec;
        if spec.name.is_empty() {
            return refuse("a queue has no name; declare such a one by `Client::declare_queue`");
        }
        let kind = spec.arguments.get("x-queue-type").and_then(|kind| kind.as_str());
        let short_lived = spec.exclusive || spec.auto_delete || !spec.durable;
        match kind {
            Some(kind @ ("quorum" | "stream")) if short_lived => refuse(&format!(
                "queue \"{}\" is of type {kind}, which is never exclusive, auto-delete or transient; \
                 make it a classic one",
                spec.name
            )),
            _ => Ok(()),
        }
    }
}

fn refuse<T>(why: &str) -> Result<T> {
    Err(Error::new(ErrorKind::Config, format!("check a topology: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Exchange;

    fn fault(topology: &Topology) -> String {
        let error = topology.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    }

    #[test]
    fn what_cannot_work_is_named() {
        let queue = || Queue::new("q");
        let bound = |exchange: &str| Topology::new().bind("q", exchange, "k");
        for (topology, named) in [
            (
                Topology::new().exchange(Exchange::topic("x")).exchange(Exchange::fanout("x")),
                "two exchanges are called \"x\"",
            ),
            (Topology::new().exchange(Exchange::topic("")), "an exchange has no name"),
            (
                Topology::new().queue(queue()).queue(queue().classic()),
                "two queues are called \"q\"",
            ),
            (Topology::new().queue(Queue::new("")), "a queue has no name"),
            (bound(""), "bound to the default exchange"),
            (Topology::new().bind("", "x", "k"), "names no queue"),
            (bound("x").bind("q", "x", "k"), "bound twice to exchange \"x\" with \"k\""),
            (Queue::new("a\n  present  queue b").into(), "a control character"),
            (
                Topology::new().queue(queue().dead_letters()).queue(Queue::new("q.dlq")),
                "queue \"q.dlq\" is declared by itself",
            ),
            (
                Topology::from(Exchange::topic("acemq.dlx")).queue(queue().dead_letters()),
                "exchange \"acemq.dlx\" is declared by itself",
            ),
            (queue().dead_letters().argument("x-dead-letter-exchange", "x").into(), "choose one"),
            (
                queue().exclusive().argument("x-queue-type", "quorum").into(),
                "\"q\" is of type quorum, which is never exclusive",
            ),
        ] {
            let fault = fault(&topology);
            assert!(fault.contains(named), "{fault}");
        }
    }

    #[test]
    fn short_lived_queues_are_classic_and_fine() {
        for queue in [Queue::new("q").exclusive(), Queue::new("q").auto_delete()] {
            Topology::from(queue).check().unwrap();
        }
        let twice = Topology::new().bind("q", "x", "a").bind("q", "x", "b");
        twice.check().unwrap();
    }
}
