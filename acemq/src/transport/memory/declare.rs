//! Declaring, binding, asking for and deleting exchanges and queues.

use std::{sync::Arc, time::Duration};

use super::{
    exchange::Exchange,
    publish::TTL_MAX,
    queue::{Queue, Rules},
    state::{Id, State},
};
use crate::{
    envelope::{HeaderValue, Headers},
    error::{Conflict, Error, ErrorKind, Result},
    transport::{BindingSpec, ConsumeEnd, ExchangeKind, ExchangeSpec, QueueInfo, QueueSpec},
};

/// RabbitMQ 4's delivery limit for a quorum queue that names none.
const DELIVERY_LIMIT: u32 = 20;

const TTL: &str = "x-message-ttl";
const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";
const DEAD_LETTER_ROUTING_KEY: &str = "x-dead-letter-routing-key";
const DELIVERY_LIMIT_ARGUMENT: &str = "x-delivery-limit";
const QUEUE_TYPE: &str = "x-queue-type";
const SINGLE_ACTIVE: &str = "x-single-active-consumer";

impl State {
    pub(super) fn declare_exchange(&mut self, spec: &ExchangeSpec) -> Result<()> {
        let fail = |kind, why: &str| Err(exchange_error(kind, "declare", &spec.name, why));
        if spec.name.is_empty() {
            return fail(ErrorKind::Refused, "the default exchange cannot be declared");
        }
        if spec.name.len() > 255 {
            return fail(ErrorKind::TooLarge, "the name is longer than 255 bytes");
        }
        if spec.kind == ExchangeKind::Headers {
            return fail(ErrorKind::Unsupported, "the memory transport has no headers exchanges");
        }
        if let Some(argument) = spec.arguments.keys().next() {
            let why = format!("the memory transport does not know the argument {argument:?}");
            return fail(ErrorKind::Unsupported, &why);
        }
        let Some(existing) = self.exchanges.get(&spec.name) else {
            if spec.name.starts_with("amq.") {
                return fail(ErrorKind::Refused, "names that begin with amq. are the broker's");
            }
            self.exchanges.insert(spec.name.clone(), Exchange::new(spec));
            return Ok(());
        };
        let shown = |value: bool| value.to_string();
        let differs = [
            ("type", spec.kind.as_str().to_owned(), existing.kind.as_str().to_owned()),
            ("durable", shown(spec.durable), shown(existing.durable)),
            ("auto_delete", shown(spec.auto_delete), shown(existing.auto_delete)),
            ("internal", shown(spec.internal), shown(existing.internal)),
        ];
        match differs.into_iter().find(|(_, declared, existing)| declared != existing) {
            None => Ok(()),
            Some((argument, declared, existing)) => {
                let why = conflict_text(argument, &declared, &existing);
                Err(exchange_error(ErrorKind::Conflict, "declare", &spec.name, &why)
                    .with_conflict(Conflict::new(argument, declared, existing)))
            }
        }
    }

    pub(super) fn declare_queue(&mut self, link: Id, spec: &QueueSpec) -> Result<QueueInfo> {
        let name = if spec.name.is_empty() {
            format!("amq.gen-{}", uuid::Uuid::new_v4().simple())
        } else {
            spec.name.clone()
        };
        let fail = |kind, why: &str| Err(queue_error(kind, "declare", &name, why));
        if name.len() > 255 {
            return fail(ErrorKind::TooLarge, "the name is longer than 255 bytes");
        }
        let rules = match rules(&spec.arguments) {
            Ok(rules) => rules,
            Err((kind, why)) => return fail(kind, &why),
        };
        if rules.quorum && (!spec.durable || spec.exclusive || spec.auto_delete) {
            let why = "a quorum queue is durable, and neither exclusive nor auto-delete";
            return fail(ErrorKind::Config, why);
        }
        if self.queues.contains_key(name.as_str()) {
            let existing = self.queue_for(link, &name, "declare")?;
            if existing.owner.is_some() != spec.exclusive {
                return fail(ErrorKind::Refused, "exclusive differs from its first declaration");
            }
            return match conflict(spec, existing) {
                None => Ok(existing.info()),
                Some(conflict) => {
                    let Conflict { argument, declared, existing } = &conflict;
                    let why = conflict_text(argument, declared, existing);
                    Err(queue_error(ErrorKind::Conflict, "declare", &name, &why)
                        .with_conflict(conflict))
                }
            };
        }
        if spec.name.starts_with("amq.") {
            return fail(ErrorKind::Refused, "names that begin with amq. are the broker's");
        }
        let name: Arc<str> = name.into();
        let owner = spec.exclusive.then_some(link);
        let queue = Queue::new(self.next_id(), name.clone(), owner, spec, rules);
        let info = queue.info();
        self.queues.insert(name, queue);
        Ok(info)
    }

