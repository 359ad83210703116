//! A message on its way into a pipeline.

use std::{
    fmt,
    future::IntoFuture,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use super::{name, plan::Plan};
use crate::{
    connection::Patience,
    counted::counted,
    envelope::{self, Envelope, Route},
    error::{Error, ErrorKind, Result},
    itinerary::Itinerary,
    publish::{Draft, Publisher, draft_options},
    transport::BoxFuture,
};

/// What a frame holds beside the application's headers: the library's own and the properties.
const OTHER_HEADERS: usize = 2_048;

/// What is known about a run that was sent into a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunReceipt {
    /// The id of the run, which every hop carries and which survives dead-lettering and replay. For
    /// an itinerary, which has no place for one, it is the correlation id.
    pub run_id: String,
    /// The message id. Our steps keep it on the way; those of other libraries may not.
    pub message_id: String,
}

/// A message about to be sent into a pipeline, from [`Pipeline::send`](super::Pipeline::send).
/// Awaiting it sends it.
#[must_use = "a message is sent by awaiting it"]
pub struct SendRun<'a> {
    plan: &'a Plan,
    entered: &'a AtomicU64,
    content_type: String,
    encode: BoxFuture<'a, Result<Bytes>>,
    draft: Draft,
    way: Way,
}

/// The way that a message takes.
enum Way {
    /// All declared steps.
    Declared,
    /// These steps.
    Through(Vec<String>),
    Along(Itinerary),
}

impl<'a> SendRun<'a> {
    pub(super) fn new(
        plan: &'a Arc<Plan>,
        entered: &'a AtomicU64,
        content_type: String,
        encode: BoxFuture<'a, Result<Bytes>>,
    ) -> Self {
        let draft = Draft::new(&plan.client, &plan.name);
        Self { plan, entered, content_type, encode, draft, way: Way::Declared }
    }

    draft_options!(draft);

    /// Sends it through these steps of the pipeline, in this order, instead of through all. The slip
    /// is the declared route, which names steps. A step may also be one that others run.
    ///
    /// A step has to read what the one before it on the way has made.
    pub fn through<S: Into<String>>(mut self, steps: impl IntoIterator<Item = S>) -> Self {
        self.way = Way::Through(steps.into_iter().map(Into::into).collect());
        self
    }

    /// Sends it along an itinerary, which it carries with it: to any exchange, whatever was declared
    /// here. The first stop has to read what is sent.
    pub fn along(mut self, itinerary: Itinerary) -> Self {
        self.way = Way::Along(itinerary);
        self
    }

    async fn run(self) -> Result<RunReceipt> {
        let Self { plan, entered, content_type, encode, draft, way } = self;
        let mut envelope = draft.finish()?;
        let (publisher, run_id) = match way {
            Way::Declared => declared(plan, &mut envelope, plan.steps.clone())?,
            Way::Through(steps) => {
                let action = action(plan, &envelope);
                let check = |step| name::check(&action, step);
                let checked: Result<()> = steps.iter().map(String::as_str).try_for_each(check);
                checked.map_err(|error| error.with_message_id(envelope.id()))?;
                declared(plan, &mut envelope, steps)?
            }
            Way::Along(itinerary) => along(plan, &mut envelope, &itinerary)?,
        };
        let message_id = envelope.id().to_owned();
        let body = encode.await.map_err(|error| error.with_message_id(&*message_id))?;
        let prepared = publisher.prepare(envelope, (content_type, body), |_| ())?;
        let receipt = prepared.hand_over(&mut Patience::default()).await?.finish().await?;
        entered.fetch_add(1, Ordering::Relaxed);
        Ok(RunReceipt { run_id, message_id: receipt.message_id })
    }
}

/// Puts a declared route onto the envelope, and says what sends to its first step.
fn declared(
    plan: &Plan,
    envelope: &mut Envelope,
    steps: Vec<String>,
) -> Result<(Publisher<()>, String)> {
    let Some(first) = steps.first() else { return Err(nowhere(plan, envelope)) };
    let publisher = plan.publisher(&plan.name, first);
    let run_id = uuid::Uuid::new_v4().to_string();
    envelope.route = Some(Route { steps, position: 0, run_id: run_id.clone() });
    Ok((publisher, run_id))
}

/// Puts an itinerary onto the envelope, and says what sends to its first stop.
fn along(
    plan: &Plan,
    envelope: &mut Envelope,
    itinerary: &Itinerary,
) -> Result<(Publisher<()>, String)> {
    let Some(first) = itinerary.next() else { return Err(nowhere(plan, envelope)) };
    let header = itinerary.to_header();
    let growth = itinerary.longest_header().saturating_sub(header.len());
    envelope.headers.insert(Itinerary::HEADER.to_owned(), header.into());
    // Else the message would be lost for the route somewhere on it, at a hop that cannot be sent.
    let longest = envelope::encoded_len(&envelope.headers) + growth + OTHER_HEADERS;
    if let Some(frame_max) = plan.client.frame_max()
        && longest > frame_max
    {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!(
                "send message {} along an itinerary: with all of its {} made its headers \
                 take {longest} bytes, but a frame holds {frame_max}; make it shorter",
                envelope.id(),
                counted(itinerary.steps().len(), "stop"),
            ),
        )
        .with_message_id(envelope.id()));
    }
    let publisher = plan.publisher(first.exchange(), first.routing_key());
    Ok((publisher, envelope.correlation_id().to_owned()))
}

fn nowhere(plan: &Plan, envelope: &Envelope) -> Error {
    let text = format!("{}: the way that it is given has no stop", action(plan, envelope));
    Error::new(ErrorKind::Config, text).with_message_id(envelope.id())
}

fn action(plan: &Plan, envelope: &Envelope) -> String {
    format!("send message {} into the pipeline \"{}\"", envelope.id(), plan.name)
}

impl<'a> IntoFuture for SendRun<'a> {
    type Output = Result<RunReceipt>;
    type IntoFuture = BoxFuture<'a, Result<RunReceipt>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for SendRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRun")
            .field("pipeline", &self.plan.name)
            .field("message_id", &self.draft.envelope.id())
            .finish_non_exhaustive()
    }
}
