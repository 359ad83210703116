//! The way of one message to the broker: a permit, a link, the hand-over, the verdict.

use std::{fmt, sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::{Instant, sleep_until, timeout, timeout_at},
};

use super::Client;
use crate::{
    error::{Error, ErrorKind, Result},
    transport::{Link, LinkState, Outgoing, Publish, PublishAnswer, PublishFailure},
};

impl Client {
    /// Publishes a message and waits for the broker's verdict.
    ///
    /// The permit is taken before the message is handed over and given back when the broker has
    /// answered, also when this future was dropped meanwhile. A message that was not written when
    /// its link ended goes to the next link, within the bound.
    pub(crate) async fn publish(&self, message: Arc<Outgoing>) -> Result<()> {
        self.hand_over(message, &mut Patience::default()).await?.confirmed().await
    }

    /// Hands a message over to a connection. Messages handed over one after the other go out in
    /// that order; who wants many in flight awaits this in order, and the verdicts together.
    pub(crate) async fn hand_over(
        &self,
        message: Arc<Outgoing>,
        patience: &mut Patience,
    ) -> Result<InFlight> {
        let options = self.options();
        let confirm_timeout = patience.of(options.confirm_timeout);
        let handed_over = async {
            let permit = self.permit(&message, confirm_timeout).await?;
            let pause = Pause::new(patience.of(options.blocked_timeout));
            self.write(message, permit, Instant::now() + confirm_timeout, pause).await
        }
        .await;
        patience.spent = handed_over.is_err();
        handed_over
    }

    async fn write(
        &self,
        message: Arc<Outgoing>,
        permit: OwnedSemaphorePermit,
        mut deadline: Instant,
        mut pause: Pause,
    ) -> Result<InFlight> {
        // The waits are boxed, so that a message which meets none does not carry room for them.
        let link = match self.0.publishing.current() {
            Some(link) => link,
            None => {
                let link = Box::pin(self.0.publishing.link(deadline)).await;
                link.map_err(|error| unpublished(error.kind(), &error, &message))?
            }
        };
        if link.is_blocked() {
            Box::pin(self.wait_while_blocked(&*link, &mut pause, &message)).await?;
            deadline = Instant::now() + self.options().confirm_timeout;
        }
        let (sender, verdict) = oneshot::channel();
        let answer = PublishAnswer { sender, permit: Some(permit) };
        link.publish(Publish::new(Arc::clone(&message), answer));
        Ok(InFlight { client: self.clone(), message, link, verdict, deadline, pause })
    }

    async fn permit(&self, message: &Outgoing, bound: Duration) -> Result<OwnedSemaphorePermit> {
        let options = self.options();
        if let Ok(permit) = Arc::clone(&self.0.permits).try_acquire_owned() {
            return Ok(permit);
        }
        match Box::pin(timeout(bound, Arc::clone(&self.0.permits).acquire_owned())).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(unpublished(ErrorKind::Closed, &"the client is closed", message)),
            Err(_) => Err(concerning(
                Error::new(
                    ErrorKind::Timeout,
                    format!(
                        "publish {}: {} publishes are already waiting for a confirm and none \
                         completed within {:?}. The broker is not keeping up; publish more slowly \
                         rather than buffering more",
                        describe(message),
                        options.max_outstanding_publishes,
                        options.confirm_timeout
                    ),
                ),
                message,
            )),
        }
    }

    /// Waits for the end of a pause in publishing.
    async fn wait_while_blocked(
        &self,
        link: &dyn Link,
        pause: &mut Pause,
        message: &Outgoing,
    ) -> Result<()> {
        let mut states = link.state();
        let LinkState::Blocked(reason) = states.borrow().clone() else { return Ok(()) };
        let over = states.wait_for(|state| !matches!(state, LinkState::Blocked(_)));
        if timeout_at(pause.until(), over).await.is_err() {
            return Err(blocked(&reason, self.options().blocked_timeout, false, message));
        }
        Ok(())
    }
}

/// A message that was handed over. Dropping it changes nothing about the message.
pub(crate) struct InFlight {
    client: Client,
    message: Arc<Outgoing>,
    link: Arc<dyn Link>,
    verdict: oneshot::Receiver<Result<(), PublishFailure>>,
    /// How long a message that turns out to be unwritten looks for another link.
    deadline: Instant,
    pause: Pause,
}

