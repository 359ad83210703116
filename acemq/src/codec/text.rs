//! Plain text.

use bytes::Bytes;

use super::{Decode, Encode, is_type, not_utf8, unreadable};
use crate::error::Result;

/// Plain text in UTF-8: writes and reads `text/plain`. Bytes that are not UTF-8 are refused, so
/// such a message is parked and not delivered garbled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text;

impl<T: AsRef<str> + Sync + ?Sized> Encode<T> for Text {
    fn content_type(&self) -> &str {
        "text/plain"
    }

    async fn encode(&self, payload: &T) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(payload.as_ref().as_bytes()))
    }
}

impl Decode<String> for Text {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(|content_type| is_type(content_type, "text/plain"))
    }

    fn native_type(&self) -> Option<&str> {
        Some("text/plain")
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<String> {
        String::from_utf8(body.into())
            .map_err(|cause| unreadable("text", cause.as_bytes(), not_utf8(cause.utf8_error())))
    }
}
