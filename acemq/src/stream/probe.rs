//! Asking a broker where a stream begins and ends, and what is in it.
//!
//! AMQP 0-9-1 has no such question, and the number of messages that a declaration answers is none for a
//! stream (3.10 says 0, others are some seconds late). So it is read from the one end or the other,
//! without the reader's filter.

use std::{future::poll_fn, time::Duration};

use tokio::time::timeout;

use super::runtime::Core;
use crate::{
    consume::stream_offset,
    envelope::{HeaderValue, Headers},
    error::{Error, ErrorKind, Result},
    transport::{ConsumeChannel, ConsumeEvent, Link, STREAM_OFFSET, Subscription},
};

/// How long nothing comes of a stream that is taken to be empty. What is there is sent at once.
const QUIET: Duration = Duration::from_millis(500);
/// How long nothing more comes at the end of a stream.
const PAUSE: Duration = Duration::from_millis(50);
/// How many messages are sent at a time. Before 4.0 it is a whole chunk at least.
const WINDOW: u16 = 100;

/// A message of a stream, and where it is.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) offset: u64,
    pub(super) id: Option<String>,
}

/// The newest chunk, and what came behind it.
#[derive(Debug)]
pub(super) struct LastChunk {
    pub(super) first: u64,
    pub(super) last: Found,
}

impl Core {
    /// The oldest offset that there is; `None` for an empty stream.
    pub(super) async fn oldest(&self, link: &dyn Link) -> Result<Option<u64>> {
        let mut channel = self.read_from(link, "first".into(), 1).await?;
        Ok(self.next_of(&mut *channel, QUIET).await?.map(|found| found.offset))
    }

    /// The message at an offset, or the first behind it; `None` where the stream ends before, or does
    /// not answer.
    pub(super) async fn message_at(
        &self,
        link: &dyn Link,
        offset: HeaderValue,
    ) -> Result<Option<Found>> {
        let mut channel = self.read_from(link, offset, 1).await?;
        self.next_of(&mut *channel, QUIET).await
    }

    /// The newest chunk; `None` for an empty stream. Of a stream that is written to all the time its
    /// end is what it was a moment ago.
    pub(super) async fn last_chunk(&self, link: &dyn Link) -> Result<Option<LastChunk>> {
        let mut channel = self.read_from(link, "last".into(), WINDOW).await?;
        let Some(first) = self.next_of(&mut *channel, QUIET).await? else { return Ok(None) };
        let mut chunk = LastChunk { first: first.offset, last: first };
        let to_its_end = async {
            while let Some(found) = self.next_of(&mut *channel, PAUSE).await? {
                if found.offset > chunk.last.offset {
                    chunk.last = found;
                }
            }
            Ok(())
        };
        match timeout(QUIET, to_its_end).await {
            Ok(Err(error)) => Err(error),
            // Past this it is not the end, and near enough.
            Ok(Ok(())) | Err(_) => Ok(Some(chunk)),
        }
    }

    async fn read_from(
        &self,
        link: &dyn Link,
        offset: HeaderValue,
        prefetch: u16,
    ) -> Result<Box<dyn ConsumeChannel>> {
        link.subscribe(Subscription {
            queue: self.stream.as_ref().to_owned(),
            prefetch,
            exclusive: false,
            arguments: Headers::from([(STREAM_OFFSET.to_owned(), offset)]),
        })
        .await
    }

    /// `None` where nothing came for so long, which is not the same as a channel that ended.
    async fn next_of(
        &self,
        channel: &mut dyn ConsumeChannel,
        quiet: Duration,
    ) -> Result<Option<Found>> {
        let failed = |why: &str| {
            let what = format!("look where stream \"{}\" begins or ends: {why}", self.stream);
            Error::new(ErrorKind::Lost, what).with_queue(&*self.stream)
        };
        match timeout(quiet, poll_fn(|context| channel.poll_next(context))).await {
            Ok(ConsumeEvent::Delivery(delivery)) => {
                channel.settler().ack(delivery.tag);
                let properties = delivery.properties;
                let offset = stream_offset(&properties.headers)
                    .ok_or_else(|| failed("a message came without its offset"))?;
                Ok(Some(Found { offset, id: properties.message_id }))
            }
            Ok(ConsumeEvent::Ended(end)) => Err(failed(&end.to_string())),
            Err(_) => Ok(None),
        }
    }
}
