//! Bytes as they are.

use std::borrow::Cow;

use bytes::Bytes;

use super::{Decode, Encode, is_type};
use crate::error::Result;

/// Bytes as they are: writes and reads `application/octet-stream`, or another content type with
/// [`RawBytes::of_type`].
#[derive(Clone, Debug)]
pub struct RawBytes {
    content_type: String,
}

impl RawBytes {
    /// Ready bytes of that content type, such as `application/pdf`.
    #[must_use]
    pub fn of_type(content_type: impl Into<String>) -> Self {
        Self { content_type: content_type.into() }
    }
}

impl Default for RawBytes {
    fn default() -> Self {
        Self::of_type("application/octet-stream")
    }
}

impl Encode<Bytes> for RawBytes {
    fn content_type(&self) -> &str {
        &self.content_type
    }

    async fn encode(&self, payload: &Bytes) -> Result<Bytes> {
        Ok(payload.clone())
    }
}

impl Encode<Vec<u8>> for RawBytes {
    fn content_type(&self) -> &str {
        &self.content_type
    }

    async fn encode(&self, payload: &Vec<u8>) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(payload))
    }
}

impl Encode<[u8]> for RawBytes {
    fn content_type(&self) -> &str {
        &self.content_type
    }

    async fn encode(&self, payload: &[u8]) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(payload))
    }
}

impl Decode<Bytes> for RawBytes {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(|content_type| is_type(content_type, &self.content_type))
    }

    fn native_type(&self) -> Option<&str> {
        Some(&self.content_type)
    }

    fn codec_name(&self) -> Cow<'_, str> {
        format!("RawBytes::of_type({:?})", self.content_type).into()
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<Bytes> {
        Ok(body)
    }
}
