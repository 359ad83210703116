//! Messages that are moved on: each is published again, to where it is due, and then acknowledged.

use std::sync::Arc;

use super::{
    Consumer,
    handle::{Handle, Judged, Verdict},
    message::Received,
    place::Place,
    runtime::Core,
    start::Recipe,
};
use crate::{
    backoff::Backoff,
    connection::{Client, Patience},
    error::Result,
    transport::{BoxFuture, Outgoing},
};

/// What knows where the messages of a queue go.
pub(crate) trait Mover: Send + Sync + 'static {
    /// Declares what they go through, the queue among it.
    fn declare(&self) -> impl Future<Output = Result<()>> + Send;

    /// Moves one message on.
    fn move_on(&self, received: &Received, way: Way<'_>) -> impl Future<Output = Moved> + Send;
}

/// What became of a message that was to be moved on.
#[derive(Debug)]
pub(crate) enum Moved {
    /// It is safe elsewhere.
    Arrived,
    /// It is still where it was: the mover stops, or the broker has taken it back.
    Kept,
    /// Nobody can move it, for this reason, with which it is dead-lettered as it came.
    Refused(String),
}

/// The way of one message.
pub(crate) struct Way<'a> {
    core: &'a Core,
    place: &'a Place<'a>,
}

impl Way<'_> {
    /// Publishes a message and waits until it is known to be in a queue. The next one is begun with
    /// as soon as this one is handed over, so that they go out in their order and many are in
    /// flight. `None` if the mover has to stop.
    pub(crate) async fn publish(&self, message: Outgoing) -> Option<Result<()>> {
        let Self { core, place } = self;
        // The broker has taken the original back, and whoever gets it next moves it on.
        if !place.settler.is_open() {
            return None;
        }
        let mut patience = Patience::default();
        let handed_over = tokio::select! {
            biased;
            () = core.abort.cancelled() => return None,
            () = core.closing.cancelled() => return None,
            handed_over = core.client.hand_over(Arc::new(message), &mut patience) => handed_over,
        };
        let in_flight = match handed_over {
            Ok(in_flight) => in_flight,
            Err(error) => return Some(Err(error)),
        };
        place.give_way();
        tokio::select! {
            biased;
            () = core.abort.cancelled() => None,
            confirmed = in_flight.confirmed() => Some(confirmed),
        }
    }

    /// Waits before another attempt. `false` if the mover has to stop.
    pub(crate) async fn pause(&self, backoff: &mut Backoff) -> bool {
        tokio::select! {
            biased;
            () = self.core.closing.cancelled() => false,
            () = backoff.pause() => self.place.settler.is_open(),
        }
    }

    /// Declares again what somebody has deleted.
    pub(crate) async fn declare_again(&self) {
        self.core.declare_again().await;
    }
}

impl Client {
    /// Starts to move the messages of a queue on.
    pub(crate) async fn start_moving(
        &self,
        queue: &str,
        prefetch: u16,
        declares: bool,
        mover: impl Mover,
    ) -> Result<Consumer> {
        let settings = self.consumer::<()>(queue).prefetch(prefetch).declare(declares).settings;
        let handle = Arc::new(Moving(mover));
        Recipe { settings, handle, fault: None }.start_one().await
    }
}

struct Moving<M>(M);

impl<M: Mover> Handle for Moving<M> {
    fn judge<'a>(
        &'a self,
        core: &'a Core,
        received: Arc<Received>,
        place: &'a Place<'a>,
    ) -> BoxFuture<'a, Judged> {
        Box::pin(async move {
            let verdict = match self.0.move_on(&received, Way { core, place }).await {
                Moved::Arrived => Verdict::Accepted,
                Moved::Kept => Verdict::Returned,
                Moved::Refused(text) => Verdict::Unmovable { text },
            };
            Judged::new(received, verdict)
        })
    }

    fn check_store<'a>(&'a self, _core: &'a Core) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn retention(&self, _core: &Core) -> Option<std::time::Duration> {
        None
    }

    fn declare(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.declare())
    }
}
