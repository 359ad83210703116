//! Messages and tables, from ours to lapin's and back.
//!
//! RabbitMQ cannot parse short strings in tables, so text is written as a long string; every
//! other field type goes out and comes back as it was.

use bytes::Bytes;
use lapin::{
    message::Delivery as LapinDelivery,
    types::{AMQPValue, DecimalValue, FieldArray, FieldTable, ShortString},
};

use crate::{
    envelope::{HeaderValue, Headers},
    error::{Error, ErrorKind, Result},
    transport::{Delivery, Properties},
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

pub(super) fn headers(table: &FieldTable) -> Headers {
    table.into_iter().map(|(name, value)| (name.as_str().to_owned(), from_amqp(value))).collect()
}

fn from_amqp(value: &AMQPValue) -> HeaderValue {
    match value {
        AMQPValue::Void => HeaderValue::Null,
        AMQPValue::Boolean(value) => HeaderValue::Bool(*value),
        AMQPValue::ShortShortInt(value) => HeaderValue::I8(*value),
        AMQPValue::ShortShortUInt(value) => HeaderValue::U8(*value),
        AMQPValue::ShortInt(value) => HeaderValue::I16(*value),
        AMQPValue::ShortUInt(value) => HeaderValue::U16(*value),
        AMQPValue::LongInt(value) => HeaderValue::I32(*value),
        AMQPValue::LongUInt(value) => HeaderValue::U32(*value),
        AMQPValue::LongLongInt(value) => HeaderValue::I64(*value),
        AMQPValue::Float(value) => HeaderValue::F32(*value),
        AMQPValue::Double(value) => HeaderValue::F64(*value),
        AMQPValue::DecimalValue(DecimalValue { scale, value }) => {
            HeaderValue::Decimal { scale: *scale, value: *value }
        }
        AMQPValue::ShortString(text) => HeaderValue::Text(text.as_str().to_owned()),
        AMQPValue::LongString(text) => match std::str::from_utf8(text.as_bytes()) {
            Ok(text) => HeaderValue::Text(text.to_owned()),
            Err(_) => HeaderValue::OpaqueText(Bytes::copy_from_slice(text.as_bytes())),
        },
        AMQPValue::ByteArray(bytes) => HeaderValue::Bytes(Bytes::copy_from_slice(bytes.as_slice())),
        AMQPValue::Timestamp(seconds) => HeaderValue::Timestamp(*seconds),
        AMQPValue::FieldArray(items) => {
            HeaderValue::List(items.as_slice().iter().map(from_amqp).collect())
        }
        AMQPValue::FieldTable(table) => HeaderValue::Table(headers(table)),
    }
}

pub(super) fn delivery(theirs: LapinDelivery) -> Delivery {
    let from = &theirs.properties;
    let text = |text: &Option<ShortString>| text.as_ref().map(|text| text.as_str().to_owned());
    Delivery {
        tag: theirs.delivery_tag,
        redelivered: theirs.redelivered,
        properties: Properties {
            content_type: text(from.content_type()),
            content_encoding: text(from.content_encoding()),
            headers: from.headers().as_ref().map(headers).unwrap_or_default(),
            delivery_mode: *from.delivery_mode(),
            priority: *from.priority(),
            correlation_id: text(from.correlation_id()),
            reply_to: text(from.reply_to()),
            expiration: text(from.expiration()),
            message_id: text(from.message_id()),
            timestamp: *from.timestamp(),
            message_type: text(from.kind()),
            user_id: text(from.user_id()),
            app_id: text(from.app_id()),
            cluster_id: text(from.cluster_id()),
        },
        exchange: theirs.exchange.into(),
        routing_key: theirs.routing_key.into(),
        body: Bytes::from(theirs.data),
    }
}
