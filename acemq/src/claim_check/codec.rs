//! The codec that checks large bodies in.

use std::time::Duration;

use bytes::Bytes;

use super::{
    ClaimCheckStore,
    frame::{self, Frame, PREFIX},
    key,
};
use crate::{
    codec::{Decode, Encode},
    envelope::Envelope,
    error::{Error, ErrorKind, Result},
    patience::patiently,
};

/// Bodies of that many bytes and more go to the store, unless set otherwise.
const DEFAULT_THRESHOLD: usize = 64 * 1024;
/// How long one call of the store may take, unless set otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A codec whose large bodies are kept in a store, while their key travels.
///
/// It wraps any codec, and publisher and consumer need the same store. What is encoded to
/// [`threshold`](Self::threshold) bytes or more is put into the store first, and the message that
/// goes out carries its key; a smaller body travels in the message. Reading tells both apart, and
/// reads bodies that were written without a claim check, so a consumer can have it before any
/// publisher does, and thresholds may differ or change at any time. The content type is the
/// wrapped codec's.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{ClaimCheck, MemoryClaimCheckStore, Message, Queue, RawBytes};
/// use bytes::Bytes;
///
/// let mq = acemq::connect("memory://claim-check-example").await?;
/// mq.declare_queue(&Queue::new("scans").dead_letters()).await?;
/// let store = MemoryClaimCheckStore::new(); // or FileClaimCheckStore, ObjectClaimCheckStore
/// let codec = ClaimCheck::new(RawBytes::of_type("application/pdf"), store.clone());
///
/// let consumer = mq
///     .consumer::<Bytes>("scans")
///     .codec(codec.clone())
///     .start(|scan: Message<Bytes>| async move {
///         println!("a scan of {} bytes", scan.payload().len());
///         Ok::<_, acemq::HandlerError>(())
///     })
///     .await?;
///
/// let scans = mq.publisher::<Bytes>("", "scans").codec(codec);
/// scans.send(&Bytes::from(vec![0; 10_000_000])).await?; // 39 bytes on the broker
/// assert_eq!(store.len(), 1);
/// # mq.close().await?;
/// # drop(consumer);
/// # Ok(()) }
/// ```
///
/// Around an encrypting codec, the store holds what is encrypted. Inside of one, the store holds
/// the payload as it is, and it is the key that travels encrypted.
///
/// # What can go wrong
///
/// Each call of the store is bounded by [`timeout`](Self::timeout) and made up to three times
/// while its errors are transient. Then, when sending, the error is the send's (or that of
/// [`Publisher::record`](crate::Publisher::record)), and nothing was published. When receiving, a
/// store that cannot be read counts as a failed handler: the message goes the way of the retry
/// policy. An object that the store no longer has, one over the store's limit and a key that is
/// none are beyond help: the message is parked with that reason.
///
/// # Cleaning up
///
/// Nothing is ever deleted here: a message may be in several queues, wait for a retry or lie among
/// the dead letters, and its object has to be there for as long. Let the store expire objects by
/// their age (a lifecycle rule of the bucket, a job over the directory), after the longest time
/// that a message can wait and be replayed: rather months than days. Where exactly one consumer
/// reads a message, its handler may [`delete`](ClaimCheckStore::delete) the object of
/// [`key_of`](Self::key_of) as its last deed; a message that comes again after that is parked.
///
/// # Cancel safety
///
/// The object is in the store before the message is published, so there is no message without
/// its object. A send that is dropped or fails in between leaves an object that nothing refers to,
/// and so does an outbox record whose transaction is rolled back.
#[derive(Clone, Debug)]
pub struct ClaimCheck<C, S> {
    codec: C,
    store: S,
    threshold: usize,
    timeout: Duration,
}

impl<C, S> ClaimCheck<C, S> {
    /// Wraps a codec, with a store for its large bodies.
    #[must_use]
    pub fn new(codec: C, store: S) -> Self {
        Self { codec, store, threshold: DEFAULT_THRESHOLD, timeout: DEFAULT_TIMEOUT }
    }

    /// From how many bytes on a body goes to the store. 65,536 unless set; 0 puts every body
    /// there, also an empty one.
    #[must_use]
    pub fn threshold(mut self, bytes: usize) -> Self {
        self.threshold = bytes;
        self
    }

