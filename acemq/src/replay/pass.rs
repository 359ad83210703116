//! One pass of a replay: read, decide, publish, and acknowledge what is confirmed.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::{Instant, sleep_until};

use super::{
    QueuedMessage, ReplayOutcome, ReplayReason,
    handle::Core,
    pull::{Pull, ready},
};
use crate::{
    connection::{InFlight, Patience},
    consume::for_queue,
    envelope::{self, ReadContext},
    error::{Error, ErrorKind, Result},
    transport::{BoxFuture, Delivery, Outgoing, Settler},
};

/// Why a pass does not go on.
enum Stop {
    Cancelled,
    Deadline,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Runs a pass to its end, which comes in one way only: nothing more is read, what was published has
/// its answer, what is confirmed is acknowledged, and everything else goes back.
pub(super) async fn run(core: &Core) -> ReplayOutcome {
    let mut flight = Flight::new(core);
    let mut pull = None;
    let mut ended = match flight.until_stopped(open(core)).await {
        Ok(Ok(opened)) => {
            pull = opened;
            move_all(core, pull.as_mut(), &mut flight).await
        }
        Ok(Err(error)) => Err(error.into()),
        Err(stop) => Err(stop),
    };
    if let Some(mut pull) = pull {
        pull.stop().await;
        if let Err(error) = flight.finish().await {
            ended = ended.and(Err(error.into()));
        }
        pull.close(flight.failed).await;
    }
    let (reason, error) = match ended {
        Ok(reason) => (reason, None),
        Err(Stop::Cancelled) => (ReplayReason::Cancelled, None),
        Err(Stop::Deadline) => (ReplayReason::Deadline, None),
        Err(Stop::Failed(error)) => (ReplayReason::Failed, Some(Arc::new(error))),
    };
    let progress = *core.progress.borrow();
    ReplayOutcome { moved: progress.moved, skipped: progress.skipped, reason, error }
}

/// Begins to read, unless there is nothing to be read.
async fn open(core: &Core) -> Result<Option<Pull>> {
    let settings = &core.settings;
    let link = core.client.consuming_link().await?;
    let total = ready(&*link, &settings.from, "replay from").await?;
    // Asked before anything is touched.
    ready(&*link, &settings.into, "replay to").await?;
    let looks = settings.filter.is_some();
    let bound = if looks { total } else { total.min(settings.limit) };
    core.progress.send_modify(|progress| {
        progress.total = total;
        if settings.dry_run && !looks {
            progress.moved = bound;
        }
    });
    if bound == 0 || settings.dry_run && !looks {
        return Ok(None);
    }
    let from = Arc::clone(&settings.from);
    Pull::open(&core.client, link, from, bound, !settings.dry_run).await.map(Some)
}

async fn move_all(
    core: &Core,
    pull: Option<&mut Pull>,
    flight: &mut Flight<'_>,
) -> Result<ReplayReason, Stop> {
    let settings = &core.settings;
    let mut begun = core.progress.borrow().moved;
    if let Some(pull) = pull {
        flight.settler = Some(pull.settler());
        if settings.filter.is_none() {
            flight.spare = pull.beyond_window();
        }
        let mut patience = Patience::default();
        let mut position = 0;
        while begun < settings.limit {
            let Some(delivery) = flight.until_stopped(pull.next()).await?? else { break };
            position += 1;
            let tag = delivery.tag;
            match decide(core, flight, &mut patience, position, delivery).await {
                Ok(Fate::Published(in_flight)) => {
                    begun += 1;
                    flight.answers.push(Box::pin(answer(tag, in_flight)));
                }
                Ok(Fate::Counted) => {
                    begun += 1;
                    pull.hold(tag);
                    core.progress.send_modify(|progress| progress.moved += 1);
                }
                Ok(Fate::Declined) => {
                    pull.hold(tag);
                    core.progress.send_modify(|progress| progress.skipped += 1);
                }
                Err(stop) => {
                    pull.hold(tag);
                    return Err(stop);
                }
            }
        }
    }
    let reached = begun == settings.limit;
    Ok(if reached { ReplayReason::Limit } else { ReplayReason::Drained })
}

/// What becomes of a message.
enum Fate {
    /// For a dry run it would be moved.
    Counted,
    Declined,
    Published(InFlight),
}

async fn decide(
    core: &Core,
    flight: &mut Flight<'_>,
    patience: &mut Patience,
    position: u64,
    delivery: Delivery,
) -> Result<Fate, Stop> {
    let Some(delivery) = wanted(core, position, delivery)? else { return Ok(Fate::Declined) };
    if core.settings.dry_run {
        return Ok(Fate::Counted);
    }
    let handed_over = core.client.hand_over(Arc::new(copy(core, delivery)), patience);
    Ok(Fate::Published(flight.until_stopped(handed_over).await??))
}

/// Gives a delivery back if it is to be moved.
fn wanted(core: &Core, position: u64, delivery: Delivery) -> Result<Option<Delivery>> {
    let Some(filter) = &core.settings.filter else { return Ok(Some(delivery)) };
    let message = QueuedMessage::new(Arc::clone(&core.settings.from), position, delivery);
    match catch_unwind(AssertUnwindSafe(|| filter(&message))) {
        Ok(wanted) => Ok(wanted.then(|| message.into_delivery())),
        Err(_) => {
            let text = format!("replay message {}: the filter panicked", message.id());
            Err(Error::new(ErrorKind::Config, text).with_message_id(message.id()))
        }
    }
}

fn copy(core: &Core, delivery: Delivery) -> Outgoing {
    let settings = &core.settings;
    let mut properties = delivery.properties;
    let called = |headers| {
        let context = ReadContext { routing_key: &delivery.routing_key, ..ReadContext::default() };
        envelope::read(headers, context).id
    };
    let id = match properties.message_id.take().filter(|id| !id.is_empty()) {
        Some(id) => id,
        None => called(&properties.headers),
    };
    let replay = envelope::Replay {
        from: &settings.from,
        at: core.client.clock().now(),
        keep_attempts: settings.keep_attempts,
    };
    envelope::stamp(&mut properties.headers, replay);
    for_queue(&settings.into, properties, || id, delivery.body)
}

async fn answer(tag: u64, in_flight: InFlight) -> (u64, Result<()>) {
    (tag, in_flight.confirmed().await)
}

/// What was published and is not answered yet.
struct Flight<'a> {
    core: &'a Core,
    deadline: Option<Instant>,
    /// The answers, with the tags of the originals.
    answers: FuturesUnordered<BoxFuture<'static, (u64, Result<()>)>>,
    settler: Option<Arc<dyn Settler>>,
    /// How many acknowledgements may still be written before the broker would hand over more than
    /// the bound. The others wait until it hands over nothing more.
    spare: u64,
    withheld: Vec<u64>,
    /// The originals of what was not confirmed.
    failed: Vec<u64>,
}

