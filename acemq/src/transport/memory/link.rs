//! Connections to a memory broker.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};

use super::{
    broker::Broker,
    consumer::MemoryChannel,
    publish::USER,
    state::{Id, State},
};
use crate::{
    error::{Error, ErrorKind, Result},
    transport::{
        BindingSpec, BoxFuture, ConsumeChannel, DialOptions, ExchangeSpec, Limits, Link, LinkState,
        Publish, PublishAnswer, PublishFailure, QueueInfo, QueueSpec, ReplyStream, Streams,
        Subscription, limits,
    },
};

/// What RabbitMQ 4 allows by default.
const FRAME_MAX: usize = 128 * 1024;
const BODY_MAX: usize = 16 * 1024 * 1024;

/// A link as the broker sees it.
pub(super) struct Attached {
    state: watch::Sender<LinkState>,
    /// Whether it has ever published: RabbitMQ pauses such connections only.
    published: bool,
    /// What was handed over while publishing was paused.
    held: VecDeque<Publish>,
}

impl State {
    fn attach(&mut self, state: watch::Sender<LinkState>) -> Id {
        let id = self.next_id();
        self.links.insert(id, Attached { state, published: false, held: VecDeque::new() });
        id
    }

    /// Publishes for a link, or keeps the message while publishing is paused; the verdict is then
    /// for later.
    fn hand_over(
        &mut self,
        id: Id,
        publish: Publish,
    ) -> Option<(PublishAnswer, Result<(), PublishFailure>)> {
        let Some(link) = self.links.get_mut(&id) else {
            return Some((publish.answer, Err(not_written("the connection has ended"))));
        };
        let first = !std::mem::replace(&mut link.published, true);
        if self.blocked.is_some() {
            link.held.push_back(publish);
            if first {
                self.effects.changed.push(id);
            }
            return None;
        }
        Some((publish.answer, self.publish(&publish.message)))
    }

    pub(super) fn link_state(&self, id: Id) -> Option<(watch::Sender<LinkState>, LinkState)> {
        let link = self.links.get(&id)?;
        let state = match &self.blocked {
            Some(reason) if link.published => LinkState::Blocked(reason.clone()),
            _ => LinkState::Open,
        };
        Some((link.state.clone(), state))
    }

    pub(super) fn block(&mut self, reason: String) {
        self.blocked = Some(reason);
        self.tell_publishers();
    }

    pub(super) fn unblock(&mut self) {
        self.blocked = None;
        let held: Vec<Publish> =
            self.links.values_mut().flat_map(|link| link.held.drain(..)).collect();
        for Publish { message, answer, .. } in held {
            let verdict = self.publish(&message);
            self.effects.answers.push((answer, verdict));
        }
        self.tell_publishers();
    }

    fn tell_publishers(&mut self) {
        let publishers = self.links.iter().filter(|(_, link)| link.published);
        self.effects.changed.extend(publishers.map(|(&id, _)| id));
    }

    /// Ends links: their consumers are lost, their exclusive queues go.
    pub(super) fn end_links(&mut self, links: &[Id], reason: &str) {
        for id in links {
            let Some(link) = self.links.remove(id) else { continue };
            for Publish { answer, .. } in link.held {
                let lost = PublishFailure::Lost { written: true, reason: reason.to_owned() };
                self.effects.answers.push((answer, Err(lost)));
            }
            self.effects.ended.push((link.state, reason.to_owned()));
        }
        let of_these = |link: &Id| links.contains(link);
        let consumers: Vec<Id> = self
            .consumers
            .iter()
            .filter(|(_, consumer)| of_these(&consumer.link))
            .map(|(&id, _)| id)
            .collect();
        self.lose(&consumers, reason);
        let owned = self.queues.values().filter(|queue| queue.owner.as_ref().is_some_and(of_these));
        for queue in owned.map(|queue| queue.name.clone()).collect::<Vec<_>>() {
            self.remove_queue(&queue);
        }
    }

    /// Ends every link.
    pub(super) fn drop_connections(&mut self, reason: &str) {
        let links: Vec<Id> = self.links.keys().copied().collect();
        self.end_links(&links, reason);
    }

    /// Ends every link and loses what is not durable.
    pub(super) fn restart(&mut self) {
        self.drop_connections("the memory broker was restarted");
        self.blocked = None;
        let transient = self.queues.values().filter(|queue| !queue.durable);
        for queue in transient.map(|queue| queue.name.clone()).collect::<Vec<_>>() {
            self.remove_queue(&queue);
        }
        self.exchanges.retain(|_, exchange| exchange.durable);
        self.queues.values_mut().for_each(super::queue::Queue::restart);
    }
}

pub(super) struct MemoryLink {
    broker: Arc<Broker>,
    id: Id,
    state: watch::Sender<LinkState>,
    limits: Limits,
    publishes: bool,
    step_timeout: Duration,
    name: String,
    address: String,
}

impl MemoryLink {
    pub(super) fn open(broker: &Arc<Broker>, options: &DialOptions) -> Self {
        let (state, _) = watch::channel(LinkState::Open);
        let body_max = options.body_max.unwrap_or(BODY_MAX);
        let streams = Streams::Unknown;
        let limits = Limits { frame_max: FRAME_MAX, body_max, streams };
        Self {
            broker: broker.clone(),
            id: broker.act(|broker| broker.attach(state.clone())),
            state,
            limits,
            publishes: options.publishes,
            step_timeout: options.step_timeout,
            name: options.connection_name.clone(),
            address: format!("memory://{}", broker.name()),
        }
    }

