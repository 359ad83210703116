//! The way of one message to the broker: a permit, a link, the hand-over, the verdict.

use std::sync::Arc;

use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::{Instant, timeout},
};

use super::Client;
use crate::{
    error::{Error, ErrorKind, Result},
    transport::{Link, LinkState, Outgoing, Publish, PublishAnswer, PublishFailure},
};

/// Whether somebody waits for the broker's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirm {
    Awaited,
    NotAwaited,
}

impl Client {
    /// Publishes a message and waits for the broker's verdict, or just hands it over.
    ///
    /// The permit is taken before the message is handed over and given back when the broker has
    /// answered, also when this future was dropped meanwhile. A message that was not written when
    /// its link ended goes to the next link, within the bound.
    pub(crate) async fn publish(&self, message: Arc<Outgoing>, confirm: Confirm) -> Result<()> {
        let mut permit = Some(self.permit(&message).await?);
        let deadline = Instant::now() + self.options().confirm_timeout;
        loop {
            let link = self.0.publishing.link(deadline).await.map_err(|error| {
                // Nothing was handed over yet, so the message is not at the broker.
                concerning(error, &message)
            })?;
            self.wait_while_blocked(&*link, &message).await?;
            let permit = match permit.take() {
                Some(permit) => permit,
                None => self.permit(&message).await?,
            };
            let (sender, mut verdict) = oneshot::channel();
            link.publish(Publish {
                message: Arc::clone(&message),
                answer: PublishAnswer { sender, permit: Some(permit) },
            });
            if confirm == Confirm::NotAwaited {
                return Ok(());
            }
            match self.verdict(&*link, &mut verdict, &message).await? {
                Ok(()) => return Ok(()),
                Err(PublishFailure::Lost { written: false, reason }) => {
                    if Instant::now() >= deadline {
                        return Err(concerning(
                            Error::new(
                                ErrorKind::Lost,
                                format!(
                                    "publish {}: the connection was lost before it was written \
                                     ({reason}); it is not at the broker",
                                    describe(&message)
                                ),
                            ),
                            &message,
                        ));
                    }
                    self.0.publishing.wait_past(&link, deadline).await;
                }
                Err(failure) => return Err(explain(failure, &message)),
            }
        }
    }

    async fn permit(&self, message: &Outgoing) -> Result<OwnedSemaphorePermit> {
        let options = self.options();
        match timeout(options.confirm_timeout, Arc::clone(&self.0.permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(concerning(
                Error::new(ErrorKind::Closed, "publish: the client is closed"),
                message,
            )),
            Err(_) => Err(concerning(
                Error::new(
                    ErrorKind::Timeout,
                    format!(
                        "publish {}: {} publishes are already waiting for a confirm and none \
                         completed within {:?}; the broker is not keeping up, so publish more \
                         slowly rather than buffering more",
                        describe(message),
                        options.max_outstanding_publishes,
                        options.confirm_timeout
                    ),
                ),
                message,
            )),
        }
    }

    async fn wait_while_blocked(&self, link: &dyn Link, message: &Outgoing) -> Result<()> {
        let mut states = link.state();
        if !matches!(*states.borrow(), LinkState::Blocked(_)) {
            return Ok(());
        }
        let open = states.wait_for(|state| !matches!(state, LinkState::Blocked(_)));
        if timeout(self.options().blocked_timeout, open).await.is_err() {
            return Err(self.blocked(link, message, false));
        }
        Ok(())
    }

    /// The broker's answer, or an error when it does not come in time. While the broker has
    /// paused publishing the confirm timeout does not apply; the blocked timeout does.
    async fn verdict(
        &self,
        link: &dyn Link,
        verdict: &mut oneshot::Receiver<Result<(), PublishFailure>>,
        message: &Outgoing,
    ) -> Result<Result<(), PublishFailure>> {
        let options = self.options();
        let answered = match timeout(options.confirm_timeout, &mut *verdict).await {
            Ok(answered) => answered,
            Err(_) if matches!(*link.state().borrow(), LinkState::Blocked(_)) => {
                let rest = options.blocked_timeout.saturating_sub(options.confirm_timeout);
                match timeout(rest, &mut *verdict).await {
                    Ok(answered) => answered,
                    Err(_) => return Err(self.blocked(link, message, true)),
                }
            }
            Err(_) => {
                return Err(concerning(
                    Error::new(
                        ErrorKind::Timeout,
                        format!(
                            "publish {}: no confirm within {:?}; it may have been published",
                            describe(message),
                            options.confirm_timeout
                        ),
                    )
                    .maybe_published(true),
                    message,
                ));
            }
        };
        Ok(answered.unwrap_or_else(|_| {
            Err(PublishFailure::Lost { written: true, reason: "the link was dropped".to_owned() })
        }))
    }

    fn blocked(&self, link: &dyn Link, message: &Outgoing, written: bool) -> Error {
        let reason = match &*link.state().borrow() {
            LinkState::Blocked(reason) => reason.clone(),
            _ => "it no longer is".to_owned(),
        };
        let fate = if written { "it may have been published" } else { "it was not published" };
        concerning(
            Error::new(
                ErrorKind::Blocked,
                format!(
                    "publish {}: the broker has paused publishing ({reason}) for longer than \
                     {:?}; {fate}",
                    describe(message),
                    self.options().blocked_timeout
                ),
            )
            .maybe_published(written),
            message,
        )
    }
}

/// The message in an error's words.
fn describe(message: &Outgoing) -> String {
    format!(
        "message {} to exchange \"{}\" with key \"{}\"",
        message.properties.message_id.as_deref().unwrap_or("without id"),
        message.exchange,
        message.routing_key
    )
}

/// Says which message an error is about.
fn concerning(error: Error, message: &Outgoing) -> Error {
    let error = error.with_exchange(&*message.exchange).with_routing_key(&*message.routing_key);
    match &message.properties.message_id {
        Some(id) => error.with_message_id(id),
        None => error,
    }
}

fn explain(failure: PublishFailure, message: &Outgoing) -> Error {
    let error = match failure {
        PublishFailure::Unroutable { code, reason } => Error::new(
            ErrorKind::Unroutable,
            format!(
                "{} reached no queue ({code} {reason}); the broker dropped it; bind a queue for \
                 that key",
                describe(message)
            ),
        ),
        PublishFailure::Rejected => Error::new(
            ErrorKind::Rejected,
            format!(
                "publish {}: the broker answered with a nack; it could not keep the message",
                describe(message)
            ),
        ),
        PublishFailure::Refused(error) => error,
        PublishFailure::Lost { written, reason } => Error::new(
            ErrorKind::Lost,
            format!(
                "publish {}: the connection was lost ({reason}); it may have been published",
                describe(message)
            ),
        )
        .maybe_published(written),
    };
    concerning(error, message)
}
