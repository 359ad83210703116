//! What the targets share: payloads that nest and have something of every kind, and what has to
//! hold whatever a body is.

use std::{collections::BTreeMap, sync::LazyLock};

use acemq::{Decode, Encode};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use tokio::runtime::{Builder, Runtime};

/// Nests as deep as a format lets it.
#[derive(Serialize, Deserialize, Debug, Default)]
pub struct Tree {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub value: Option<f64>,
    #[serde(default)]
    pub sizes: BTreeMap<String, i64>,
    #[serde(default)]
    pub children: Vec<Tree>,
}

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        let is_nan = |value: Option<f64>| value.is_some_and(f64::is_nan);
        self.name == other.name
            && (self.value == other.value || is_nan(self.value) && is_nan(other.value))
            && self.sizes == other.sizes
            && self.children == other.children
    }
}

/// Reads a body; nothing where it is refused.
pub fn decode<T, C: Decode<T>>(codec: &C, body: &[u8]) -> Option<T> {
    let body = Bytes::copy_from_slice(body);
    wait(codec.decode(body, None)).ok()
}

/// Writes a payload; nothing where it has no form.
pub fn encode<C: Encode<Tree>>(codec: &C, payload: &Tree) -> Option<Bytes> {
    wait(codec.encode(payload)).ok()
}

/// What was read can be written, and is read again as the same, or is refused.
pub fn round_trip<C: Decode<Tree> + Encode<Tree>>(codec: &C, body: &[u8]) {
    let Some(read) = decode(codec, body) else { return };
    let Some(written) = encode(codec, &read) else { return };
    let content_type = Encode::<Tree>::content_type(codec);
    let again = wait(codec.decode(written.clone(), Some(content_type)));
    assert_eq!(again.ok(), Some(read), "written as {written:?}");
}

/// Reads a body of no shape in particular.
pub fn any_value<C: Decode<IgnoredAny>>(codec: &C, body: &[u8]) {
    let _ = decode::<IgnoredAny, _>(codec, body);
}

/// Stores in memory answer at once. What asks them bounds that by tokio's clock all the same, which
/// there is only inside of a runtime.
fn wait<T>(work: impl Future<Output = T>) -> T {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        Builder::new_current_thread().enable_time().build().expect("a runtime without I/O")
    });
    let _inside = RUNTIME.enter();
    futures_util::FutureExt::now_or_never(work).expect("it waits for nothing")
}