impl InFlight {
    /// Waits for the broker's verdict.
    pub(crate) async fn confirmed(mut self) -> Result<()> {
        loop {
            match self.verdict().await? {
                Ok(()) => return Ok(()),
                Err(PublishFailure::Lost { written: false, reason }) => {
                    self = Box::pin(self.again(&reason)).await?;
                }
                Err(failure) => return Err(explain(failure, &self.message)),
            }
        }
    }

    /// Hands a message that was not written over to the next link.
    async fn again(self, reason: &str) -> Result<Self> {
        if Instant::now() >= self.deadline {
            let why = format!("the connection was lost ({reason})");
            return Err(unpublished(ErrorKind::Lost, &why, &self.message));
        }
        let Self { client, message, link, deadline, pause, .. } = self;
        client.0.publishing.wait_past(&link, deadline).await;
        let bound = client.options().confirm_timeout;
        let permit = client.permit(&message, bound).await?;
        client.write(message, permit, deadline, pause).await
    }

    /// The broker's answer, or an error when it does not come in time. While the broker has
    /// paused publishing the confirm timeout does not run; the blocked timeout does.
    async fn verdict(&mut self) -> Result<Result<(), PublishFailure>> {
        let Self { client, message, link, verdict, pause, .. } = self;
        let confirm_timeout = client.options().confirm_timeout;
        let mut states = link.state();
        loop {
            let paused = match &*states.borrow_and_update() {
                LinkState::Blocked(reason) => Some(reason.clone()),
                LinkState::Open | LinkState::Ended(_) => None,
            };
            let bound = match paused {
                Some(_) => pause.until(),
                None => Instant::now() + confirm_timeout,
            };
            tokio::select! {
                biased;
                answered = &mut *verdict => {
                    return Ok(answered.unwrap_or_else(|_| {
                        let reason = "the link was dropped".to_owned();
                        Err(PublishFailure::Lost { written: true, reason })
                    }));
                }
                Ok(()) = states.changed() => {}
                () = sleep_until(bound) => {
                    return Err(match paused {
                        Some(reason) => {
                            blocked(&reason, client.options().blocked_timeout, true, message)
                        }
                        None => unconfirmed(confirm_timeout, message),
                    });
                }
            }
        }
    }
}

/// How long messages that are handed over in a row wait for the broker: once one of them waited
/// in vain, the next ones do not, until one gets through. Else they would wait in turn.
#[derive(Default)]
pub(crate) struct Patience {
    spent: bool,
}

impl Patience {
    fn of(&self, timeout: Duration) -> Duration {
        if self.spent { Duration::ZERO } else { timeout }
    }
}

/// How long one message waits, all in all, while the broker has paused publishing.
struct Pause {
    timeout: Duration,
    until: Option<Instant>,
}

impl Pause {
    fn new(timeout: Duration) -> Self {
        Self { timeout, until: None }
    }

    /// When the message gives up; counted from its first pause.
    fn until(&mut self) -> Instant {
        *self.until.get_or_insert_with(|| Instant::now() + self.timeout)
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

/// An error that came before the message was written anywhere.
fn unpublished(kind: ErrorKind, why: &dyn fmt::Display, message: &Outgoing) -> Error {
    let text = format!("publish {}: {why}; it was not published", describe(message));
    concerning(Error::new(kind, text), message)
}

fn blocked(reason: &str, waited: Duration, written: bool, message: &Outgoing) -> Error {
    let fate = if written { "it may have been published" } else { "it was not published" };
    concerning(
        Error::new(
            ErrorKind::Blocked,
            format!(
                "publish {}: the broker has paused publishing ({reason}) for longer than \
                 {waited:?}; {fate}",
                describe(message)
            ),
        )
        .maybe_published(written),
        message,
    )
}

fn unconfirmed(waited: Duration, message: &Outgoing) -> Error {
    concerning(
        Error::new(
            ErrorKind::Timeout,
            format!(
                "publish {}: no confirm within {waited:?}; it may have been published",
                describe(message)
            ),
        )
        .maybe_published(true),
        message,
    )
}

fn explain(failure: PublishFailure, message: &Outgoing) -> Error {
    let error = match failure {
        PublishFailure::Unroutable { code, reason } => {
            let remedy = match &*message.exchange {
                "" => format!("there is no queue {:?}: declare it", message.routing_key),
                _ => "bind a queue for that key".to_owned(),
            };
            Error::new(
                ErrorKind::Unroutable,
                format!(
                    "{} reached no queue ({code} {reason}); the broker dropped it; {remedy}",
                    describe(message)
                ),
            )
        }
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
