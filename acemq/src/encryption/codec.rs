//! The codec around another one.

use bytes::Bytes;

use super::{frame, keyring::Keyring};
use crate::{
    codec::{Decode, Encode, framed, is_type},
    envelope::Envelope,
    error::{Error, ErrorKind, Result},
};

const CONTENT_TYPE: &str = "application/vnd.acemq.encrypted";

/// Encrypts what another codec writes: writes and reads `application/vnd.acemq.encrypted`.
///
/// What the broker, its disks and its operators see is the frame, with the key's id; what the
/// message says beside its body (headers, routing key, message type) stays readable. A body that
/// was changed, or whose key id was, is refused and parked, as is one whose key is not held.
///
/// The format inside is not on the message: writer and reader are made with the same codec inside,
/// which is told its own content type ([`Decode::native_type`]) when it reads.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{Encrypted, Json, Keyring, Queue};
///
/// # async fn handle(_: acemq::Message<String>) -> Result<(), acemq::HandlerError> { Ok(()) }
/// let keys = Keyring::new("2026-01", Keyring::generate_key()?)?; // from your secrets, rather
/// let mq = acemq::connect("memory://encrypted-example").await?;
/// mq.declare_queue(&Queue::new("orders")).await?;
///
/// let consumer = mq
///     .consumer::<String>("orders")
///     .codec(Encrypted::new(Json, keys.clone()))
///     .start(handle)
///     .await?;
/// let orders = mq.publisher::<String>("", "orders").codec(Encrypted::new(Json, keys));
/// orders.send(&"A-1".to_owned()).await?;
/// # mq.close().await?;
/// # drop(consumer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Encrypted<C> {
    inner: C,
    keys: Keyring,
}

impl<C> Encrypted<C> {
    /// Encrypts what `inner` writes with the keyring's current key, and reads with all of its keys.
    pub fn new(inner: C, keys: Keyring) -> Self {
        Self { inner, keys }
    }

    fn open(&self, body: &[u8]) -> Result<Bytes> {
        let frame = frame::read(body)?;
        let key = self.keys.reading(frame.key_id)?;
        key.open(frame.nonce, frame.head, &body[frame.sealed_from..]).ok_or_else(|| {
            frame::refused("it was changed on its way, or encrypted with another key of that id")
        })
    }
}

impl Encrypted<()> {
    /// The id of the key that a body is encrypted with, without decrypting it; nothing for a body
    /// that is no frame. For whoever looks at dead letters, or leaves a key out.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> acemq::Result<()> {
    /// use acemq::{Encode, Encrypted, Json, Keyring};
    ///
    /// let orders = Encrypted::new(Json, Keyring::new("2026-01", [7; 32])?);
    /// let body = orders.encode("A-1").await?;
    /// assert_eq!(Encrypted::key_id_of(&body), Some("2026-01"));
    /// assert_eq!(Encrypted::key_id_of(b"\"A-1\""), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn key_id_of(body: &[u8]) -> Option<&str> {
        frame::read_key_id(body).ok().map(|(key_id, _)| key_id)
    }
}

/// The error of the codec inside, which may show what it found there. A frame is nothing of it.
fn concealed(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Decode => frame::refused(&match framed::hint_of(&error) {
            Some(hint) => format!("it was opened, and what was in it cannot be read: {hint}"),
            None => {
                "it was opened, and the codec inside cannot read what was in it; what that said \
                     is not shown, for it may quote the body"
                    .to_owned()
            }
        }),
        _ => error,
    }
}

impl<T: Sync + ?Sized, C: Encode<T>> Encode<T> for Encrypted<C> {
    fn content_type(&self) -> &str {
        CONTENT_TYPE
    }

    async fn encode(&self, payload: &T) -> Result<Bytes> {
        let key = self.keys.writing();
        let (frame, nonce) = key.begin()?;
        key.seal(self.inner.encode_onto(frame, payload).await?, nonce)
    }
}

impl<T, C: Decode<T>> Decode<T> for Encrypted<C> {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(|content_type| is_type(content_type, CONTENT_TYPE))
    }

    fn native_type(&self) -> Option<&str> {
        Some(CONTENT_TYPE)
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<T> {
        let plain = self.open(&body)?;
        self.inner.decode(plain, self.inner.native_type()).await.map_err(concealed)
    }

    async fn decode_message(
        &self,
        body: Bytes,
        _content_type: Option<&str>,
        envelope: &Envelope,
    ) -> Result<T> {
        let plain = self.open(&body)?;
        self.inner
            .decode_message(plain, self.inner.native_type(), envelope)
            .await
            .map_err(concealed)
    }
}
