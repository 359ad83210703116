//! Headers as the outbox table holds them: one JSON object.
//!
//! Integers are 64-bit in both directions, except the library's own, which keep the width they
//! have on the wire, so that a message that went through the outbox is the same there as one
//! published directly.

use serde_json::{Map, Number, Value};

use crate::{
    envelope::{self, HeaderValue, Headers},
    error::{Error, ErrorKind, Result},
};

/// Refuses a header that JSON cannot say, naming it.
pub(crate) fn check(headers: &Headers) -> Result<()> {
    for (name, value) in headers {
        if to_json(value).is_none() {
            return Err(Error::new(
                ErrorKind::Encode,
                format!(
                    "make an outbox record: header `{name}` holds a value that the table's JSON \
                     cannot say (bytes, a timestamp, a decimal, or a number that is not finite); \
                     send it as text or an integer"
                ),
            ));
        }
    }
    Ok(())
}

/// The headers as JSON text. What [`check`] refuses becomes null.
pub(crate) fn render(headers: &Headers) -> String {
    Value::Object(object(headers).unwrap_or_default()).to_string()
}

/// Headers from JSON text.
pub(crate) fn parse(text: &str) -> Result<Headers> {
    let value: Value = serde_json::from_str(text)
        .map_err(|cause| Error::new(ErrorKind::Decode, format!("not JSON: {cause}")))?;
    let Value::Object(object) = value else {
        return Err(Error::new(ErrorKind::Decode, "not a JSON object"));
    };
    Ok(object
        .into_iter()
        .map(|(name, value)| {
            let value = from_json(value);
            let value = if is_narrow(&name) { narrow(value) } else { value };
            (name, value)
        })
        .collect())
}

fn to_json(value: &HeaderValue) -> Option<Value> {
    Some(match value {
        HeaderValue::Null => Value::Null,
        HeaderValue::Bool(value) => Value::Bool(*value),
        HeaderValue::F32(value) => Value::Number(Number::from_f64(f64::from(*value))?),
        HeaderValue::F64(value) => Value::Number(Number::from_f64(*value)?),
        HeaderValue::Text(text) => Value::String(text.clone()),
        HeaderValue::List(values) => {
            Value::Array(values.iter().map(to_json).collect::<Option<_>>()?)
        }
        HeaderValue::Table(headers) => Value::Object(object(headers)?),
        HeaderValue::Decimal { .. }
        | HeaderValue::OpaqueText(_)
        | HeaderValue::Bytes(_)
        | HeaderValue::Timestamp(_) => return None,
        integer => Value::Number(integer.as_i64()?.into()),
    })
}

fn object(headers: &Headers) -> Option<Map<String, Value>> {
    headers.iter().map(|(name, value)| Some((name.clone(), to_json(value)?))).collect()
}

fn from_json(value: Value) -> HeaderValue {
    match value {
        Value::Null => HeaderValue::Null,
        Value::Bool(value) => HeaderValue::Bool(value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => HeaderValue::I64(integer),
            None => HeaderValue::F64(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => HeaderValue::Text(text),
        Value::Array(values) => HeaderValue::List(values.into_iter().map(from_json).collect()),
        Value::Object(object) => HeaderValue::Table(
            object.into_iter().map(|(name, value)| (name, from_json(value))).collect(),
        ),
    }
}

/// The library's own headers that are 32-bit integers on the wire.
fn is_narrow(name: &str) -> bool {
    [envelope::VERSION, envelope::ATTEMPT, envelope::ROUTE_POSITION].contains(&name)
}

fn narrow(value: HeaderValue) -> HeaderValue {
    match value {
        HeaderValue::I64(integer) => i32::try_from(integer).map_or(value, HeaderValue::I32),
        other => other,
    }
}