impl<'a> Flight<'a> {
    fn new(core: &'a Core) -> Self {
        Self {
            core,
            deadline: core.settings.deadline.and_then(|bound| Instant::now().checked_add(bound)),
            answers: FuturesUnordered::new(),
            settler: None,
            spare: u64::MAX,
            withheld: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Does something, and acknowledges meanwhile what is confirmed; unless the pass is to stop.
    async fn until_stopped<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        let core = self.core;
        // A timer takes its time to notice, and nothing here may ever wait for anything.
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Stop::Deadline);
        }
        let mut work = pin!(work);
        let mut cancelled = pin!(core.closing.cancelled());
        let deadline = self.deadline;
        let mut too_late = pin!(async move {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        });
        loop {
            tokio::select! {
                biased;
                () = &mut cancelled => return Err(Stop::Cancelled),
                () = &mut too_late => return Err(Stop::Deadline),
                Some((tag, answer)) = self.answers.next(), if !self.answers.is_empty() => {
                    self.take(tag, answer)?;
                }
                done = &mut work => return Ok(done),
            }
        }
    }

    /// Acknowledges what is confirmed.
    fn take(&mut self, tag: u64, answer: Result<()>) -> Result<()> {
        if let Err(error) = answer {
            self.failed.push(tag);
            return Err(error);
        }
        if self.spare == 0 {
            self.withheld.push(tag);
        } else {
            self.spare -= 1;
            self.acknowledge(tag);
        }
        self.core.progress.send_modify(|progress| progress.moved += 1);
        Ok(())
    }

    fn acknowledge(&self, tag: u64) {
        // Where the channel has gone the message comes again, and is in both queues.
        if let Some(settler) = &self.settler {
            settler.ack(tag);
        }
    }

    /// Now that nothing more is handed over: settles everything, within the time a publish may
    /// take. The error is the first that a publish met.
    async fn finish(&mut self) -> Result<()> {
        self.spare = u64::MAX;
        for tag in std::mem::take(&mut self.withheld) {
            self.acknowledge(tag);
        }
        let mut failed = Ok(());
        while let Some((tag, answer)) = self.answers.next().await {
            if let Err(error) = self.take(tag, answer) {
                failed = failed.and(Err(error));
            }
        }
        failed
    }
}
