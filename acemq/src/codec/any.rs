//! Every format that is known here.

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{Decode, Format, no_codec_reads};
use crate::error::Result;

/// Reads a message in the format that its content type names: what a consumer does unless it is given
/// another codec.
///
/// | content type | read as |
/// |---|---|
/// | none, or what [`Json`](crate::Json) reads | JSON |
/// | `application/xml`, `text/xml`, `…+xml` | XML, with the feature `xml` |
/// | `application/yaml`, `application/x-yaml`, `text/yaml`, `text/x-yaml`, `…+yaml` | YAML, with the feature `yaml` |
/// | `application/toml`, `text/toml`, `…+toml` | TOML, with the feature `toml` |
/// | `text/plain` | a `String`, a number, a truth value, an enum by a variant's name, and newtypes of them |
/// | `application/octet-stream` | a `Vec<u8>` or what else serde reads from bytes |
///
/// A message of another content type is parked, as is one whose body is not what it says.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyFormat;

impl<T: DeserializeOwned + Send> Decode<T> for AnyFormat {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        Format::of(content_type).is_some()
    }

    async fn decode(&self, body: Bytes, content_type: Option<&str>) -> Result<T> {
        match Format::of(content_type) {
            Some(format) => format.read(&body),
            None => Err(no_codec_reads(content_type, "AnyFormat")),
        }
    }
}
