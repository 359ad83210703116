//! How a scheduler is set up and started.

use std::{
    fmt,
    future::IntoFuture,
    sync::{Arc, atomic::AtomicBool},
};

use super::{
    Scheduler,
    counters::Counters,
    handle::Inner,
    ladder::{self, DUE},
    mover::DueMover,
};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::{connection::Client, error::Result, transport::BoxFuture};

/// Four times the family's: each message waits here for a confirm that may take tens of milliseconds
/// on a busy broker, and 50 of them at once are then some 2,000 a second. It is not on the wire.
const DEFAULT_PREFETCH: u16 = 200;

/// A scheduler that starts when it is awaited, from [`Client::scheduler`].
#[must_use = "a scheduler starts by awaiting it"]
pub struct SchedulerBuilder {
    client: Client,
    prefetch: u16,
    declares: bool,
    moves: bool,
}

impl Client {
    /// Sets up a scheduler, which has messages delivered later: see [`Scheduler`].
    ///
    /// Awaiting it means that the waiting queues are there, and that it moves what comes out of
    /// them.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] for one of its queues that exists in another form;
    /// [`ErrorKind::NotFound`] for one that does not exist, where it declares none;
    /// [`ErrorKind::Config`] for a prefetch of 0; [`ErrorKind::Refused`] without the permission to
    /// declare or to read; [`ErrorKind::Closed`] on a closed client; and what the connection meets.
    ///
    /// # Cancellation
    /// Dropping the future before it is done starts nothing; what was declared so far stays.
    pub fn scheduler(&self) -> SchedulerBuilder {
        let prefetch = DEFAULT_PREFETCH;
        SchedulerBuilder { client: self.clone(), prefetch, declares: true, moves: true }
    }
}

impl SchedulerBuilder {
    /// How many messages it moves at once. Default 200, at least 1.
    pub fn prefetch(mut self, count: u16) -> Self {
        self.prefetch = count;
        self
    }

    /// Whether the waiting queues are declared at the start, and again where one of them is
    /// missing. Default `true`; `false` for a service without the permission.
    pub fn declare(mut self, declare: bool) -> Self {
        self.declares = declare;
        self
    }

    /// Whether it moves messages: its own and everybody's. Default `true`; one that does not only
    /// schedules, and leaves the rest to the schedulers of other services.
    pub fn moves(mut self, moves: bool) -> Self {
        self.moves = moves;
        self
    }

    async fn run(self) -> Result<Scheduler> {
        let Self { client, prefetch, declares, moves } = self;
        let counters = Arc::new(Counters::new());
        let mover = if moves {
            let mover = DueMover::new(client.clone(), Arc::clone(&counters));
            Some(client.start_moving(DUE, prefetch, declares, mover).await?)
        } else {
            if declares {
                client.declare(&ladder::topology()).await?;
            }
            None
        };
        let closed = AtomicBool::new(false);
        Ok(Scheduler::new(Inner { client, counters, declares, mover, closed }))
    }
}

impl IntoFuture for SchedulerBuilder {
    type Output = Result<Scheduler>;
    type IntoFuture = BoxFuture<'static, Result<Scheduler>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for SchedulerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerBuilder")
            .field("prefetch", &self.prefetch)
            .field("declares", &self.declares)
            .field("moves", &self.moves)
            .finish_non_exhaustive()
    }
}
