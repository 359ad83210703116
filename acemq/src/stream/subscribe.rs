//! Where a reader begins, and whether what comes is what has to come.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::Instant;

use super::{
    StreamGap, StreamOffset, StreamStop, counters::count, probe::LastChunk, runtime::Core,
};
use crate::{
    backoff::Backoff,
    consume::{ConsumerState, FIRST_PAUSE, LONGEST_PAUSE},
    envelope::{HeaderValue, Headers},
    error::{Error, ErrorKind, Result},
    transport::{ConsumeChannel, Delivery, Link, STREAM_OFFSET, Settler, Subscription},
};

/// How often a stream has to be found shorter than what was read of it. A replica may be behind for a
/// moment.
const DOUBTS: u32 = 2;

/// A channel that reads, and what has to come on it.
pub(super) struct Subscribed {
    pub(super) channel: Box<dyn ConsumeChannel>,
    pub(super) settler: Arc<dyn Settler>,
    place: Place,
    /// Whether the first of what has to come has come.
    joined: bool,
    since: Instant,
    doubts: u32,
}

/// Where a subscription begins.
#[derive(Debug)]
struct Place {
    argument: HeaderValue,
    /// What is below was not asked for.
    floor: u64,
    /// The next offset that is not known to be finished, if one is known.
    expected: Option<u64>,
    /// The offset it begins at, where a message was read there before: it comes at once, unless it was
    /// removed, and tells whether this is still the same stream.
    anchor: Option<u64>,
}

/// What an arrival is.
pub(super) enum Arrival {
    Wanted,
    /// From below the place that was asked for.
    Unwanted,
    /// A message of another stream of the same name.
    Another,
}

impl Subscribed {
    /// Whether it is not known yet that this is the stream that was read before.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.place.anchor.is_some()
    }

    /// When to look whether it is.
    pub(super) fn doubted_at(&self, core: &Core) -> Instant {
        self.since + core.client.options().connect_timeout * (self.doubts + 1)
    }
}

impl Core {
    /// Subscribes for the first time.
    pub(super) async fn subscribe_first(&self) -> Result<Subscribed> {
        let link = self.client.consuming_link().await?;
        let mut first = None;
        if self.progress().handled().is_none()
            && matches!(self.from, StreamOffset::Next | StreamOffset::Last)
        {
            // What is an end now is somewhere in the middle after a lost connection.
            let chunk = self.last_chunk(&*link).await?;
            let _ = self.origin.set(match (self.from, chunk) {
                (StreamOffset::Last, Some(chunk)) => chunk.first,
                (_, Some(chunk)) => chunk.last + 1,
                (_, None) => 0,
            });
            first = Some(Place::from(self.argument(self.from)?));
        }
        let place = match first {
            Some(place) => place,
            None => self.place()?,
        };
        self.subscribe(&*link, place).await
    }

    async fn subscribe(&self, link: &dyn Link, place: Place) -> Result<Subscribed> {
        let mut arguments = self.filter.as_ref().map_or_else(Headers::new, |it| it.arguments());
        arguments.insert(STREAM_OFFSET.to_owned(), place.argument.clone());
        let subscription = Subscription {
            queue: self.stream.as_ref().to_owned(),
            prefetch: self.prefetch,
            exclusive: false,
            arguments,
        };
        let channel = link.subscribe(subscription).await?;
        let settler = channel.settler();
        Ok(Subscribed { channel, settler, place, joined: false, since: Instant::now(), doubts: 0 })
    }

    /// Where to go on, or to begin.
    fn place(&self) -> Result<Place> {
        let (handled, resume) = {
            let progress = self.progress();
            (progress.handled(), progress.resume())
        };
        if let Some(resume) = resume {
            let anchor = handled.unwrap_or(resume);
            return Ok(Place {
                argument: self.argument(StreamOffset::Offset(anchor))?,
                floor: 0,
                expected: Some(resume),
                anchor: Some(anchor),
            });
        }
        let from = match (self.made_anew.load(Ordering::Acquire), self.origin.get()) {
            (true, _) => StreamOffset::First,
            (false, Some(origin)) => StreamOffset::Offset(*origin),
            (false, None) => self.from,
        };
        Ok(Place {
            floor: from.number().unwrap_or(0),
            expected: from.number(),
            ..self.argument(from)?.into()
        })
    }

    fn argument(&self, from: StreamOffset) -> Result<HeaderValue> {
        from.argument().map_err(|why| {
            Error::new(ErrorKind::Config, format!("read stream \"{}\": {why}", self.stream))
                .with_queue(&*self.stream)
        })
    }

