//! A message on its way into an outbox.

use std::{fmt, future::IntoFuture, sync::Arc};

use bytes::Bytes;

use super::{
    draft::{Draft, draft_options},
    publisher::Target,
};
use crate::{
    connection::Client,
    error::{Error, ErrorKind, Result},
    outbox::OutboxRecord,
    transport::BoxFuture,
};

/// An outbox record about to be made, from [`Publisher::record`](super::Publisher::record).
/// Awaiting it makes it.
#[must_use = "a record is made by awaiting it"]
pub struct MakeRecord<'a> {
    target: Arc<Target>,
    content_type: String,
    encode: BoxFuture<'a, Result<Bytes>>,
    draft: Draft,
}

impl<'a> MakeRecord<'a> {
    pub(super) fn new(
        client: &Client,
        target: Arc<Target>,
        content_type: String,
        encode: BoxFuture<'a, Result<Bytes>>,
    ) -> Self {
        let draft = target.draft(client);
        Self { target, content_type, encode, draft }
    }

    draft_options!(draft);

    async fn run(self) -> Result<OutboxRecord> {
        let options = &self.target.options;
        if options.priority.is_some() || options.expiration.is_some() || !options.persistent {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "make an outbox record: the table has no priority, expiration or delivery mode; \
                 use a publisher without them",
            ));
        }
        let envelope = self.draft.finish()?;
        let body = self.encode.await?;
        OutboxRecord::new(
            &*self.target.exchange,
            &*self.target.routing_key,
            self.content_type,
            body,
            &envelope,
        )
    }
}

impl<'a> IntoFuture for MakeRecord<'a> {
    type Output = Result<OutboxRecord>;
    type IntoFuture = BoxFuture<'a, Result<OutboxRecord>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for MakeRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MakeRecord")
            .field("exchange", &self.target.exchange)
            .field("routing_key", &self.target.routing_key)
            .finish_non_exhaustive()
    }
}
