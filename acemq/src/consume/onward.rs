//! A message that goes on to its next stop before it is acknowledged.

use std::fmt;

use super::{Ack, ack::Answer, ack::chain, handle::Verdict, place::Place, runtime::Core};
use crate::{
    connection::Patience,
    error::{Error, ErrorKind, Result},
    publish::Prepared,
};

/// What a handler has made of a message, ready to be sent. The message is acknowledged once the
/// broker has confirmed this and routed it to a queue.
pub(crate) struct Onward {
    message: Prepared,
    stop: String,
}

impl Ack {
    /// The message is done with as soon as `message` has arrived at `stop`, which is what people
    /// call it.
    pub(crate) fn after(message: Prepared, stop: String) -> Self {
        Self(Answer::Forward(Box::new(Onward { message, stop })))
    }
}

impl Onward {
    /// Sends it, and says what becomes of the message that it was made of.
    pub(super) async fn send(self, core: &Core, place: &Place<'_>) -> Verdict {
        // The broker has taken the message back, and whoever gets it next sends it on.
        if !place.settler.is_open() {
            return Verdict::Returned;
        }
        let Self { message, stop } = self;
        let sending = async {
            // One after the other, so that one handler at a time keeps the order. Only the
            // broker's answers are waited for side by side.
            let handed_over = message.hand_over(&mut Patience::default()).await?;
            place.give_way();
            handed_over.finish().await
        };
        let sent: Result<_> = tokio::select! {
            biased;
            () = core.abort.cancelled() => return Verdict::Returned,
            sent = sending => sent,
        };
        match sent {
            Ok(_) => {
                core.pacing.landed(&stop);
                Verdict::Accepted
            }
            Err(error) => refused(stop, &error),
        }
    }
}

fn refused(stop: String, error: &Error) -> Verdict {
    let text = format!("it was handled and did not arrive at {stop}: {}", chain(error));
    match error.kind() {
        // It would be too large again.
        ErrorKind::TooLarge => Verdict::Rejected { text },
        ErrorKind::Closed => Verdict::Returned,
        // The broker's fault or the network's, and none of the message's.
        _ if error.is_transient() => Verdict::Unsent { stop, reason: text },
        _ => Verdict::Failed { reason: text },
    }
}

impl fmt::Debug for Onward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Onward").field("stop", &self.stop).finish_non_exhaustive()
    }
}
