//! Requests of one type to one place.

use std::{fmt, marker::PhantomData, sync::Arc};

use super::{Requester, SendRequest, send::Decoder};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::{
    codec::{AnyFormat, Decode, Encode, Json},
    consume::payload_of,
    publish::Publisher,
    telemetry::RequestMeter,
};

/// Sends requests of type `Q` to one exchange under one routing key, and reads an `A` in reply.
/// From [`Requester::to`]. Cheap to clone.
#[must_use = "nothing is asked by this alone"]
pub struct Requests<Q, A, C = Json, D = AnyFormat> {
    requester: Requester,
    publisher: Publisher<Q, C>,
    meter: RequestMeter,
    replies: Arc<D>,
    reply: PhantomData<fn() -> A>,
}

impl<Q, A> Requests<Q, A> {
    pub(super) fn new(requester: Requester, exchange: String, routing_key: String) -> Self {
        let client = &requester.replies().client;
        let publisher = client.publisher::<Q>(exchange, routing_key);
        let meter = client
            .publish_meters()
            .of_requests(publisher.routing_key(), publisher.default_message_type());
        Self { requester, publisher, meter, replies: Arc::new(AnyFormat), reply: PhantomData }
    }
}

impl<Q, A, C, D> Requests<Q, A, C, D> {
    /// The same with another codec for the requests. Default [`Json`].
    pub fn codec<E>(self, codec: E) -> Requests<Q, A, E, D> {
        Requests {
            requester: self.requester,
            publisher: self.publisher.codec(codec),
            meter: self.meter,
            replies: self.replies,
            reply: PhantomData,
        }
    }

    /// The same with another codec for the replies. Default [`AnyFormat`].
    pub fn reply_codec<E>(self, codec: E) -> Requests<Q, A, C, E> {
        Requests {
            requester: self.requester,
            publisher: self.publisher,
            meter: self.meter,
            replies: Arc::new(codec),
            reply: PhantomData,
        }
    }

    /// The type of the requests. Default: the routing key.
    pub fn message_type(mut self, message_type: impl Into<String>) -> Self {
        self.publisher = self.publisher.message_type(message_type);
        let meters = self.requester.replies().client.publish_meters();
        self.meter =
            meters.of_requests(self.publisher.routing_key(), self.publisher.default_message_type());
        self
    }

    /// Asks, and waits for the reply. The request is confirmed and routed as every message is, and
    /// its publish interceptors see it; options come before the await.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when no reply came in time: then [`Error::may_have_been_published`]
    /// tells whether the request went out, and if so, the work may be waiting, under way, or done.
    /// [`ErrorKind::Responder`] when the responder said that it failed;
    /// [`get_ref`](crate::Error::get_ref) has its own words. [`ErrorKind::Decode`] for a reply that cannot be read as an `A`.
    /// [`ErrorKind::Closed`] once the requester is closed, for those that wait as well.
    /// [`ErrorKind::Lost`] for a reply queue that was lost and could not be made again under its
    /// name. [`ErrorKind::Conflict`] for a request under the id of another one that still waits. And
    /// whatever [`Publisher::send`] meets, [`ErrorKind::Unroutable`] where nobody responds.
    ///
    /// # Cancellation
    /// Nobody waits for the reply then; when it comes, it is counted and thrown away. Dropped before
    /// the request is handed over, nothing is sent.
    ///
    /// [`Error::may_have_been_published`]: crate::Error::may_have_been_published
    pub fn request<'a>(&'a self, payload: &'a Q) -> SendRequest<'a, A>
    where
        Q: Sync,
        A: Send + 'static,
        C: Encode<Q>,
        D: Decode<A>,
    {
        let codec = Arc::clone(&self.replies);
        let decode: Decoder<A> =
            Box::new(move |received| Box::pin(async move { payload_of(&*codec, &received).await }));
        SendRequest::new(&self.requester, &self.meter, self.publisher.send(payload), decode)
    }
}

impl<Q, A, C, D> Clone for Requests<Q, A, C, D> {
    fn clone(&self) -> Self {
        Self {
            requester: self.requester.clone(),
            publisher: self.publisher.clone(),
            meter: self.meter.clone(),
            replies: Arc::clone(&self.replies),
            reply: PhantomData,
        }
    }
}

impl<Q, A, C, D> fmt::Debug for Requests<Q, A, C, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests")
            .field("exchange", &self.publisher.exchange())
            .field("routing_key", &self.publisher.routing_key())
            .finish_non_exhaustive()
    }
}