    /// How long one call of the store may take: 30 seconds unless set. There are up to three, with
    /// pauses of less than a second. Give it the time that the largest payload needs.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl ClaimCheck<(), ()> {
    /// The key that a body stands for, without fetching anything; `None` where the body carries
    /// its payload. For whoever looks at dead letters, or cleans up.
    ///
    /// It is what the body says: a key that is none is given as well.
    ///
    /// ```
    /// use acemq::ClaimCheck;
    ///
    /// let body = b"\xac\x01\x018f14e45f-ceea-467f-9a1e-3f7a1c9a0b52";
    /// assert_eq!(ClaimCheck::key_of(body), Some("8f14e45f-ceea-467f-9a1e-3f7a1c9a0b52"));
    /// assert_eq!(ClaimCheck::key_of(b"\xac\x01\x00{}"), None);
    /// assert_eq!(ClaimCheck::key_of(b"{}"), None);
    /// ```
    #[must_use]
    pub fn key_of(body: &[u8]) -> Option<&str> {
        match Frame::of(body) {
            Frame::Stored(key) => std::str::from_utf8(key).ok(),
            Frame::Absent | Frame::Inline => None,
        }
    }
}

impl<C, S: ClaimCheckStore> ClaimCheck<C, S> {
    async fn check_in(&self, payload: Bytes) -> Result<Bytes> {
        let action = "put a payload into the claim-check store";
        let put = || self.store.put(payload.clone());
        let key = patiently(action, self.timeout, put).await?;
        if !key::is_key(&key) {
            return Err(Error::new(
                ErrorKind::Encode,
                format!(
                    "{action}: it gave {} as the key, which no consumer would look up",
                    key::shown(&key)
                ),
            ));
        }
        Ok(frame::stored(&key))
    }

    async fn payload(&self, body: Bytes) -> Result<Bytes> {
        match Frame::of(&body) {
            Frame::Absent => Ok(body),
            Frame::Inline => Ok(body.slice(PREFIX..)),
            Frame::Stored(key) => self.fetch(key).await,
        }
    }

    async fn fetch(&self, key: &[u8]) -> Result<Bytes> {
        let key = std::str::from_utf8(key).map_err(|_| {
            Error::new(ErrorKind::Decode, "look up a claim check: its key is not valid UTF-8")
        })?;
        key::check(key)?;
        let action = format!("fetch payload {key:?} from the claim-check store");
        match patiently(&action, self.timeout, || self.store.get(key)).await {
            Ok(payload) => Ok(payload),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "{action}: it no longer holds it; it was deleted or has expired before this \
                     message was read, or this is not the store that the publisher put it into"
                ),
            )
            .with_source(error)),
            Err(error) if beyond_help(&error) || error.is_transient() => Err(error),
            // A login or a permission that is refused says nothing about the object.
            Err(error) => {
                Err(Error::new(ErrorKind::Store, format!("{action}: it could not be read now"))
                    .with_source(error))
            }
        }
    }
}

/// Whether the object itself is what is wrong.
fn beyond_help(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Decode | ErrorKind::TooLarge)
}

impl<T: ?Sized, C: Encode<T>, S: ClaimCheckStore> Encode<T> for ClaimCheck<C, S> {
    fn content_type(&self) -> &str {
        self.codec.content_type()
    }

    fn encode(&self, payload: &T) -> impl Future<Output = Result<Bytes>> + Send {
        let encoded = self.codec.encode(payload);
        async move {
            let body = encoded.await?;
            if body.len() < self.threshold {
                return Ok(frame::inline(&body));
            }
            self.check_in(body).await
        }
    }
}

impl<T, C: Decode<T>, S: ClaimCheckStore> Decode<T> for ClaimCheck<C, S> {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        self.codec.accepts(content_type)
    }

    fn native_type(&self) -> Option<&str> {
        self.codec.native_type()
    }

    async fn decode(&self, body: Bytes, content_type: Option<&str>) -> Result<T> {
        let payload = self.payload(body).await?;
        self.codec.decode(payload, content_type).await
    }

    async fn decode_message(
        &self,
        body: Bytes,
        content_type: Option<&str>,
        envelope: &Envelope,
    ) -> Result<T> {
        let payload = self.payload(body).await?;
        self.codec.decode_message(payload, content_type, envelope).await
    }
}