    pub(super) fn bind(&mut self, link: Id, binding: &BindingSpec) -> Result<()> {
        let BindingSpec { queue, exchange, routing_key, arguments } = binding;
        let fail = |kind, why: &str| {
            Err(Error::new(kind, format!("bind queue {queue:?} to exchange {exchange:?}: {why}"))
                .with_queue(queue)
                .with_exchange(exchange)
                .with_routing_key(routing_key))
        };
        if exchange.is_empty() {
            return fail(
                ErrorKind::Refused,
                "every queue is bound to the default exchange already",
            );
        }
        if let Some(argument) = arguments.keys().next() {
            let why = format!("the memory transport does not know the argument {argument:?}");
            return fail(ErrorKind::Unsupported, &why);
        }
        if routing_key.len() > 255 {
            return fail(ErrorKind::TooLarge, "the routing key is longer than 255 bytes");
        }
        let name = self.queue_for(link, queue, "bind")?.name.clone();
        match self.exchanges.get_mut(exchange) {
            None => {
                Err(exchange_error(ErrorKind::NotFound, "bind a queue to", exchange, NOT_FOUND))
            }
            Some(exchange) => {
                exchange.bind(name, binding);
                Ok(())
            }
        }
    }

    /// As in RabbitMQ, unbinding what is not there is no error.
    pub(super) fn unbind(&mut self, link: Id, binding: &BindingSpec) -> Result<()> {
        let BindingSpec { queue, exchange, routing_key, .. } = binding;
        if self.queues.contains_key(queue.as_str()) {
            self.queue_for(link, queue, "unbind")?;
        }
        if let Some(found) = self.exchanges.get_mut(exchange)
            && found.unbind(queue, Some(routing_key))
        {
            self.exchanges.remove(exchange);
        }
        Ok(())
    }

    pub(super) fn inspect(&mut self, link: Id, name: &str) -> Result<Option<QueueInfo>> {
        if !self.queues.contains_key(name) {
            return Ok(None);
        }
        Ok(Some(self.queue_for(link, name, "inspect")?.info()))
    }

    pub(super) fn purge(&mut self, link: Id, name: &str) -> Result<u64> {
        let queue = self.queue_for(link, name, "purge")?;
        let purged = queue.ready.len() as u64;
        queue.ready.clear();
        Ok(purged)
    }

    pub(super) fn delete_queue(&mut self, link: Id, name: &str) -> Result<()> {
        if self.queues.contains_key(name) {
            self.queue_for(link, name, "delete")?;
            self.remove_queue(name);
        }
        Ok(())
    }

    pub(super) fn delete_exchange(&mut self, name: &str) -> Result<()> {
        if name.is_empty() || name.starts_with("amq.") {
            let why = "it is the broker's own";
            return Err(exchange_error(ErrorKind::Refused, "delete", name, why));
        }
        self.exchanges.remove(name);
        Ok(())
    }

    /// Removes a queue with its bindings, and cancels its consumers.
    pub(super) fn remove_queue(&mut self, name: &str) {
        let Some(queue) = self.queues.remove(name) else { return };
        if let Some(deadline) = queue.deadline {
            self.deadlines.remove(&(deadline, queue.name.clone()));
        }
        self.exchanges.retain(|_, exchange| !exchange.unbind(name, None));
        for consumer in queue.consumers {
            self.end_consumer(consumer, ConsumeEnd::CancelledByBroker);
        }
    }

    /// The queue, if it is there and not another link's alone.
    pub(super) fn queue_for(&mut self, link: Id, name: &str, doing: &str) -> Result<&mut Queue> {
        match self.queues.get_mut(name) {
            None => Err(queue_error(ErrorKind::NotFound, doing, name, NOT_FOUND)),
            Some(queue) if queue.owner.is_some_and(|owner| owner != link) => {
                let why = "it is exclusive to another connection";
                Err(queue_error(ErrorKind::Refused, doing, name, why))
            }
            Some(queue) => Ok(queue),
        }
    }
}

const NOT_FOUND: &str = "it does not exist; declare it";

fn queue_error(kind: ErrorKind, doing: &str, queue: &str, why: &str) -> Error {
    Error::new(kind, format!("{doing} queue {queue:?}: {why}")).with_queue(queue)
}

fn exchange_error(kind: ErrorKind, doing: &str, exchange: &str, why: &str) -> Error {
    Error::new(kind, format!("{doing} exchange {exchange:?}: {why}")).with_exchange(exchange)
}

