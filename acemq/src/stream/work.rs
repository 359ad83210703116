//! Handling one message: attempt by attempt, until it is decided.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{StreamStop, counters::count, runtime::Core};
use crate::{
    backoff::Backoff,
    connection::Client,
    consume::{
        Ask, ConsumerState, GRACE, Host, Judged, Received, Settlement, Then, Verdict, after_handle,
    },
    telemetry::ConsumeOutcome,
    transport::{BoxFuture, Delivery, Settler},
};

/// How long a message that another process has in a transaction is waited for at a time.
const IN_PROGRESS_WAIT: Duration = Duration::from_secs(1);
/// The pauses between questions to a store that is down, or does not know: doubling between these.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What becomes of a message.
enum Decision {
    Handled,
    Duplicate,
    Skipped {
        reason: String,
    },
    Stops {
        attempts: u32,
        reason: String,
    },
    /// It is left as it is, and comes again to whoever reads there.
    Left,
}

impl Core {
    pub(super) async fn process(&self, offset: u64, generation: u64, delivery: Delivery) {
        let started = Instant::now();
        let received = Received::read(delivery, Arc::clone(&self.stream), self.client.clock());
        let envelope = received.envelope.clone();
        let _in_flight = InFlight::new(self, envelope.attempt());
        let span = tracing::info_span!(
            "consume",
            queue = %self.stream,
            offset,
            message_id = envelope.id(),
            message_type = envelope.message_type(),
            attempt = envelope.attempt(),
            outcome = tracing::field::Empty,
        );
        let decided = self.decide(offset, Arc::new(received)).instrument(span.clone());
        let (mut decision, judged) = decided.await;
        let fails = matches!(decision, Decision::Skipped { .. } | Decision::Stops { .. });
        if fails && !self.is_of_this_stream(generation) {
            // The stream was deleted meanwhile, and its message with it.
            decision = Decision::Left;
        }
        let outcome = match &decision {
            Decision::Handled | Decision::Duplicate => ConsumeOutcome::Acked,
            Decision::Skipped { .. } | Decision::Stops { .. } | Decision::Left => {
                ConsumeOutcome::Failed
            }
        };
        span.record("outcome", outcome.name());
        let settlement = match decision {
            Decision::Handled | Decision::Duplicate => {
                let duplicate = matches!(decision, Decision::Duplicate);
                count(if duplicate { &self.counters.duplicates } else { &self.counters.handled });
                self.finish(offset, generation, true);
                Settlement::Acknowledged
            }
            Decision::Skipped { reason } => {
                tracing::warn!(
                    stream = %self.stream, offset, message_id = envelope.id(), reason,
                    "a message of a stream failed and is passed over"
                );
                count(&self.counters.skipped);
                self.finish(offset, generation, false);
                Settlement::Acknowledged
            }
            Decision::Stops { attempts, reason } => {
                tracing::error!(
                    stream = %self.stream, offset, message_id = envelope.id(), attempts, reason,
                    "a message of a stream failed; its consumer stops"
                );
                let message_id = envelope.id().to_owned();
                self.stop_for(StreamStop::Failed { offset, message_id, attempts, reason });
                Settlement::Halted
            }
            Decision::Left => Settlement::Returned,
        };
        self.meter.settled(envelope.message_type(), outcome, started.elapsed());
        if let Some(seen) = &judged.seen {
            after_handle(self.client.consume_interceptors(), seen, settlement);
        }
    }

