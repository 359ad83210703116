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
/// How long nothing more comes of a chunk, which is sent in one go.
const PAUSE: Duration = Duration::from_millis(50);

/// The newest chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastChunk {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Core {
    /// The oldest offset that there is; `None` for an empty stream.
    pub(super) async fn oldest(&self, link: &dyn Link) -> Result<Option<u64>> {
        let mut channel = self.read_from(link, "first").await?;
        Ok(next_offset(&mut *channel, QUIET).await)
    }

    /// The newest chunk; `None` for an empty stream.
    pub(super) async fn last_chunk(&self, link: &dyn Link) -> Result<Option<LastChunk>> {
        let mut channel = self.read_from(link, "last").await?;
        let Some(first) = next_offset(&mut *channel, QUIET).await else { return Ok(None) };
        let mut last = first;
        while let Some(offset) = next_offset(&mut *channel, PAUSE).await {
            last = last.max(offset);
        }
        Ok(Some(LastChunk { first, last }))
    }

    /// Nothing of what comes is acknowledged, so that at most one chunk does.
    async fn read_from(&self, link: &dyn Link, end: &str) -> Result<Box<dyn ConsumeChannel>> {
        link.subscribe(Subscription {
            queue: self.stream.as_ref().to_owned(),
            prefetch: 1,
            exclusive: false,
            arguments: Headers::from([(STREAM_OFFSET.to_owned(), end.into())]),
        })
        .await
    }
}

async fn next_offset(channel: &mut dyn ConsumeChannel, quiet: Duration) -> Option<u64> {
    match timeout(quiet, poll_fn(|context| channel.poll_next(context))).await {
        Ok(ConsumeEvent::Delivery(delivery)) => stream_offset(&delivery.properties.headers),
        Ok(ConsumeEvent::Ended(_)) | Err(_) => None,
    }
}
