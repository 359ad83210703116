//! Several consumers of one queue that are started, scaled and closed together.

use std::{
    fmt,
    future::IntoFuture,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::{
    Consumer, ConsumerCounters, ConsumerState,
    counters::Counters,
    runtime::stranded,
    start::{NO_PREFETCH, Recipe},
};
use crate::{
    error::{Error, ErrorKind, Result},
    transport::BoxFuture,
};

/// A running group of consumers of one queue, from [`StartConsumer::group`](super::StartConsumer).
///
/// Each member has a channel, a prefetch and a concurrency of its own; they share the handler and
/// all other settings, and count together. More members than handlers make sense where one channel
/// of the broker's is what slows a queue down, and where the number changes with the load.
///
/// Changes are made one after the other. Dropping the group stops its members at once, as dropping
/// a [`Consumer`] does; [`close`](Self::close) lets their handlers finish.
#[must_use = "dropping a group of consumers stops it"]
pub struct ConsumerGroup {
    recipe: Recipe,
    counters: Arc<Counters>,
    members: Mutex<Members>,
    /// Whoever changes the group has it until that is done.
    changing: tokio::sync::Mutex<()>,
}

struct Members {
    /// The oldest first.
    active: Vec<Arc<Consumer>>,
    /// These finish what they have begun.
    leaving: Vec<Arc<Consumer>>,
    prefetch: u16,
    paused: bool,
    closed: bool,
}

/// A group that starts when it is awaited, from [`StartConsumer::group`](super::StartConsumer::group).
#[must_use = "a group of consumers starts by awaiting it"]
pub struct StartConsumerGroup {
    recipe: Recipe,
    members: usize,
}

impl StartConsumerGroup {
    pub(super) fn new(recipe: Recipe, members: usize) -> Self {
        Self { recipe, members }
    }

    async fn run(self) -> Result<ConsumerGroup> {
        let Self { recipe, members: wanted } = self;
        let members = Members {
            active: Vec::new(),
            leaving: Vec::new(),
            prefetch: recipe.settings.prefetch,
            paused: false,
            closed: false,
        };
        let group = ConsumerGroup {
            recipe,
            counters: Arc::default(),
            members: Mutex::new(members),
            changing: tokio::sync::Mutex::default(),
        };
        group.check_size(wanted)?;
        group.recipe.check().await?;
        group.grow(wanted).await?;
        Ok(group)
    }
}

impl ConsumerGroup {
    /// The queue it consumes.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.recipe.settings.queue
    }

    /// How many members it has, without those that are leaving. Once it is closed, how many it had:
    /// [`member_states`](Self::member_states) has each of them as [`ConsumerState::Closed`].
    #[must_use]
    pub fn members(&self) -> usize {
        self.lock().active.len()
    }

    /// What each member is doing now, the oldest first.
    #[must_use]
    pub fn member_states(&self) -> Vec<ConsumerState> {
        self.lock().active.iter().map(|member| member.state()).collect()
    }

    /// What all members have done so far, with those that have left.
    #[must_use]
    pub fn counters(&self) -> ConsumerCounters {
        self.counters.read()
    }

    /// Gives the group that many members, at least 1. New ones are started together; awaiting it
    /// means that the broker has accepted them all. The newest are the first to leave: they take no
    /// more messages, hand back what no handler has begun, and close when their handlers have
    /// finished, all of them within the client's drain timeout.
    ///
    /// # Errors
    /// What a member's start meets; then the ones started by this call are closed again, and the
    /// group is as it was. [`ErrorKind::Timeout`] when handlers of members that leave were still
    /// running at the bound: they were stopped, and their messages go back.
    /// [`ErrorKind::Config`] for 0, and for more than one member of an exclusive consumer or of an
    /// ordered one. [`ErrorKind::Closed`] once the group or its client is closed.
    ///
    /// # Cancellation
    /// Dropping the future while the group grows starts nobody; members that are leaving leave.
    pub async fn scale_to(&self, members: usize) -> Result<()> {
        self.check_size(members)?;
        let _changing = self.changing.lock().await;
        let now = self.open("scale")?.active.len();
        if members >= now { self.grow(members - now).await } else { self.shrink(members).await }
    }

    /// Changes the prefetch of every member, those to come included; see
    /// [`Consumer::set_prefetch`], of which its errors are.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the group is closed.
    ///
    /// # Cancellation
    /// Members that have not been told by then keep the prefetch they have.
    pub async fn set_prefetch(&self, count: u16) -> Result<()> {
        if count == 0 {
            return Err(self.error(ErrorKind::Config, "change the prefetch of", NO_PREFETCH));
        }
        let change = |members: &mut Members| members.prefetch = count;
        self.change("change the prefetch of", change, |member| Box::pin(member.set_prefetch(count)))
            .await
    }

    /// Has every member stop taking messages, those to come included; see [`Consumer::pause`].
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the group is closed.
    ///
    /// # Cancellation
    /// Members that have not been told by then go on.
    pub async fn pause(&self) -> Result<()> {
        let change = |members: &mut Members| members.paused = true;
        self.change("pause", change, |member| Box::pin(member.pause())).await
    }

    /// Has every member take messages again; see [`Consumer::resume`], of which its errors are.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the group is closed.
    ///
    /// # Cancellation
    /// Members that have not been told by then stay paused.
    pub async fn resume(&self) -> Result<()> {
        let change = |members: &mut Members| members.paused = false;
        self.change("resume", change, |member| Box::pin(member.resume())).await
    }

    /// Closes all members as [`Consumer::close`] does, within one drain timeout for all of them. A
    /// second call waits for the first and has its answer; every other call is refused from now on.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when handlers were still running at the bound: they were stopped, and
    /// their messages go back. The group is closed all the same.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<()> {
        let deadline = self.deadline();
        let all: Vec<_> = {
            let mut members = self.lock();
            members.closed = true;
            members.active.iter().chain(&members.leaving).cloned().collect()
        };
        let closed = self.close_these(&all, deadline).await;
        // A change that is on its way finds the group closed, and closes what it has started.
        let _ = timeout_at(deadline, self.changing.lock()).await;
        closed
    }

    async fn grow(&self, count: usize) -> Result<()> {
        let (prefetch, paused) = {
            let members = self.lock();
            (members.prefetch, members.paused)
        };
        let start = |_| self.recipe.start(prefetch, paused, Arc::clone(&self.counters));
        let (mut started, mut failed) = (Vec::with_capacity(count), None);
        for member in join_all((0..count).map(start)).await {
            match member {
                Ok(member) => started.push(Arc::new(member)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if failed.is_none() {
            let mut members = self.lock();
            if !members.closed {
                members.active.append(&mut started);
                return Ok(());
            }
        }
        let closed = self.close_these(&started, self.deadline()).await;
        Err(failed.or_else(|| closed.err()).unwrap_or_else(|| self.closed("scale")))
    }

    async fn shrink(&self, remaining: usize) -> Result<()> {
        let newest = {
            let mut members = self.lock();
            let newest = members.active.split_off(remaining);
            members.leaving.extend(newest.iter().cloned());
            newest
        };
        let closed = self.close_these(&newest, self.deadline()).await;
        // Also those that a change left here whose future was dropped.
        self.lock().leaving.retain(|member| member.state() != ConsumerState::Closed);
        closed
    }

    async fn close_these(&self, members: &[Arc<Consumer>], deadline: Instant) -> Result<()> {
        let stopped = join_all(members.iter().map(|member| member.core().stopped(deadline))).await;
        stranded("group of consumers", self.queue(), stopped.into_iter().sum())
    }

    /// Changes what new members begin with, then every member there is.
    async fn change(
        &self,
        what: &str,
        change: impl FnOnce(&mut Members),
        each: impl for<'a> Fn(&'a Consumer) -> BoxFuture<'a, Result<()>>,
    ) -> Result<()> {
        let _changing = self.changing.lock().await;
        let active = {
            let mut members = self.open(what)?;
            change(&mut members);
            members.active.clone()
        };
        let changed = join_all(active.iter().map(|member| each(member))).await;
        changed.into_iter().find(Result::is_err).unwrap_or(Ok(()))
    }

    fn check_size(&self, members: usize) -> Result<()> {
        if members == 0 {
            let why = "it would have no members; it has at least 1: pause or close it instead";
            return Err(self.error(ErrorKind::Config, "scale", why));
        }
        if members > 1 && self.recipe.settings.exclusive {
            let why = "its consumers are exclusive, so it can have no more than 1";
            return Err(self.error(ErrorKind::Config, "scale", why));
        }
        if members > 1 && self.recipe.settings.ordered_by.is_some() {
            let why = "it is ordered, and several members would handle messages of one key at once; \
                       give one consumer more handlers, or use `Client::partitions`";
            return Err(self.error(ErrorKind::Config, "scale", why));
        }
        Ok(())
    }

    /// The members of a group that is not closed.
    fn open(&self, what: &str) -> Result<MutexGuard<'_, Members>> {
        let members = self.lock();
        if members.closed { Err(self.closed(what)) } else { Ok(members) }
    }

    fn closed(&self, what: &str) -> Error {
        self.error(ErrorKind::Closed, what, "it is closed")
    }

    fn error(&self, kind: ErrorKind, what: &str, why: &str) -> Error {
        let queue = self.queue();
        Error::new(kind, format!("{what} the group of consumers of \"{queue}\": {why}"))
            .with_queue(queue)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.recipe.settings.client.options().drain_timeout
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IntoFuture for StartConsumerGroup {
    type Output = Result<ConsumerGroup>;
    type IntoFuture = BoxFuture<'static, Result<ConsumerGroup>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for StartConsumerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartConsumerGroup")
            .field("queue", &self.recipe.settings.queue)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ConsumerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerGroup")
            .field("queue", &self.queue())
            .field("members", &self.member_states())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