    /// Asks the broker for something. A connection whose publishing is paused is not read at all,
    /// so its questions wait as well, up to the step timeout.
    async fn ask<T>(
        &self,
        what: impl FnOnce() -> String,
        ask: impl FnOnce(&mut State, Id) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.state.subscribe();
        let open = state.wait_for(|state| !matches!(state, LinkState::Blocked(_)));
        let reason = match timeout(self.step_timeout, open).await {
            Err(_elapsed) => {
                let what = what();
                return Err(Error::new(
                    ErrorKind::Timeout,
                    format!(
                        "{what}: no answer within {:?}, publishing is paused",
                        self.step_timeout
                    ),
                ));
            }
            Ok(Ok(state)) => match &*state {
                LinkState::Ended(reason) => Some(reason.clone()),
                LinkState::Open | LinkState::Blocked(_) => None,
            },
            // The sender is ours, so it is there.
            Ok(Err(_)) => None,
        };
        let answer = self
            .broker
            .act(|state| state.links.contains_key(&self.id).then(|| ask(state, self.id)));
        answer.unwrap_or_else(|| {
            let reason = reason.as_deref().unwrap_or("it is closed");
            Err(Error::new(
                ErrorKind::Lost,
                format!("{}: the connection has ended: {reason}", what()),
            ))
        })
    }

    fn end(&self) {
        self.broker.act(|state| state.end_links(&[self.id], "closed by the client"));
    }
}

impl Link for MemoryLink {
    fn state(&self) -> watch::Receiver<LinkState> {
        self.state.subscribe()
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn publish(&self, publish: Publish) {
        let checked = if self.publishes {
            limits::check(&publish.message, Some(USER), self.limits)
                .map_err(PublishFailure::Refused)
        } else {
            Err(not_written("the connection was not made for publishing"))
        };
        let done = match checked {
            Ok(()) => self.broker.act(|state| state.hand_over(self.id, publish)),
            Err(failure) => Some((publish.answer, Err(failure))),
        };
        if let Some((answer, verdict)) = done {
            answer.complete(verdict);
        }
    }

    fn subscribe(
        &self,
        subscription: Subscription,
    ) -> BoxFuture<'_, Result<Box<dyn ConsumeChannel>>> {
        Box::pin(async move {
            let what = || format!("consume from queue {:?}", subscription.queue);
            let subscribe = |state: &mut State, link| state.subscribe(link, &subscription);
            let id = self.ask(what, subscribe).await?;
            let channel: Box<dyn ConsumeChannel> = Box::new(MemoryChannel::new(&self.broker, id));
            Ok(channel)
        })
    }

    fn direct_replies(&self) -> BoxFuture<'_, Result<Box<dyn ReplyStream>>> {
        Box::pin(std::future::ready(Err(Error::new(
            ErrorKind::Unsupported,
            "have replies come directly: the memory transport has no direct reply-to; let the \
             requester have a queue",
        ))))
    }

    fn declare_exchange<'a>(&'a self, exchange: &'a ExchangeSpec) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.ask(
            move || format!("declare exchange {:?}", exchange.name),
            move |state, _| state.declare_exchange(exchange),
        ))
    }

    fn declare_queue<'a>(&'a self, queue: &'a QueueSpec) -> BoxFuture<'a, Result<QueueInfo>> {
        Box::pin(self.ask(
            move || format!("declare queue {:?}", queue.name),
            move |state, link| state.declare_queue(link, queue),
        ))
    }

    fn bind_queue<'a>(&'a self, binding: &'a BindingSpec) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.ask(
            move || format!("bind queue {:?} to exchange {:?}", binding.queue, binding.exchange),
            move |state, link| state.bind(link, binding),
        ))
    }

    fn unbind_queue<'a>(&'a self, binding: &'a BindingSpec) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.ask(
            move || {
                format!("unbind queue {:?} from exchange {:?}", binding.queue, binding.exchange)
            },
            move |state, link| state.unbind(link, binding),
        ))
    }

    fn inspect_queue<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<Option<QueueInfo>>> {
        Box::pin(self.ask(
            move || format!("inspect queue {queue:?}"),
            move |state, link| state.inspect(link, queue),
        ))
    }

    fn exchange_exists<'a>(&'a self, exchange: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.ask(
            move || format!("look for exchange {exchange:?}"),
            move |state, _| Ok(exchange.is_empty() || state.exchanges.contains_key(exchange)),
        ))
    }

    fn delete_queue<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.ask(
            move || format!("delete queue {queue:?}"),
            move |state, link| state.delete_queue(link, queue),
        ))
    }

    fn delete_exchange<'a>(&'a self, exchange: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.ask(
            move || format!("delete exchange {exchange:?}"),
            move |state, _| state.delete_exchange(exchange),
        ))
    }

    fn purge_queue<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.ask(
            move || format!("purge queue {queue:?}"),
            move |state, link| state.purge(link, queue),
        ))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.end() })
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for MemoryLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryLink")
            .field("broker", &self.broker.name())
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn not_written(reason: &str) -> PublishFailure {
    PublishFailure::Lost { written: false, reason: reason.to_owned() }
}
