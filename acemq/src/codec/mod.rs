//! Codecs: from a payload to bytes and back.
//!
//! A publisher's codec writes ([`Encode`]), a consumer's reads ([`Decode`]); the content type on
//! the message says which format the bytes are in. The traits are apart so that a publisher needs
//! no `Deserialize` and a consumer no `Serialize`.

mod any;
#[cfg(feature = "avro")]
mod avro;
mod by_type;
mod bytes;
mod format;
pub(crate) mod framed;
mod guard;
mod json;
mod leaf;
#[cfg(feature = "protobuf")]
mod protobuf;
mod raw;
#[cfg(test)]
mod tests;
mod text;
#[cfg(feature = "toml")]
mod toml;
mod tuple;
mod unaccepted;
mod unread;
#[cfg(feature = "xml")]
mod xml;
#[cfg(feature = "yaml")]
mod yaml;

use std::{borrow::Cow, fmt::Display, future::Future, str::Utf8Error};

#[cfg(feature = "avro")]
pub use self::avro::{Avro, AvroReader, AvroValues};
#[cfg(feature = "protobuf")]
pub use self::protobuf::Protobuf;
#[cfg(feature = "toml")]
pub use self::toml::Toml;
#[cfg(feature = "xml")]
pub use self::xml::Xml;
#[cfg(feature = "yaml")]
pub use self::yaml::Yaml;
pub use self::{
    any::AnyFormat, by_type::ByType, bytes::RawBytes, format::Format, json::Json, text::Text,
};
pub(crate) use self::{
    json::{from_json, to_json},
    unaccepted::no_codec_reads,
};
use crate::{
    counted::counted,
    envelope::Envelope,
    error::{Error, ErrorKind, Result},
};

/// Room for many a body, in bytes: one that grows into its length is copied each time it doubles.
pub(crate) const USUAL_LENGTH: usize = 512;

/// Writes payloads of type `T`.
///
/// Encoding is async so that a codec may wait for something, such as an object store. A tuple of
/// codecs writes with its first.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot write `{T}`",
    label = "this publisher's codec cannot write `{T}`",
    note = "for JSON derive `serde::Serialize` for `{T}`, or choose another codec with `.codec(…)`"
)]
pub trait Encode<T: ?Sized>: Send + Sync + 'static {
    /// The content type that goes on the message.
    fn content_type(&self) -> &str;

    /// Writes a payload.
    ///
    /// # Errors
    /// [`ErrorKind::Encode`](crate::ErrorKind::Encode) where the format cannot say the value.
    fn encode(&self, payload: &T) -> impl Future<Output = Result<::bytes::Bytes>> + Send;

    /// Writes a payload behind what `buffer` has, and gives the buffer back. For codecs around other
    /// ones, which put something before the body; where a codec writes into buffers anyway, doing it
    /// here spares them a copy. Unless said otherwise it is one.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    fn encode_onto(
        &self,
        mut buffer: Vec<u8>,
        payload: &T,
    ) -> impl Future<Output = Result<Vec<u8>>> + Send {
        let encoded = self.encode(payload);
        async move {
            buffer.extend_from_slice(&encoded.await?);
            Ok(buffer)
        }
    }
}

/// Reads payloads of type `T`.
///
/// A tuple of two to eight codecs reads whatever one of them accepts. They are asked in their order,
/// and the first that can read the body has it; if none can, the error is that of the first. An error
/// that is transient is the answer at once, since the next codec might make something else of a
/// body that is not its own.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{AnyFormat, Text};
///
/// let mq = acemq::connect("memory://tuple-example").await?;
/// let notes = mq.consumer::<String>("notes").codec((Text, AnyFormat)); // or a codec of your own
/// # drop(notes);
/// # mq.close().await
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot read `{T}`",
    label = "this consumer's codec cannot read `{T}`",
    note = "for JSON and other formats derive `serde::Deserialize` for `{T}`, or choose another codec with `.codec(…)`"
)]
pub trait Decode<T>: Send + Sync + 'static {
    /// Whether this codec reads bodies of that content type; `None` is a message without one.
    fn accepts(&self, content_type: Option<&str>) -> bool;

    /// The content type of what this codec reads, where a codec around it has none to hand on, as
    /// `Encrypted` has none. Unless said otherwise there is none.
    fn native_type(&self) -> Option<&str> {
        None
    }

    /// What an error calls this codec. Unless said otherwise the name of its type.
    fn codec_name(&self) -> Cow<'_, str> {
        unaccepted::short_name::<Self>().into()
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) where the bytes are not what this codec
    /// reads: the message is parked. A transient error is handled as a failed handler instead.
    fn decode(
        &self,
        body: ::bytes::Bytes,
        content_type: Option<&str>,
    ) -> impl Future<Output = Result<T>> + Send;

    /// Reads the body of a message whose envelope is known. A consumer calls this; a codec for
    /// which only the body matters leaves it as it is, and one that is around another hands it on.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    fn decode_message(
        &self,
        body: ::bytes::Bytes,
        content_type: Option<&str>,
        _envelope: &Envelope,
    ) -> impl Future<Output = Result<T>> + Send {
        self.decode(body, content_type)
    }
}

/// Whether `content_type` is `expected`, in any letter case and whatever parameters follow.
pub(crate) fn is_type(content_type: &str, expected: &str) -> bool {
    essence(content_type).eq_ignore_ascii_case(expected)
}

/// Whether `content_type` ends in a structured suffix such as `+json`, in any letter case and
/// whatever parameters follow.
pub(crate) fn has_suffix(content_type: &str, suffix: &str) -> bool {
    let essence = essence(content_type).as_bytes();
    essence
        .len()
        .checked_sub(suffix.len())
        .is_some_and(|at| essence[at..].eq_ignore_ascii_case(suffix.as_bytes()))
}

/// Whether bodies of `content_type` are text of some kind, whoever reads them.
pub(crate) fn is_textual(content_type: &str) -> bool {
    let essence = essence(content_type);
    let is_text = essence.get(..5).is_some_and(|family| family.eq_ignore_ascii_case("text/"));
    let types = ["application/xml", "application/yaml", "application/x-yaml", "application/toml"];
    is_text
        || types.iter().any(|known| essence.eq_ignore_ascii_case(known))
        || ["+xml", "+yaml", "+toml"].iter().any(|suffix| has_suffix(essence, suffix))
}

/// The content type without its parameters.
fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// The error of a payload for which a format has no form.
///
/// What its writer says is the text, and so it is not the source as well, which would say it again.
fn unwritable(format: &str, cause: impl Display) -> Error {
    Error::new(ErrorKind::Encode, format!("write the payload as {format}: {cause}"))
}

/// The error of a body that is not what its content type says, or not what its reader wants.
///
/// Without the cause as its source, which shows what is in the body.
fn unreadable(format: &str, body: &[u8], cause: impl Display) -> Error {
    let cause = match framed::hint(body) {
        Some(hint) => hint.to_owned(),
        None => unread::without_values(&cause.to_string()),
    };
    Error::new(ErrorKind::Decode, format!("read the body as {format}: {cause}"))
}

/// What is wrong with bytes that should be text.
fn not_utf8(cause: Utf8Error) -> String {
    format!("it is not valid UTF-8 after {}", counted(cause.valid_up_to(), "byte"))
}
