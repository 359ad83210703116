//! One attempt at a message, as metrics, the log and interceptors see it: each that a retry policy
//! makes, which is a delivery of its own, and each that is made in place.

use tokio::time::Instant;
use tracing::Span;

use super::{Settlement, handle::Judged, interceptor, runtime::Core};
use crate::{envelope::Envelope, telemetry::ConsumeOutcome};

pub(super) struct Attempt {
    begun: Instant,
    span: Span,
}

impl Attempt {
    pub(super) fn begin(core: &Core, envelope: &Envelope) -> Self {
        core.meter.attempted(envelope.attempt);
        let span = tracing::info_span!(
            "consume",
            queue = %core.queue,
            message_id = envelope.id,
            message_type = envelope.message_type,
            attempt = envelope.attempt,
            outcome = tracing::field::Empty,
        );
        Self { begun: Instant::now(), span }
    }

    /// What happens during it belongs into this.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Tells everybody how it ended.
    pub(super) fn settled(self, core: &Core, judged: &Judged, settlement: Settlement) {
        core.counters.settled(settlement);
        let outcome = outcome(settlement);
        let message_type = judged.received.envelope.message_type();
        core.meter.settled(message_type, outcome, self.begun.elapsed());
        self.span.record("outcome", outcome.name());
        if let Some(seen) = &judged.seen {
            let _within = self.span.enter();
            interceptor::after_handle(core.client.consume_interceptors(), seen, settlement);
        }
    }
}

fn outcome(settlement: Settlement) -> ConsumeOutcome {
    match settlement {
        Settlement::Acknowledged => ConsumeOutcome::Acked,
        Settlement::Retried => ConsumeOutcome::Retried,
        Settlement::Rejected => ConsumeOutcome::Rejected,
        Settlement::DeadLettered => ConsumeOutcome::DeadLettered,
        Settlement::Parked => ConsumeOutcome::Parked,
        Settlement::InProgress => ConsumeOutcome::InProgress,
        Settlement::Returned | Settlement::Halted => ConsumeOutcome::Failed,
    }
}
