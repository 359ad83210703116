//! What goes before the data, and what the content type says about it.

use bytes::Bytes;

use super::super::{framed, has_suffix, is_type};
use crate::{
    counted::counted,
    error::{Error, ErrorKind, Result},
};

pub(super) const FIXED: &str = "avro/binary";
pub(super) const REGISTERED: &str = "application/vnd.acemq.avro";

/// The first byte of a body that names its schema; the id follows in four bytes, big end first.
const MAGIC: u8 = 0;
pub(super) const FRAME: usize = 5;

/// Whether bodies of that content type are data alone.
pub(super) fn is_fixed(content_type: &str) -> bool {
    let avro = content_type.trim_start().get(..5);
    avro.is_some_and(|start| start.eq_ignore_ascii_case("avro/"))
        || is_type(content_type, "application/avro")
        || has_suffix(content_type, "+avro")
}

/// Whether bodies of that content type name their schema.
pub(super) fn is_registered(content_type: &str) -> bool {
    is_type(content_type, REGISTERED)
}

pub(super) fn of_schema(id: u32) -> [u8; FRAME] {
    let [a, b, c, d] = id.to_be_bytes();
    [MAGIC, a, b, c, d]
}

/// The schema's id and the data.
///
/// # Errors
/// [`ErrorKind::Decode`] for a body that names no schema.
pub(super) fn split(body: &Bytes) -> Result<(u32, Bytes)> {
    match body.first_chunk() {
        Some([MAGIC, a, b, c, d]) => {
            Ok((u32::from_be_bytes([*a, *b, *c, *d]), body.slice(FRAME..)))
        }
        _ => {
            let fault = match (framed::hint(body), body.first()) {
                (Some(hint), _) => hint.to_owned(),
                (None, first) => format!(
                    "it has to begin with a zero byte and the four bytes of a schema's id, and has \
                     {}{}",
                    counted(body.len(), "byte"),
                    first.map(|first| format!(", the first {first}")).unwrap_or_default()
                ),
            };
            let text = format!("read a registered Avro body: {fault}");
            Err(Error::new(ErrorKind::Decode, text))
        }
    }
}

/// Refuses a body that names its schema where there is no registry to ask.
///
/// # Errors
/// [`ErrorKind::Decode`] where the content type says that it does, or where it says nothing and
/// the body begins like one that does.
pub(super) fn check_fixed(body: &Bytes, content_type: Option<&str>) -> Result<()> {
    let fault = match content_type {
        Some(content_type) if is_fixed(content_type) => return Ok(()),
        Some(content_type) if is_registered(content_type) => "says its content type",
        _ if body.len() >= FRAME && body[0] == MAGIC => "by its first byte",
        _ => return Ok(()),
    };
    Err(Error::new(
        ErrorKind::Decode,
        format!(
            "read an Avro body with a fixed schema: it names a schema of a registry, {fault}; read \
             it with `Avro::registered` or `AvroReader`"
        ),
    ))
}
