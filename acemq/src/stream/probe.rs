//! Asking a broker where a stream begins and ends.
//!
//! AMQP 0-9-1 has no such question, and the number of messages that a declaration answers is none for a
//! stream (3.10 says 0, others are some seconds late). So it is read from the one end or the other.

use std::{future::poll_fn, time::Duration};

use tokio::time::timeout;

use super::runtime::Core;
use crate::{
    consume::stream_offset,
    envelope::Headers,
    error::Result,
    transport::{ConsumeChannel, ConsumeEvent, Link, STREAM_OFFSET, Subscription},
};

/// How long nothing comes of a stream that is taken to be empty. What is there is sent at once.
const QUIET: Duration = Duration::from_millis(500);
/// How long nothing more comes at the end of a stream.
const PAUSE: Duration = Duration::from_millis(50);
/// How many messages are sent at a time. Before 4.0 it is a whole chunk at least.
const WINDOW: u16 = 100;

/// The newest chunk, and what came behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastChunk {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Core {
    /// The oldest offset that there is; `None` for an empty stream.
    pub(super) async fn oldest(&self, link: &dyn Link) -> Result<Option<u64>> {
        let mut channel = self.read_from(link, "first", 1).await?;
        Ok(next_offset(&mut *channel, QUIET).await)
    }

    /// The newest chunk; `None` for an empty stream. Of a stream that is written to all the time its
    /// end is what it was a moment ago.
    pub(super) async fn last_chunk(&self, link: &dyn Link) -> Result<Option<LastChunk>> {
        let mut channel = self.read_from(link, "last", WINDOW).await?;
        let Some(first) = next_offset(&mut *channel, QUIET).await else { return Ok(None) };
        let mut chunk = LastChunk { first, last: first };
        let to_its_end = async {
            while let Some(offset) = next_offset(&mut *channel, PAUSE).await {
                chunk.last = chunk.last.max(offset);
            }
        };
        // Past this it is not the end, and near enough.
        let _ = timeout(QUIET, to_its_end).await;
        Ok(Some(chunk))
    }

    async fn read_from(
        &self,
        link: &dyn Link,
        end: &str,
        prefetch: u16,
    ) -> Result<Box<dyn ConsumeChannel>> {
        link.subscribe(Subscription {
            queue: self.stream.as_ref().to_owned(),
            prefetch,
            exclusive: false,
            arguments: Headers::from([(STREAM_OFFSET.to_owned(), end.into())]),
        })
        .await
    }
}

async fn next_offset(channel: &mut dyn ConsumeChannel, quiet: Duration) -> Option<u64> {
    match timeout(quiet, poll_fn(|context| channel.poll_next(context))).await {
        Ok(ConsumeEvent::Delivery(delivery)) => {
            channel.settler().ack(delivery.tag);
            stream_offset(&delivery.properties.headers)
        }
        Ok(ConsumeEvent::Ended(_)) | Err(_) => None,
    }
}
