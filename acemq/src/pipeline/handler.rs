//! From a step's function to its consumer: read the slip, run the step, hand on what it made.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    encoder::{Encoder, Shared},
    slip::Slip,
    step::StepCore,
};
use crate::{
    codec::Decode,
    consume::{Ack, HandlerError, Message, Received, StartConsumer},
    error::Result,
    telemetry::RunOutcome,
};

/// Makes the consumers of a step.
pub(super) type MakeConsumer = Box<dyn FnOnce(Arc<StepCore>) -> StartConsumer + Send>;

/// The same for a step that makes an `N`, once it is known what writes that.
pub(super) type MakeConsumerOf<N> = Box<dyn FnOnce(Arc<dyn Encoder<N>>) -> MakeConsumer + Send>;

/// The body that goes on.
enum Content {
    Made {
        content_type: String,
        body: Bytes,
    },
    /// Byte for byte what came.
    Unchanged,
}

/// A step that makes an `N` of its message, or nothing, which ends the run.
pub(super) fn step<T, N, C, F, Fut>(codec: Shared<C>, handler: F) -> MakeConsumerOf<N>
where
    T: Send + 'static,
    N: Send + Sync + 'static,
    C: Decode<T>,
    F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<N>, HandlerError>> + Send + 'static,
{
    Box::new(move |encoder: Arc<dyn Encoder<N>>| {
        let handler = Arc::new(handler);
        consumer(codec, move |core, message: Message<T>| {
            let (handler, encoder) = (Arc::clone(&handler), Arc::clone(&encoder));
            async move {
                let received = message.received();
                let slip = core.slip_of(&received)?;
                let made = handler(message).await?;
                let content = made.map(|payload| async move {
                    let body = encoder.encode(&payload).await?;
                    Ok(Content::Made { content_type: encoder.content_type().to_owned(), body })
                });
                core.hand_on(&received, slip, content).await
            }
        })
    })
}

/// A step that says whether its message goes on, which it then does as it came.
pub(super) fn filter<T, C, F, Fut>(codec: Shared<C>, handler: F) -> MakeConsumer
where
    T: Send + 'static,
    C: Decode<T>,
    F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<bool, HandlerError>> + Send + 'static,
{
    let handler = Arc::new(handler);
    consumer(codec, move |core, message: Message<T>| {
        let handler = Arc::clone(&handler);
        async move {
            let received = message.received();
            let slip = core.slip_of(&received)?;
            let goes_on = handler(message).await?;
            let content = goes_on.then(|| std::future::ready(Ok(Content::Unchanged)));
            core.hand_on(&received, slip, content).await
        }
    })
}

/// A step that hands nothing on.
pub(super) fn last<T, C, F, Fut>(codec: Shared<C>, handler: F) -> MakeConsumer
where
    T: Send + 'static,
    C: Decode<T>,
    F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    let handler = Arc::new(handler);
    consumer(codec, move |core, message: Message<T>| {
        let handler = Arc::clone(&handler);
        async move {
            let received = message.received();
            let slip = core.slip_of(&received)?;
            handler(message).await?;
            if let Some(next) = slip.next(&core.plan) {
                tracing::warn!(
                    pipeline = core.plan.name,
                    step = core.name(),
                    message_id = received.envelope.id(),
                    "the route of a message goes on to {next}, and this step hands nothing on; \
                     the run ends here"
                );
            }
            core.hand_on(&received, slip, None::<std::future::Ready<_>>).await
        }
    })
}

fn consumer<T, C, R, Fut>(codec: Shared<C>, run: R) -> MakeConsumer
where
    T: Send + 'static,
    C: Decode<T>,
    R: Fn(Arc<StepCore>, Message<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Ack, HandlerError>> + Send + 'static,
{
    Box::new(move |core| {
        let consumer = core.plan.client.consumer::<T>(&*core.queue).codec(codec);
        let mut consumer = core.options.apply(consumer).declare(core.plan.declares);
        if core.options.store.is_some() {
            let core = Arc::clone(&core);
            consumer = consumer.idempotency_key(move |message| core.key_of(&message.received()));
        }
        consumer.start(move |message| run(Arc::clone(&core), message))
    })
}

impl StepCore {
    fn slip_of(&self, received: &Received) -> Result<Slip, HandlerError> {
        Slip::of(&received.envelope, &self.plan, self.position)
    }

    /// What a message is recognised by when it comes again: its id, which it keeps on its way, and
    /// for a route that leads here more than once which of the times it is.
    fn key_of(&self, received: &Received) -> String {
        let id = received.envelope.id();
        match self.slip_of(received).map_or(0, |slip| slip.earlier_visits()) {
            0 => id.to_owned(),
            visits => format!("{id}#{}", visits + 1),
        }
    }

    /// Sends what the step made to the next stop, or says that the run has ended here. What is
    /// made is encoded only where it goes on.
    async fn hand_on(
        &self,
        received: &Received,
        slip: Slip,
        content: Option<impl Future<Output = Result<Content>>>,
    ) -> Result<Ack, HandlerError> {
        // Whether there is a next stop is asked first: the last step of a route rarely has
        // anything to hand on, and has completed the run all the same.
        let Some(next) = slip.next(&self.plan) else {
            self.run_ended(RunOutcome::Completed, received);
            return Ok(Ack::accept());
        };
        let Some(content) = content else {
            self.run_ended(RunOutcome::EndedEarly, received);
            return Ok(Ack::accept());
        };
        let (stop, publisher) =
            (next.to_string(), self.plan.publisher(next.exchange, next.routing_key));
        let content = content.await.map_err(|error| {
            if error.is_transient() { error.into() } else { HandlerError::fatal(error) }
        })?;
        let mut envelope = received.envelope.clone();
        envelope.attempt = 1;
        // A reason stands on what was set aside only; here one is left from before a replay.
        envelope.error = None;
        slip.advance(&mut envelope, received.clock.now());
        let prepared = match content {
            Content::Made { content_type, body } => {
                publisher.prepare(envelope, (content_type, body), |message| {
                    received.carry_over(message);
                })
            }
            Content::Unchanged => {
                let content = (String::new(), received.body.clone());
                publisher.prepare(envelope, content, |message| {
                    received.carry_over(message);
                    let own = &mut message.properties;
                    own.content_type.clone_from(&received.properties.content_type);
                    own.content_encoding.clone_from(&received.properties.content_encoding);
                })
            }
        };
        Ok(Ack::after(prepared?, stop))
    }
}