fn conflict_text(argument: &str, declared: &str, existing: &str) -> String {
    format!(
        "it exists with {argument} {existing}, and {declared} was declared; declare it as it is, \
         or delete it first"
    )
}

/// Reads a queue's arguments. What is not understood is refused, never ignored; names that do not
/// begin with `x-` mean nothing to RabbitMQ either.
fn rules(arguments: &Headers) -> Result<Rules, (ErrorKind, String)> {
    if arguments.get(QUEUE_TYPE).and_then(HeaderValue::as_str) == Some("stream") {
        let why = "the memory transport has no streams; use RabbitMQ, from 3.9 on";
        return Err((ErrorKind::Unsupported, why.to_owned()));
    }
    let mut rules = Rules::default();
    for (name, value) in arguments {
        match name.as_str() {
            TTL => rules.ttl = Some(Duration::from_millis(number(name, value, TTL_MAX)?)),
            DEAD_LETTER_EXCHANGE => rules.dead_letter_exchange = Some(text(name, value)?),
            DEAD_LETTER_ROUTING_KEY => rules.dead_letter_routing_key = Some(text(name, value)?),
            DELIVERY_LIMIT_ARGUMENT => {
                let limit = number(name, value, u32::MAX.into())?;
                rules.delivery_limit = u32::try_from(limit).ok();
            }
            SINGLE_ACTIVE => match value {
                HeaderValue::Bool(single) => rules.single_active = *single,
                _ => return Err((ErrorKind::Config, format!("{name} is neither true nor false"))),
            },
            QUEUE_TYPE => match text(name, value)?.as_str() {
                "classic" => {}
                "quorum" => rules.quorum = true,
                other => {
                    let why = format!("the memory transport has no queues of type {other:?}");
                    return Err((ErrorKind::Unsupported, why));
                }
            },
            name if name.starts_with("x-") => {
                let why = format!("the memory transport does not know the argument {name:?}");
                return Err((ErrorKind::Unsupported, why));
            }
            _ => {}
        }
    }
    if rules.dead_letter_routing_key.is_some() && rules.dead_letter_exchange.is_none() {
        let why = format!("{DEAD_LETTER_ROUTING_KEY} has no {DEAD_LETTER_EXCHANGE} beside it");
        return Err((ErrorKind::Config, why));
    }
    if rules.quorum {
        rules.delivery_limit = rules.delivery_limit.or(Some(DELIVERY_LIMIT));
    } else if rules.delivery_limit.is_some() {
        let why = format!("{DELIVERY_LIMIT_ARGUMENT} is for quorum queues");
        return Err((ErrorKind::Config, why));
    }
    Ok(rules)
}

fn number(name: &str, value: &HeaderValue, max: u64) -> Result<u64, (ErrorKind, String)> {
    value
        .as_i64()
        .and_then(|number| u64::try_from(number).ok())
        .filter(|&number| number <= max)
        .ok_or_else(|| (ErrorKind::Config, format!("{name} is no number from 0 to {max}")))
}

fn text(name: &str, value: &HeaderValue) -> Result<String, (ErrorKind, String)> {
    value
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| (ErrorKind::Config, format!("{name} is no text")))
}

/// What a declaration says differently from the queue there is.
fn conflict(spec: &QueueSpec, existing: &Queue) -> Option<Conflict> {
    let flags = [
        ("durable", spec.durable, existing.durable),
        ("auto_delete", spec.auto_delete, existing.auto_delete),
    ];
    if let Some((name, declared, existing)) = flags.into_iter().find(|(_, a, b)| a != b) {
        return Some(Conflict::new(name, declared.to_string(), existing.to_string()));
    }
    let names = [
        QUEUE_TYPE,
        TTL,
        DEAD_LETTER_EXCHANGE,
        DEAD_LETTER_ROUTING_KEY,
        DELIVERY_LIMIT_ARGUMENT,
        SINGLE_ACTIVE,
    ];
    names.into_iter().find_map(|name| {
        let declared = shown(name, &spec.arguments);
        let existing = shown(name, &existing.arguments);
        (declared != existing).then(|| Conflict::new(name, declared, existing))
    })
}

/// An argument's value as RabbitMQ compares it: integers of any width are alike.
fn shown(name: &str, arguments: &Headers) -> String {
    match arguments.get(name) {
        None if name == QUEUE_TYPE => "classic".to_owned(),
        None => "none".to_owned(),
        Some(value) => match (value.as_str(), value.as_i64()) {
            (Some(text), _) => text.to_owned(),
            (_, Some(number)) => number.to_string(),
            _ => format!("{value:?}"),
        },
    }
}
