//! The default of a field, from JSON to bytes.

use serde_json::Value as Json;

use super::{
    data::{Fault, put_bytes, put_long},
    layout::{Layout, Record, Shape, TypeId},
};

/// How deep defaults may contain others: a record's own defaults may contain the record.
const MAX_DEPTH: usize = 64;

/// The bytes of a default.
pub(super) fn bytes(layout: &Layout, id: TypeId, default: &Json) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    put(layout, id, default, MAX_DEPTH, &mut out)?;
    Ok(out)
}

fn put(
    layout: &Layout,
    id: TypeId,
    default: &Json,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err("its default contains itself".to_owned());
    };
    let unfit = || format!("its default {default} is no {}", layout.name(id));
    match (layout.shape(id), default) {
        (Shape::Null, Json::Null) => {}
        (Shape::Boolean, Json::Bool(truth)) => out.push(u8::from(*truth)),
        (Shape::Int, Json::Number(number)) => {
            let int = number.as_i64().and_then(|long| i32::try_from(long).ok());
            put_long(out, int.ok_or_else(unfit)?.into());
        }
        (Shape::Long, Json::Number(number)) => put_long(out, number.as_i64().ok_or_else(unfit)?),
        (Shape::Float, Json::Number(number)) => {
            let float = number.as_f64().ok_or_else(unfit)? as f32;
            out.extend_from_slice(&float.to_le_bytes());
        }
        (Shape::Double, Json::Number(number)) => {
            out.extend_from_slice(&number.as_f64().ok_or_else(unfit)?.to_le_bytes());
        }
        (Shape::String, Json::String(text)) => put_bytes(out, text.as_bytes()),
        (Shape::Bytes, Json::String(text)) => {
            put_bytes(out, &characters_as_bytes(text).ok_or_else(unfit)?);
        }
        (Shape::Fixed { size, .. }, Json::String(text)) => {
            let bytes = characters_as_bytes(text).filter(|bytes| bytes.len() == *size);
            out.extend_from_slice(&bytes.ok_or_else(unfit)?);
        }
        (Shape::Enum { symbols, .. }, Json::String(text)) => {
            let symbol = symbols.iter().position(|symbol| symbol == text);
            put_long(out, symbol.and_then(|it| i64::try_from(it).ok()).ok_or_else(unfit)?);
        }
        (Shape::Array(of), Json::Array(items)) => {
            put_count(out, items.len());
            items.iter().try_for_each(|item| put(layout, *of, item, depth, out))?;
            end_of_blocks(out, items.len());
        }
        (Shape::Map(of), Json::Object(entries)) => {
            put_count(out, entries.len());
            for (key, value) in entries {
                put_bytes(out, key.as_bytes());
                put(layout, *of, value, depth, out)?;
            }
            end_of_blocks(out, entries.len());
        }
        (Shape::Record(Record { fields, .. }), Json::Object(entries)) => {
            for field in fields {
                let value = entries.get(&field.name).or(field.default.as_ref());
                put(layout, field.of_type, value.ok_or_else(unfit)?, depth, out)?;
            }
        }
        // The first branch, said older versions of the specification; the first that fits, newer.
        (Shape::Union(branches), _) => {
            let start = out.len();
            for (number, branch) in branches.iter().enumerate() {
                put_count(out, number);
                if put(layout, *branch, default, depth, out).is_ok() {
                    return Ok(());
                }
                out.truncate(start);
            }
            return Err(unfit());
        }
        _ => return Err(unfit()),
    }
    Ok(())
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    put_long(out, i64::try_from(count).unwrap_or(i64::MAX));
}

/// An empty block ends all; where there was no item, the count has said so.
fn end_of_blocks(out: &mut Vec<u8>, items: usize) {
    if items > 0 {
        put_long(out, 0);
    }
}

/// JSON has no bytes: each character stands for one.
fn characters_as_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|character| u8::try_from(u32::from(character)).ok()).collect()
}
