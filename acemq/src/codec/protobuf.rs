//! Protobuf messages.

use bytes::Bytes;
use prost::Message;

use super::{Decode, Encode, framed, has_suffix, is_type};
use crate::error::{Error, ErrorKind, Result};

/// Messages of the crate `prost`, as plain Protobuf: writes `application/x-protobuf`; reads that,
/// `application/protobuf`, `application/vnd.google.protobuf` and every `…+protobuf`.
///
/// The body is the message and nothing else: no frame and no schema id, as in the whole family.
/// The types are prost's, made by `prost-build` from `.proto` files or derived by hand; with the
/// feature `protobuf`, which is on prost 0.14.
///
/// - **Unknown fields are dropped.** prost keeps none: what a newer publisher has added is gone
///   from a message that is decoded and sent on. A queue that is only copied should be read with
///   [`RawBytes`](crate::RawBytes).
/// - Fields that are absent have their default, so any bytes of another message that happen to fit
///   decode as well. An empty body is a message of defaults.
/// - Nesting deeper than 100 is refused, and no length that a body claims is believed before the
///   bytes are there.
/// - Fields of type `bytes::Bytes` share the body where that is 16 KiB long or longer.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> acemq::Result<()> {
/// use acemq::{Decode, Encode, Protobuf};
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct OrderPlaced {
///     #[prost(string, tag = "1")]
///     order_id: String,
///     #[prost(int64, tag = "2")]
///     total_cents: i64,
/// }
///
/// let order = OrderPlaced { order_id: "o-1".to_owned(), total_cents: 4_250 };
/// let body = Protobuf.encode(&order).await?;
/// let read: OrderPlaced = Protobuf.decode(body, Some("application/x-protobuf")).await?;
/// assert_eq!(read, order);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Protobuf;

/// The content type of what is written.
const WRITTEN: &str = "application/x-protobuf";

/// From this length on, fields of `Bytes` share the body instead of having a copy of their part of
/// it. prost reads a shorter one faster as a slice.
const SHARED_FROM: usize = 16 * 1024;

impl<T: Message> Encode<T> for Protobuf {
    fn content_type(&self) -> &str {
        WRITTEN
    }

    async fn encode(&self, payload: &T) -> Result<Bytes> {
        Ok(payload.encode_to_vec().into())
    }

    async fn encode_onto(&self, mut buffer: Vec<u8>, payload: &T) -> Result<Vec<u8>> {
        buffer.reserve(payload.encoded_len());
        payload.encode_raw(&mut buffer);
        Ok(buffer)
    }
}

impl<T: Message + Default> Decode<T> for Protobuf {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(|content_type| {
            is_type(content_type, WRITTEN)
                || is_type(content_type, "application/protobuf")
                || is_type(content_type, "application/vnd.google.protobuf")
                || has_suffix(content_type, "+protobuf")
        })
    }

    fn native_type(&self) -> Option<&str> {
        Some(WRITTEN)
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<T> {
        // prost takes a long body, and with it the bytes that may say why it is none.
        let hint = framed::hint(&body);
        let read = if body.len() < SHARED_FROM { T::decode(&*body) } else { T::decode(body) };
        read.map_err(|cause| {
            let cause = hint.map_or_else(|| cause.to_string(), str::to_owned);
            Error::new(ErrorKind::Decode, format!("read the body as Protobuf: {cause}"))
        })
    }
}

#[cfg(test)]
mod tests;
