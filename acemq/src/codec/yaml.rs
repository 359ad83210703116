//! YAML.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use serde_saphyr::{Options, options::NonFiniteFloatPolicy};

use super::{
    Decode, Encode,
    guard::{Guarded, Limits},
    has_suffix, is_type, unreadable, unwritable,
};
use crate::error::Result;

/// How many levels are read. Without optimization the reader takes 25 KiB of stack for each, and a
/// thread of tokio's has 2 MiB.
const DEPTH: u8 = 48;

/// Everything has a form in YAML.
#[derive(Clone, Copy)]
struct Form;

impl Limits for Form {
    const DEPTH: u8 = DEPTH;
    const NON_FINITE: bool = true;
    const WIDE_INTEGERS: bool = true;
    const NONE: bool = true;
}

/// YAML through serde: writes `application/yaml`; reads that, `application/x-yaml`, `text/yaml`,
/// `text/x-yaml` and every `…+yaml`.
///
/// A body is one document. It cannot name types of a language, and what its aliases expand to is
/// bounded, as is its depth, at 48 levels; more than that is an error when it is sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Yaml;

impl<T: Serialize + Sync + ?Sized> Encode<T> for Yaml {
    fn content_type(&self) -> &str {
        "application/yaml"
    }

    async fn encode(&self, payload: &T) -> Result<Bytes> {
        serde_saphyr::to_string(&Guarded::<_, Form>::new(payload))
            .map(Bytes::from)
            .map_err(|cause| unwritable("YAML", cause))
    }
}

impl<T: DeserializeOwned + Send> Decode<T> for Yaml {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(|content_type| {
            ["application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"]
                .iter()
                .any(|expected| is_type(content_type, expected))
                || has_suffix(content_type, "+yaml")
        })
    }

    fn native_type(&self) -> Option<&str> {
        Some("application/yaml")
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<T> {
        from_slice(&body)
    }
}

pub(super) fn from_slice<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_saphyr::from_slice_with_options(body, options())
        .map_err(|cause| unreadable("YAML", cause.to_string()))
}

/// How it is read.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH.into(),
            flow_nesting_limit: DEPTH.into(),
            max_documents: 1,
            // The body has a length that bounds these; what aliases add is bounded below.
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: 256 << 20,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        reject_unsupported_tags: true,
        // An error would show the lines around it, which are the payload.
        with_snippet: false,
    }
}
