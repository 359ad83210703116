//! JSON, the default.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Decode, Encode, USUAL_LENGTH,
    guard::{Guarded, Limits},
    has_suffix, is_type, unreadable, unwritable,
};
use crate::error::Result;

/// serde_json reads 127 levels; it writes NaN as `null`.
#[derive(Clone, Copy)]
struct Form;

impl Limits for Form {
    const DEPTH: u8 = 127;
    const NON_FINITE: bool = false;
    const WIDE_INTEGERS: bool = true;
    const NONE: bool = true;
}

/// JSON through serde: writes `application/json`; reads that, `text/json`, every `…+json`, and a
/// message without a content type.
///
/// NaN and the infinities, for which JSON has no form, are an error and not `null`, and so are
/// `Some(None)`, which would be read back as `None`, maps whose keys are no text, numbers or truth
/// values, and what is nested more than 127 levels deep. Integers of any width are written as they
/// are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl<T: Serialize + Sync + ?Sized> Encode<T> for Json {
    fn content_type(&self) -> &str {
        "application/json"
    }

    async fn encode(&self, payload: &T) -> Result<Bytes> {
        write(Vec::new(), payload).map(Into::into)
    }

    async fn encode_onto(&self, buffer: Vec<u8>, payload: &T) -> Result<Vec<u8>> {
        write(buffer, payload)
    }
}

fn write<T: Serialize + ?Sized>(mut buffer: Vec<u8>, payload: &T) -> Result<Vec<u8>> {
    buffer.reserve(USUAL_LENGTH);
    match serde_json::to_writer(&mut buffer, &Guarded::<_, Form>::new(payload)) {
        Ok(()) => Ok(buffer),
        Err(cause) => Err(unwritable("JSON", cause)),
    }
}

impl<T: DeserializeOwned + Send> Decode<T> for Json {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        let Some(content_type) = content_type else { return true };
        is_type(content_type, "application/json")
            || is_type(content_type, "text/json")
            || has_suffix(content_type, "+json")
    }

    fn native_type(&self) -> Option<&str> {
        Some("application/json")
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<T> {
        from_slice(&body)
    }
}

/// The text of a value, with what has no form in JSON refused as the codec does.
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    let written = write(Vec::new(), value)?;
    String::from_utf8(written).map_err(|cause| unwritable("JSON", cause))
}

/// A value from its text.
pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    from_slice(text.as_bytes())
}

pub(super) fn from_slice<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|cause| unreadable("JSON", body, cause))
}