    async fn decide(&self, offset: u64, mut received: Arc<Received>) -> (Decision, Judged) {
        let mut attempts = 1;
        let mut unknown = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let mut judged = tokio::select! {
                biased;
                judged = self.handle.judge(self, Arc::clone(&received), offset) => judged,
                () = self.past_grace() => Judged::new(Arc::clone(&received), Verdict::Returned),
            };
            let verdict = std::mem::replace(&mut judged.verdict, Verdict::Returned);
            let pause = async {
                match &verdict {
                    Verdict::Failed { .. } => sleep(self.on_failure.delay).await,
                    Verdict::Unknown => unknown.pause().await,
                    _ => sleep(IN_PROGRESS_WAIT).await,
                }
            };
            match &verdict {
                Verdict::Accepted => return (Decision::Handled, judged),
                Verdict::Duplicate => return (Decision::Duplicate, judged),
                Verdict::Failed { reason } if attempts < self.on_failure.attempts => {
                    attempts += 1;
                    tracing::info!(
                        stream = %self.stream, offset, message_id = received.envelope.id(), reason,
                        "a message of a stream failed and is tried again in its place"
                    );
                    count(&self.counters.retried);
                    let next = received.envelope.next_attempt();
                    self.meter.attempted(next.attempt());
                    received = Arc::new(received.with_envelope(next));
                }
                Verdict::Failed { reason: text }
                | Verdict::Rejected { text }
                | Verdict::Undecodable { text }
                | Verdict::Unmovable { text }
                | Verdict::Parked { text } => {
                    let reason = text.clone();
                    let decision = match self.on_failure.then {
                        Then::Skip => Decision::Skipped { reason },
                        Then::Stop => Decision::Stops { attempts, reason },
                    };
                    return (decision, judged);
                }
                // What is to be known about the message is known later.
                Verdict::InProgress | Verdict::Unknown => {}
                Verdict::Returned | Verdict::Unsent { .. } => return (Decision::Left, judged),
            }
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return (Decision::Left, judged),
                () = pause => {}
            }
        }
    }

    /// Past this even a codec or a store that hangs is let go of.
    async fn past_grace(&self) {
        self.abort.cancelled().await;
        sleep(GRACE).await;
    }
}

impl Host for Core {
    fn client(&self) -> &Client {
        &self.client
    }

    fn queue(&self) -> &str {
        &self.stream
    }

    fn handler_timeout(&self) -> Option<Duration> {
        self.handler_timeout
    }

    fn abort(&self) -> &CancellationToken {
        &self.abort
    }

    fn in_progress_wait(&self) -> Duration {
        IN_PROGRESS_WAIT
    }

    fn committed(&self) {}

    /// A message whose channel is lost keeps its place here, so only the closing ends this.
    fn until_answered<'a, T: Send + 'a>(
        &'a self,
        _settler: Option<&'a dyn Settler>,
        ask: &'a Ask<'a, T>,
    ) -> BoxFuture<'a, Option<T>> {
        Box::pin(self.ask_again_and_again(ask))
    }
}

impl Core {
    async fn ask_again_and_again<T>(&self, ask: &Ask<'_, T>) -> Option<T> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let error = match ask().await {
                Ok(answer) => {
                    self.answered();
                    return Some(answer);
                }
                Err(error) => error,
            };
            let reason = error.to_string();
            self.state.send_if_modified(|state| {
                let calm = *state == ConsumerState::Receiving;
                if calm {
                    tracing::warn!(
                        stream = %self.stream, reason,
                        "the checkpoint store fails; the stream waits, and it is asked again and again"
                    );
                    *state = ConsumerState::Waiting { reason };
                }
                calm
            });
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                () = backoff.pause() => {}
            }
        }
    }

    /// The store is there again.
    fn answered(&self) {
        self.state.send_if_modified(|state| {
            let waited = matches!(state, ConsumerState::Waiting { .. });
            if waited {
                *state = ConsumerState::Receiving;
            }
            waited
        });
    }
}

/// Counts a message as in flight until it is decided, or its task has ended in any way.
struct InFlight<'a>(&'a Core);

impl<'a> InFlight<'a> {
    fn new(core: &'a Core, attempt: u32) -> Self {
        count(&core.counters.in_flight);
        core.meter.taken();
        core.meter.attempted(attempt);
        Self(core)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.counters.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.0.meter.let_go();
    }
}
