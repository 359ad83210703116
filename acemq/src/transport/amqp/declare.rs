//! Exchanges, queues and bindings. Each question has a channel of its own, since the broker
//! answers "no" by closing it.

use std::sync::Arc;

use lapin::{
    Channel,
    options::{
        ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions,
        QueueDeleteOptions, QueuePurgeOptions,
    },
    types::FieldTable,
};

use super::{
    convert::{short, table},
    limits::{check_name, check_table},
    link::{Core, Throwaway},
};
use crate::{
    error::{Error, ErrorKind, Result},
    transport::{BindingSpec, ExchangeKind, ExchangeSpec, QueueInfo, QueueSpec},
};

pub(super) async fn exchange(core: &Arc<Core>, spec: &ExchangeSpec) -> Result<()> {
    let action = format!("declare exchange {:?}", spec.name);
    check_name(&action, "name", &spec.name)?;
    check_table(&action, &spec.arguments)?;
    let (name, arguments) = (short(&spec.name)?, table(&spec.arguments)?);
    let kind = match spec.kind {
        ExchangeKind::Direct => lapin::ExchangeKind::Direct,
        ExchangeKind::Fanout => lapin::ExchangeKind::Fanout,
        ExchangeKind::Headers => lapin::ExchangeKind::Headers,
        ExchangeKind::Topic => lapin::ExchangeKind::Topic,
    };
    let options = ExchangeDeclareOptions {
        durable: spec.durable,
        auto_delete: spec.auto_delete,
        internal: spec.internal,
        ..ExchangeDeclareOptions::default()
    };
    ask(core, action, async move |channel| {
        channel.exchange_declare(name, kind, options, arguments).await
    })
    .await
    .map_err(|error| error.with_exchange(&spec.name))
}

pub(super) async fn queue(core: &Arc<Core>, spec: &QueueSpec) -> Result<QueueInfo> {
    let action = format!("declare queue {:?}", spec.name);
    check_name(&action, "name", &spec.name)?;
    check_table(&action, &spec.arguments)?;
    let (name, arguments) = (short(&spec.name)?, table(&spec.arguments)?);
    let options = QueueDeclareOptions {
        durable: spec.durable,
        exclusive: spec.exclusive,
        auto_delete: spec.auto_delete,
        ..QueueDeclareOptions::default()
    };
    ask(core, action, async move |channel| channel.queue_declare(name, options, arguments).await)
        .await
        .map(info)
        .map_err(|error| error.with_queue(&spec.name))
}

pub(super) async fn bind(core: &Arc<Core>, spec: &BindingSpec) -> Result<()> {
    let Binding { action, queue, exchange, key, arguments } = Binding::of("bind", "to", spec)?;
    ask(core, action, async move |channel| {
        channel.queue_bind(queue, exchange, key, QueueBindOptions::default(), arguments).await
    })
    .await
    .map_err(|error| error.with_queue(&spec.queue).with_exchange(&spec.exchange))
}

pub(super) async fn unbind(core: &Arc<Core>, spec: &BindingSpec) -> Result<()> {
    let Binding { action, queue, exchange, key, arguments } = Binding::of("unbind", "from", spec)?;
    ask(core, action, async move |channel| {
        channel.queue_unbind(queue, exchange, key, arguments).await
    })
    .await
    .map_err(|error| error.with_queue(&spec.queue).with_exchange(&spec.exchange))
}

pub(super) async fn inspect(core: &Arc<Core>, name: &str) -> Result<Option<QueueInfo>> {
    let action = format!("inspect queue {name:?}");
    check_name(&action, "name", name)?;
    let queue = short(name)?;
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let answer = ask(core, action, async move |channel| {
        channel.queue_declare(queue, options, FieldTable::default()).await
    })
    .await;
    found(answer.map(info)).map_err(|error| error.with_queue(name))
}

pub(super) async fn exchange_exists(core: &Arc<Core>, name: String) -> Result<bool> {
    // The default exchange is always there, and may not be asked for.
    if name.is_empty() {
        return Ok(true);
    }
    let action = format!("look for exchange {name:?}");
    check_name(&action, "name", &name)?;
    let exchange = short(&name)?;
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let answer = ask(core, action, async move |channel| {
        let kind = lapin::ExchangeKind::Direct;
        channel.exchange_declare(exchange, kind, options, FieldTable::default()).await
    })
    .await;
    found(answer).map(|found| found.is_some()).map_err(|error| error.with_exchange(name))
}

pub(super) async fn delete_queue(core: &Arc<Core>, name: &str) -> Result<()> {
    let action = format!("delete queue {name:?}");
    check_name(&action, "name", name)?;
    let queue = short(name)?;
    let answer = ask(core, action, async move |channel| {
        channel.queue_delete(queue, QueueDeleteOptions::default()).await
    })
    .await;
    found(answer).map(drop).map_err(|error| error.with_queue(name))
}

pub(super) async fn delete_exchange(core: &Arc<Core>, name: &str) -> Result<()> {
    let action = format!("delete exchange {name:?}");
    check_name(&action, "name", name)?;
    let exchange = short(name)?;
    let answer = ask(core, action, async move |channel| {
        channel.exchange_delete(exchange, ExchangeDeleteOptions::default()).await
    })
    .await;
    found(answer).map(drop).map_err(|error| error.with_exchange(name))
}

pub(super) async fn purge(core: &Arc<Core>, name: &str) -> Result<u64> {
    let action = format!("purge queue {name:?}");
    check_name(&action, "name", name)?;
    let queue = short(name)?;
    ask(core, action, async move |channel| {
        channel.queue_purge(queue, QueuePurgeOptions::default()).await
    })
    .await
    .map(u64::from)
    .map_err(|error| error.with_queue(name))
}

/// Asks one question on a channel of its own.
async fn ask<T, F, A>(core: &Arc<Core>, action: String, question: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce(Channel) -> A + Send + 'static,
    A: Future<Output = lapin::Result<T>> + Send,
{
    let (owner, what) = (Arc::clone(core), action.clone());
    core.complete(action, async move {
        let throwaway = Throwaway::open(&owner, &what).await?;
        question(throwaway.channel.clone()).await.map_err(|error| owner.error(&what, &error))
    })
    .await
}

/// "Does not exist" as an answer instead of an error.
fn found<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn info(queue: lapin::Queue) -> QueueInfo {
    QueueInfo {
        name: queue.name().as_str().to_owned(),
        messages: queue.message_count().into(),
        consumers: queue.consumer_count(),
    }
}

/// A binding's parts as lapin takes them.
struct Binding {
    action: String,
    queue: lapin::types::ShortString,
    exchange: lapin::types::ShortString,
    key: lapin::types::ShortString,
    arguments: FieldTable,
}

impl Binding {
    fn of(verb: &str, preposition: &str, spec: &BindingSpec) -> Result<Self, Error> {
        let BindingSpec { queue, exchange, routing_key, arguments } = spec;
        let action = format!(
            "{verb} queue {queue:?} {preposition} exchange {exchange:?} with routing key {routing_key:?}"
        );
        check_name(&action, "queue", queue)?;
        check_name(&action, "exchange", exchange)?;
        check_name(&action, "routing key", routing_key)?;
        check_table(&action, arguments)?;
        Ok(Self {
            action,
            queue: short(queue)?,
            exchange: short(exchange)?,
            key: short(routing_key)?,
            arguments: table(arguments)?,
        })
    }
}
