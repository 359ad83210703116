//! Where a reader begins, and whether what comes is what has to come.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::Instant;

use super::{
    StreamGap, StreamOffset, StreamStop,
    counters::count,
    doubt::Ends,
    probe::{Found, LastChunk},
    progress::Progress,
    runtime::Core,
};
use crate::{
    backoff::Backoff,
    consume::{ConsumerState, FIRST_PAUSE, LONGEST_PAUSE},
    envelope::{HeaderValue, Headers},
    error::{Error, ErrorKind, Result},
    transport::{ConsumeChannel, Delivery, Link, STREAM_OFFSET, Settler, Subscription},
};

/// A channel that reads, and what has to come on it.
pub(super) struct Subscribed {
    pub(super) channel: Box<dyn ConsumeChannel>,
    pub(super) settler: Arc<dyn Settler>,
    place: Place,
    /// Whether anything has come.
    joined: bool,
    /// Since when it is in doubt whether this is the stream that was read before.
    pub(super) since: Instant,
    pub(super) ends: Ends,
}

/// Where a subscription begins.
#[derive(Debug)]
struct Place {
    argument: HeaderValue,
    /// The next offset that is not known to be finished, if one is known. What is below was not asked
    /// for.
    expected: Option<u64>,
    /// The offset it begins at, where a message was there before: it comes at once, unless it was
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
    /// The offset that tells whether this is the stream that was read before, while that is not known.
    pub(super) fn anchor(&self) -> Option<u64> {
        self.place.anchor
    }

    /// It is known.
    pub(super) fn trust(&mut self) {
        self.place.anchor = None;
    }

    /// When to look whether it is.
    pub(super) fn doubted_at(&self, core: &Core) -> Instant {
        self.since + core.client.options().connect_timeout
    }
}

impl Core {
    /// Subscribes for the first time.
    pub(super) async fn subscribe_first(&self) -> Result<Subscribed> {
        let link = self.client.consuming_link().await?;
        let next = self.load_checkpoint().await?;
        if let Some(next) = next {
            *self.progress() = Progress::at(next, None);
        } else if matches!(self.from, StreamOffset::Next | StreamOffset::Last) {
            self.begin_at_the_end(&*link).await?;
            if self.checkpoints.is_none() {
                return self.subscribe(&*link, Place::of(self.argument(self.from)?)).await;
            }
        }
        self.subscribe(&*link, self.place()?).await
    }

    /// What is an end now is somewhere in the middle after a lost connection, or a restart: its offset
    /// is the reader's place.
    async fn begin_at_the_end(&self, link: &dyn Link) -> Result<()> {
        let (origin, last_id) = match (self.from, self.last_chunk(link).await?) {
            (StreamOffset::Last, Some(LastChunk { first, .. })) => (first, None),
            (_, Some(LastChunk { last: Found { offset, id }, .. })) => (offset + 1, id),
            (_, None) => (0, None),
        };
        let next = self.checkpoint_or(origin).await?;
        *self.progress() = Progress::at(next, last_id.filter(|_| next == origin));
        Ok(())
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
        Ok(Subscribed {
            channel,
            settler,
            place,
            joined: false,
            since: Instant::now(),
            ends: Ends::default(),
        })
    }

    /// Where to go on, or to begin.
    fn place(&self) -> Result<Place> {
        let (anchor, resume) = {
            let progress = self.progress();
            (progress.anchor(), progress.resume())
        };
        if let Some(resume) = resume {
            let argument = self.argument(StreamOffset::Offset(anchor.unwrap_or(resume)))?;
            return Ok(Place { argument, expected: Some(resume), anchor });
        }
        let from =
            if self.made_anew.load(Ordering::Acquire) { StreamOffset::First } else { self.from };
        Ok(Place { expected: from.number(), ..Place::of(self.argument(from)?) })
    }

    pub(super) fn argument(&self, from: StreamOffset) -> Result<HeaderValue> {
        from.argument().map_err(|why| {
            Error::new(ErrorKind::Config, format!("read stream \"{}\": {why}", self.stream))
                .with_queue(&*self.stream)
        })
    }

    /// Reads again, however often that takes; `None` once the consumer closes.
    pub(super) async fn subscribe_until_done(&self) -> Option<Subscribed> {
        self.unless_closing(self.subscribe_again()).await.flatten()
    }

    async fn subscribe_again(&self) -> Option<Subscribed> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut attempt = 1_u32;
        loop {
            match self.try_again().await {
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

    async fn try_again(&self) -> Result<Subscribed> {
        let link = self.client.consuming_link().await?;
        self.subscribe(&*link, self.place()?).await
    }

    /// The stream is another one: none of its messages was seen. Where the reader's place is kept this
    /// is the end, since the place is that in the other stream.
    pub(super) fn begin_anew(&self) {
        let mut progress = self.progress();
        let (handled, had_a_place) = (progress.handled(), progress.resume().is_some());
        if let Some(checkpoints) = self.checkpoints.as_ref().filter(|_| had_a_place) {
            tracing::error!(
                stream = %self.stream, reader = %checkpoints.reader, handled,
                "the stream was deleted, and the reader's checkpoint is a place in what it was; the \
                 consumer stops"
            );
            return self.stop_for(StreamStop::MadeAnew { last_handled: handled });
        }
        if !self.made_anew.swap(true, Ordering::AcqRel) || had_a_place {
            tracing::warn!(
                stream = %self.stream, handled,
                "the stream was deleted; what is there under its name is read from the beginning"
            );
        }
        progress.begin_anew();
    }

    /// Looks at what has come: whether it is from this stream, from the place that was asked for, and
    /// whether something is missing before it.
    pub(super) async fn arrived(
        &self,
        subscribed: &mut Subscribed,
        offset: u64,
        delivery: &Delivery,
    ) -> Arrival {
        if self.progress().contradicts(offset, delivery.properties.message_id.as_deref()) {
            return Arrival::Another;
        }
        if let Some(anchor) = subscribed.place.anchor.take()
            && offset > anchor
            && self.is_another_behind_the_filter(anchor).await
        {
            return Arrival::Another;
        }
        let joined = std::mem::replace(&mut subscribed.joined, true);
        let Some(expected) = subscribed.place.expected else {
            subscribed.place.expected = Some(offset.saturating_add(1));
            return Arrival::Wanted;
        };
        if offset < expected {
            return Arrival::Unwanted;
        }
        subscribed.place.expected = Some(offset.saturating_add(1));
        // A filter leaves messages out, and the broker writes chunks of its own.
        let explained = joined && (self.filter.is_some() || offset <= expected.saturating_add(1));
        if offset > expected && !explained {
            self.look_for_gap(expected, offset).await;
        }
        Arrival::Wanted
    }

    /// Reports what is missing where the stream has removed what comes next; it goes on at `offset`.
    async fn look_for_gap(&self, expected: u64, offset: u64) {
        let look = async {
            let link = self.client.consuming_link().await?;
            self.oldest(&*link).await
        };
        let Some(oldest) = self.unless_closing(look).await else { return };
        match oldest {
            Ok(Some(oldest)) if oldest > expected => {
                // More may have been removed since this one was sent.
                let oldest = oldest.min(offset);
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
}

impl Place {
    /// Where nothing was read yet.
    fn of(argument: HeaderValue) -> Self {
        Self { argument, expected: None, anchor: None }
    }
}

/// Whether there is no such stream, and not merely none that can be reached now.
fn is_gone(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && error.to_string().contains("no queue")
}
