//! TOML.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Decode, Encode,
    guard::{Guarded, Limits},
    has_suffix, is_type, unreadable, unwritable,
};
use crate::error::Result;

/// What is read has at most 80 levels; some values take two for one of serde's.
#[derive(Clone, Copy)]
struct Form;

impl Limits for Form {
    const DEPTH: u8 = 40;
    const NON_FINITE: bool = true;
    const WIDE_INTEGERS: bool = false;
    const NONE: bool = false;
}

/// TOML through serde: writes `application/toml`; reads that, `text/toml` and every `…+toml`.
///
/// The payload has to be a struct, a map or another table. A field that is `None` is left out.
/// What TOML has no form for is an error when it is sent: `None` elsewhere, integers beyond
/// [`i64`], maps whose keys are no text, numbers or truth values, more than 40 levels. A date of the `toml`
/// crate's is one here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Toml;

impl<T: Serialize + Sync + ?Sized> Encode<T> for Toml {
    fn content_type(&self) -> &str {
        "application/toml"
    }

    async fn encode(&self, payload: &T) -> Result<Bytes> {
        toml::to_string(&Guarded::<_, Form>::new(payload))
            .map(Bytes::from)
            .map_err(|cause| unwritable("TOML", cause))
    }
}

impl<T: DeserializeOwned + Send> Decode<T> for Toml {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(|content_type| {
            is_type(content_type, "application/toml")
                || is_type(content_type, "text/toml")
                || has_suffix(content_type, "+toml")
        })
    }

    fn native_type(&self) -> Option<&str> {
        Some("application/toml")
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<T> {
        from_slice(&body)
    }
}

pub(super) fn from_slice<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    toml::from_slice(body).map_err(|mut cause| {
        // It would show the line that it means, which is the payload.
        cause.set_input(None);
        unreadable("TOML", body, cause.to_string().trim_end())
    })
}
