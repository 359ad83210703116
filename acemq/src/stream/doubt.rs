//! Whether what is read is still the stream that was read before.
//!
//! A stream that was deleted and made again has the same name and counts from 0 again. It is told by
//! another message at an offset that was read, or by its end before that.

use tokio::time::Instant;

use super::{StreamOffset, runtime::Core, subscribe::Subscribed};
use crate::error::Result;

/// How often a stream has to be found to end before what was read of it. A replica may be behind for a
/// moment.
const DOUBTS: u32 = 2;

/// How often, one after the other, a stream was found to end at the same offset.
#[derive(Debug, Default)]
pub(super) struct Ends {
    at: Option<u64>,
    times: u32,
}

impl Ends {
    /// Whether a stream that ends there, before what was read of it, is another one. One that has
    /// grown meanwhile may be a replica that catches up; another stream is known by its messages once
    /// it has come so far.
    fn before_what_was_read(&mut self, end: u64) -> bool {
        self.times = if self.at.replace(end) == Some(end) { self.times + 1 } else { 1 };
        self.times >= DOUBTS
    }
}

/// What the stream is at the offset of a message that was read.
enum Look {
    Same,
    Another,
    /// It ends before, here.
    Shorter(u64),
    /// It is empty, or does not answer.
    Unknown,
}

impl Core {
    /// Looks whether a stream that does not deliver what was read of it is another one.
    pub(super) async fn is_another_stream(&self, subscribed: &mut Subscribed) -> bool {
        let Some(anchor) = subscribed.anchor() else { return false };
        let look = match self.unless_closing(self.look_at(anchor)).await {
            None => return false,
            Some(look) => look.unwrap_or(Look::Unknown),
        };
        let another = match look {
            Look::Same => {
                // It is there and a filter leaves it out, or it was removed.
                subscribed.trust();
                false
            }
            Look::Another => true,
            Look::Shorter(end) => subscribed.ends.before_what_was_read(end),
            Look::Unknown => {
                subscribed.ends = Ends::default();
                false
            }
        };
        subscribed.since = Instant::now();
        another
    }

    /// Looks whether there is another message at an offset than the one that was read there, where a
    /// filter may have left it out.
    pub(super) async fn is_another_behind_the_filter(&self, anchor: u64) -> bool {
        if self.filter.is_none() || self.progress().id_at(anchor).is_none() {
            return false;
        }
        matches!(self.unless_closing(self.look_at(anchor)).await, Some(Ok(Look::Another)))
    }

    async fn look_at(&self, anchor: u64) -> Result<Look> {
        let link = self.client.consuming_link().await?;
        let offset = self.argument(StreamOffset::Offset(anchor))?;
        if let Some(found) = self.message_at(&*link, offset).await? {
            let another =
                found.offset == anchor && self.progress().contradicts(anchor, found.id.as_deref());
            return Ok(if another { Look::Another } else { Look::Same });
        }
        Ok(match self.last_chunk(&*link).await? {
            Some(chunk) if chunk.last.offset < anchor => Look::Shorter(chunk.last.offset),
            Some(_) | None => Look::Unknown,
        })
    }

    /// What comes of something, unless the consumer closes before.
    pub(super) async fn unless_closing<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => None,
            done = work => Some(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_end_that_stays_where_it_is_makes_a_stream_another_one() {
        let mut ends = Ends::default();
        for (end, another) in [(2, false), (3, false), (4, false), (4, true)] {
            assert_eq!(ends.before_what_was_read(end), another, "{end}");
        }
        assert!(!Ends::default().before_what_was_read(0));
    }
}
