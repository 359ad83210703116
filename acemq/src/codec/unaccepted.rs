//! What is said of a content type that no codec accepts.

use std::any::type_name;

use super::{has_suffix, is_type};
use crate::error::{Error, ErrorKind};

/// The name of a type without the modules it is in.
pub(super) fn short_name<C: ?Sized>() -> String {
    type_name::<C>()
        .split_inclusive(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter)))
        .filter_map(|part| part.rsplit("::").next())
        .collect()
}

/// The error of a message whose content type is none that `codec` reads, `codec` being what
/// [`Decode::codec_name`](super::Decode::name) says.
pub(crate) fn no_codec_reads(content_type: Option<&str>, codec: &str) -> Error {
    let text = match content_type {
        Some(content_type) => format!(
            "no codec here reads '{}': there is `{codec}`, and this takes {}; set it with \
             `.codec(…)`, or several as a tuple",
            content_type.escape_debug(),
            reader_of(content_type).unwrap_or("one of your own, or `RawBytes::of_type(…)`")
        ),
        None => format!(
            "no codec here reads a message without a content type: there is `{codec}`, and this \
             takes `Json`, where it is JSON; set it with `.codec(…)`, or have the publisher say \
             the type"
        ),
    };
    Error::new(ErrorKind::Decode, text)
}

/// What reads which content types, and what they end in: every codec here, whether its feature is
/// enabled or not.
const READERS: &[(&str, &[&str], Option<&str>)] = &[
    ("`Json`", &["application/json", "text/json"], Some("+json")),
    ("`Text`", &["text/plain"], None),
    ("`RawBytes::default()`", &["application/octet-stream"], None),
    ("`Xml` (feature `xml`)", &["application/xml", "text/xml"], Some("+xml")),
    (
        "`Yaml` (feature `yaml`)",
        &["application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"],
        Some("+yaml"),
    ),
    ("`Toml` (feature `toml`)", &["application/toml", "text/toml"], Some("+toml")),
    (
        "`Protobuf` (feature `protobuf`)",
        &["application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf"],
        Some("+protobuf"),
    ),
    (
        "`Avro::fixed` with its schema (feature `avro`)",
        &["avro/binary", "application/avro"],
        Some("+avro"),
    ),
    ("`AvroReader` with its registry (feature `avro`)", &["application/vnd.acemq.avro"], None),
    (
        "`Encrypted` with its keys (feature `encryption`)",
        &["application/vnd.acemq.encrypted"],
        None,
    ),
];

fn reader_of(content_type: &str) -> Option<&'static str> {
    let reads = |(_, types, suffix): &&(&str, &[&str], Option<&str>)| {
        types.iter().any(|known| is_type(content_type, known))
            || suffix.is_some_and(|suffix| has_suffix(content_type, suffix))
    };
    READERS.iter().find(reads).map(|(codec, ..)| *codec)
}
