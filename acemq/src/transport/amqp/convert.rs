//! Names and arguments, from ours to lapin's.
//!
//! RabbitMQ cannot parse short strings in tables, so text is written as a long string.

use lapin::types::{AMQPValue, DecimalValue, FieldArray, FieldTable, ShortString};

use crate::{
    envelope::{HeaderValue, Headers},
    error::{Error, ErrorKind, Result},
};

/// A short string of a text that was checked before; too long a one is an error all the same.
pub(super) fn short(text: &str) -> Result<ShortString> {
    ShortString::try_new(text)
        .map_err(|error| Error::new(ErrorKind::TooLarge, "write a short string").with_source(error))
}

pub(super) fn table(headers: &Headers) -> Result<FieldTable> {
    let mut table = FieldTable::default();
    for (name, value) in headers {
        table.insert(short(name)?, to_amqp(value)?);
    }
    Ok(table)
}

fn to_amqp(value: &HeaderValue) -> Result<AMQPValue> {
    Ok(match value {
        HeaderValue::Null => AMQPValue::Void,
        HeaderValue::Bool(value) => AMQPValue::Boolean(*value),
        HeaderValue::I8(value) => AMQPValue::ShortShortInt(*value),
        HeaderValue::U8(value) => AMQPValue::ShortShortUInt(*value),
        HeaderValue::I16(value) => AMQPValue::ShortInt(*value),
        HeaderValue::U16(value) => AMQPValue::ShortUInt(*value),
        HeaderValue::I32(value) => AMQPValue::LongInt(*value),
        HeaderValue::U32(value) => AMQPValue::LongUInt(*value),
        HeaderValue::I64(value) => AMQPValue::LongLongInt(*value),
        HeaderValue::F32(value) => AMQPValue::Float(*value),
        HeaderValue::F64(value) => AMQPValue::Double(*value),
        HeaderValue::Decimal { scale, value } => {
            AMQPValue::DecimalValue(DecimalValue { scale: *scale, value: *value })
        }
        HeaderValue::Text(text) => AMQPValue::LongString(text.as_bytes().into()),
        HeaderValue::OpaqueText(bytes) => AMQPValue::LongString(bytes.to_vec().into()),
        HeaderValue::Bytes(bytes) => AMQPValue::ByteArray(bytes.to_vec().into()),
        HeaderValue::Timestamp(seconds) => AMQPValue::Timestamp(*seconds),
        HeaderValue::List(items) => AMQPValue::FieldArray(FieldArray::from(
            items.iter().map(to_amqp).collect::<Result<Vec<_>>>()?,
        )),
        HeaderValue::Table(headers) => AMQPValue::FieldTable(table(headers)?),
    })
}