    /// Reads again, however often that takes; `None` once the consumer closes.
    pub(super) async fn subscribe_until_done(&self, cancelled: bool) -> Option<Subscribed> {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => None,
            subscribed = self.subscribe_again(cancelled) => subscribed,
        }
    }

    async fn subscribe_again(&self, cancelled: bool) -> Option<Subscribed> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut attempt = 1_u32;
        loop {
            match self.try_again(cancelled).await {
                Ok(subscribed) => {
                    tracing::info!(stream = %self.stream, attempt, "reading again");
                    return Some(subscribed);
                }
                Err(error) => {
                    tracing::warn!(stream = %self.stream, attempt, %error, "reading again failed");
                    if is_gone(&error) {
                        self.begin_anew();
                        if self.closing.is_cancelled() {
                            return None;
                        }
                    }
                    attempt = attempt.saturating_add(1);
                    let reason = error.to_string();
                    self.state.send_replace(ConsumerState::Recovering { attempt, reason });
                }
            }
            backoff.pause().await;
        }
    }

    async fn try_again(&self, cancelled: bool) -> Result<Subscribed> {
        let link = self.client.consuming_link().await?;
        let nothing_read = self.progress().resume().is_none();
        if let Some(origin) = self.origin.get()
            && cancelled
            && nothing_read
        {
            // Nothing that was read tells a stream that was deleted from one that was moved.
            let end = self.last_chunk(&*link).await?.map_or(0, |chunk| chunk.last + 1);
            if end < *origin {
                self.begin_anew();
            }
        }
        self.subscribe(&*link, self.place()?).await
    }

    /// The stream is another one: none of its messages was seen. Where the reader's place is kept this
    /// is the end, since the place is that in the other stream.
    pub(super) fn begin_anew(&self) {
        let handled = self.progress().handled();
        if let (Some(checkpoints), Some(handled)) = (&self.checkpoints, handled) {
            tracing::error!(
                stream = %self.stream, reader = %checkpoints.reader, handled,
                "the stream was deleted, and the reader's checkpoint is a place in what it was; the \
                 consumer stops"
            );
            return self.stop_for(StreamStop::MadeAnew { last_handled: handled });
        }
        if !self.made_anew.swap(true, Ordering::AcqRel) || handled.is_some() {
            tracing::warn!(
                stream = %self.stream, handled,
                "the stream was deleted; what is there under its name is read from the beginning"
            );
        }
        self.progress().begin_anew();
    }

    /// Looks at what has come: whether it is from this stream, from the place that was asked for, and
    /// whether something is missing before it.
    pub(super) async fn arrived(
        &self,
        subscribed: &mut Subscribed,
        offset: u64,
        delivery: &Delivery,
    ) -> Arrival {
        let place = &mut subscribed.place;
        if let Some(anchor) = place.anchor.take()
            && anchor == offset
            && self.is_another_message(offset, delivery)
        {
            return Arrival::Another;
        }
        if offset < place.floor {
            return Arrival::Unwanted;
        }
        let Some(expected) = place.expected.replace(offset + 1) else {
            subscribed.joined = true;
            return Arrival::Wanted;
        };
        if offset < expected {
            // What was handled before, and is there still.
            place.expected = Some(expected);
            subscribed.joined = true;
            return Arrival::Wanted;
        }
        // A filter leaves messages out, and the broker writes chunks of its own.
        let explained = subscribed.joined && (self.filter.is_some() || offset <= expected + 1);
        subscribed.joined = true;
        if offset > expected && !explained {
            self.look_for_gap(expected).await;
        }
        Arrival::Wanted
    }

    fn is_another_message(&self, offset: u64, delivery: &Delivery) -> bool {
        let progress = self.progress();
        progress.handled() == Some(offset)
            && progress.handled_id().is_some()
            && progress.handled_id() != delivery.properties.message_id.as_deref()
    }

    /// Reports what is missing where the stream has removed what comes next.
    async fn look_for_gap(&self, expected: u64) {
        let look = async {
            let link = self.client.consuming_link().await?;
            self.oldest(&*link).await
        };
        let oldest = tokio::select! {
            biased;
            () = self.closing.cancelled() => return,
            oldest = look => oldest,
        };
        match oldest {
            Ok(Some(oldest)) if oldest > expected => {
                tracing::warn!(
                    stream = %self.stream, expected, oldest,
                    "the stream has removed messages before this reader came to them"
                );
                count(&self.counters.gaps);
                *self.gap() = Some(StreamGap { expected, oldest });
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(
                stream = %self.stream, expected, %error,
                "messages are missing in a stream, and it is not known whether they were removed"
            ),
        }
    }

    /// Whether a stream that does not deliver what was read of it is shorter than that.
    pub(super) async fn is_another_stream(&self, subscribed: &mut Subscribed) -> bool {
        subscribed.doubts += 1;
        let look = async {
            let link = self.client.consuming_link().await?;
            self.last_chunk(&*link).await
        };
        let newest = tokio::select! {
            biased;
            () = self.closing.cancelled() => return false,
            newest = look => newest,
        };
        let Some(anchor) = subscribed.place.anchor else { return false };
        match newest {
            Ok(Some(LastChunk { last, .. })) if last < anchor => subscribed.doubts >= DOUBTS,
            Ok(Some(_)) => {
                // It is there, or was removed; a filter leaves it out.
                subscribed.place.anchor = None;
                false
            }
            // An empty stream says nothing yet.
            Ok(None) | Err(_) => {
                subscribed.doubts = 0;
                subscribed.since = Instant::now();
                false
            }
        }
    }
}

impl From<HeaderValue> for Place {
    fn from(argument: HeaderValue) -> Self {
        Self { argument, floor: 0, expected: None, anchor: None }
    }
}

/// Whether there is no such stream, and not merely none that can be reached now.
fn is_gone(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && error.to_string().contains("no queue")
}
