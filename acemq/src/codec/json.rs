//! JSON, the default.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use super::{Decode, Encode, has_suffix, is_type};
use crate::error::{Error, ErrorKind, Result};

/// JSON through serde: writes `application/json`; reads that, `text/json`, every `…+json`, and a
/// message without a content type.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl<T: Serialize + Sync + ?Sized> Encode<T> for Json {
    fn content_type(&self) -> &str {
        "application/json"
    }

    async fn encode(&self, payload: &T) -> Result<Bytes> {
        serde_json::to_vec(payload).map(Bytes::from).map_err(|cause| {
            Error::new(ErrorKind::Encode, "write the payload as JSON").with_source(cause)
        })
    }
}

impl<T: DeserializeOwned + Send> Decode<T> for Json {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        let Some(content_type) = content_type else { return true };
        is_type(content_type, "application/json")
            || is_type(content_type, "text/json")
            || has_suffix(content_type, "+json")
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<T> {
        serde_json::from_slice(&body).map_err(|cause| {
            Error::new(ErrorKind::Decode, format!("read the body as JSON: {cause}"))
                .with_source(cause)
        })
    }
}
