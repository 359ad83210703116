//! YAML.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use serde_saphyr::{
    Error as Cause, ExternalMessageSource, Options, budget::BudgetBreach, granit_parser::ErrorKind,
    options::NonFiniteFloatPolicy,
};

use super::{
    Decode, Encode,
    guard::{Guarded, Limits},
    has_suffix, is_type, unreadable, unwritable,
};
use crate::error::Result;

/// How many levels are read. Without optimization the reader takes 25 KiB of stack for each, and a
/// thread of tokio's has 2 MiB.
const DEPTH: u8 = 48;
/// How many lists, maps and values aliases may stand for, counted with the ends of lists and maps.
const ALIASED: usize = 100_000;
/// How many aliases may be within one another.
const ALIAS_DEPTH: usize = 64;
/// How many anchors there may be, and how many aliases.
const ANCHORS: usize = 50_000;
/// How much of what is anchored is kept for its aliases: as many lists, maps and values, as much text.
const ANCHORED: usize = 1_000_000;
const ANCHORED_MEBIBYTES: usize = 64;
/// How many maps may be merged into others.
const MERGES: usize = 10_000;
/// How much text there may be, that of aliases included.
const MEBIBYTES: usize = 256;

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
/// A body is one document. It cannot name types of a language. It has at most 48 levels, which is also
/// an error when it is sent, and its aliases stand for at most 100,000 lists, maps and values.
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
        .map_err(|cause| unreadable("YAML", body, fault(&cause)))
}

/// What is wrong with a body. What is over a limit is said in words of ours, since the limit is.
fn fault(cause: &Cause) -> String {
    let limit = match innermost(cause) {
        Cause::Budget { breach, .. } => match breach {
            BudgetBreach::Depth { .. } => too_deep(),
            BudgetBreach::Documents { .. } => "it is more than one document".to_owned(),
            BudgetBreach::ScalarBytes { .. } => {
                format!("with what its aliases stand for it has more than {MEBIBYTES} MiB of text")
            }
            BudgetBreach::Aliases { .. } => format!("it has more than {ANCHORS} aliases"),
            BudgetBreach::Anchors { .. } => format!("it has more than {ANCHORS} anchors"),
            BudgetBreach::RecordedAnchorEvents { .. } => {
                format!("its anchors hold more than {ANCHORED} lists, maps and values")
            }
            BudgetBreach::RecordedAnchorBytes { .. } => {
                format!("its anchors hold more than {ANCHORED_MEBIBYTES} MiB of text")
            }
            BudgetBreach::MergeKeys { .. } => format!("it merges more than {MERGES} maps"),
            _ => return cause.to_string(),
        },
        Cause::MultipleDocuments { .. } => "it is more than one document".to_owned(),
        Cause::AliasReplayLimitExceeded { .. } => {
            format!("its aliases stand for more than {ALIASED} lists, maps and values")
        }
        Cause::AliasReplayStackDepthExceeded { .. } => {
            format!("its aliases are more than {ALIAS_DEPTH} levels within one another")
        }
        Cause::RecursiveReferencesRequireWeakTypes { .. } => {
            "an anchor in it has an alias of its own inside".to_owned()
        }
        Cause::ExternalMessage { source, .. } => match &**source {
            ExternalMessageSource::Parser(fault)
                if matches!(fault.kind(), ErrorKind::RecursionLimitExceeded) =>
            {
                too_deep()
            }
            _ => return cause.to_string(),
        },
        _ => return cause.to_string(),
    };
    match cause.location().filter(|place| place.line() > 0) {
        Some(place) => format!("{limit} at line {} column {}", place.line(), place.column()),
        None => limit,
    }
}

fn too_deep() -> String {
    format!("it is nested more than {DEPTH} levels deep")
}

/// An error without those around it that say in which alias it was met.
fn innermost(mut cause: &Cause) -> &Cause {
    while let Cause::AliasError { error, .. } | Cause::WithSnippet { error, .. } = cause {
        cause = error;
    }
    cause
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
            max_total_scalar_bytes: MEBIBYTES << 20,
            max_aliases: ANCHORS,
            max_anchors: ANCHORS,
            max_recorded_anchor_events: ANCHORED,
            max_recorded_anchor_bytes: ANCHORED_MEBIBYTES << 20,
            max_merge_keys: MERGES,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: ALIASED,
            max_replay_stack_depth: ALIAS_DEPTH,
        },
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        reject_unsupported_tags: true,
        // An error would show the lines around it, which are the payload.
        with_snippet: false,
    }
}
