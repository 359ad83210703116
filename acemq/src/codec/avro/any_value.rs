//! From bytes to apache-avro's value of any shape.
//!
//! Its own decoder takes so much stack for each level that a few dozen of them end a thread, and
//! makes nulls of what is not there.

use apache_avro::{
    Decimal, Duration, Schema, Uuid, reader::datum::GenericDatumReader, types::Value,
};

use super::{
    data::{Data, Fault},
    layout::{Layout, Meaning, Record, Shape, Type, TypeId},
};

/// Reads a value.
pub(super) fn read(data: &mut Data<'_>, layout: &Layout, id: TypeId) -> Result<Value, Fault> {
    let Type { shape, meaning } = layout.get(id);
    match shape {
        Shape::Null => Ok(Value::Null),
        Shape::Boolean => Ok(Value::Boolean(data.boolean()? == 1)),
        Shape::Int => Ok(int(data.int()?, *meaning)),
        Shape::Long => Ok(long(data.long()?, *meaning)),
        Shape::Float => data.float().map(Value::Float),
        Shape::Double => data.double().map(Value::Double),
        Shape::Bytes => bytes(data.bytes()?, *meaning),
        Shape::String => text(data.text()?, *meaning),
        Shape::Fixed { size, .. } => fixed(data.take(*size)?, *meaning),
        Shape::Enum { symbols, .. } => {
            let choice = data.choice(symbols.len())?;
            Ok(Value::Enum(number(choice), symbols[choice].clone()))
        }
        Shape::Array(of) => {
            let mut items = Vec::new();
            data.nested(|data| {
                data.each(|data| {
                    items.push(read(data, layout, *of)?);
                    Ok(())
                })
            })?;
            Ok(Value::Array(items))
        }
        Shape::Map(of) => {
            let mut entries = std::collections::HashMap::new();
            data.nested(|data| {
                data.each(|data| {
                    let key = data.text()?.to_owned();
                    entries.insert(key, read(data, layout, *of)?);
                    Ok(())
                })
            })?;
            Ok(Value::Map(entries))
        }
        Shape::Union(branches) => {
            let choice = data.choice(branches.len())?;
            let value = data.nested(|data| read(data, layout, branches[choice]))?;
            Ok(Value::Union(number(choice), Box::new(value)))
        }
        Shape::Record(Record { fields, .. }) => {
            let read = |data: &mut Data<'_>| {
                let mut values = Vec::with_capacity(fields.len());
                for field in fields {
                    values.push((field.name.clone(), read(data, layout, field.of_type)?));
                }
                Ok(Value::Record(values))
            };
            data.nested(read)
        }
    }
}

fn int(int: i32, meaning: Option<Meaning>) -> Value {
    match meaning {
        Some(Meaning::Date) => Value::Date(int),
        Some(Meaning::TimeMillis) => Value::TimeMillis(int),
        _ => Value::Int(int),
    }
}

fn long(long: i64, meaning: Option<Meaning>) -> Value {
    match meaning {
        Some(Meaning::TimeMicros) => Value::TimeMicros(long),
        Some(Meaning::TimestampMillis) => Value::TimestampMillis(long),
        Some(Meaning::TimestampMicros) => Value::TimestampMicros(long),
        Some(Meaning::TimestampNanos) => Value::TimestampNanos(long),
        Some(Meaning::LocalTimestampMillis) => Value::LocalTimestampMillis(long),
        Some(Meaning::LocalTimestampMicros) => Value::LocalTimestampMicros(long),
        Some(Meaning::LocalTimestampNanos) => Value::LocalTimestampNanos(long),
        _ => Value::Long(long),
    }
}

fn bytes(bytes: &[u8], meaning: Option<Meaning>) -> Result<Value, Fault> {
    match meaning {
        Some(Meaning::Decimal { .. }) => Ok(Value::Decimal(Decimal::from(bytes))),
        Some(Meaning::Uuid) => uuid(bytes),
        Some(Meaning::BigDecimal) => big_decimal(bytes),
        _ => Ok(Value::Bytes(bytes.to_vec())),
    }
}

fn fixed(bytes: &[u8], meaning: Option<Meaning>) -> Result<Value, Fault> {
    match meaning {
        Some(Meaning::Decimal { .. }) => Ok(Value::Decimal(Decimal::from(bytes))),
        Some(Meaning::Uuid) => uuid(bytes),
        Some(Meaning::Duration) => {
            let twelve: [u8; 12] = bytes
                .try_into()
                .map_err(|_| format!("a duration has 12 bytes, and this has {}", bytes.len()))?;
            Ok(Value::Duration(Duration::from(twelve)))
        }
        _ => Ok(Value::Fixed(bytes.len(), bytes.to_vec())),
    }
}

fn text(text: &str, meaning: Option<Meaning>) -> Result<Value, Fault> {
    match meaning {
        Some(Meaning::Uuid) => Uuid::parse_str(text)
            .map(Value::Uuid)
            .map_err(|fault| format!("it is no UUID: {fault}")),
        _ => Ok(Value::String(text.to_owned())),
    }
}

fn uuid(bytes: &[u8]) -> Result<Value, Fault> {
    Uuid::from_slice(bytes).map(Value::Uuid).map_err(|fault| format!("it is no UUID: {fault}"))
}

/// Its layout is apache-avro's own.
fn big_decimal(bytes: &[u8]) -> Result<Value, Fault> {
    let mut body = Vec::with_capacity(bytes.len() + 9);
    super::data::put_bytes(&mut body, bytes);
    let reader = GenericDatumReader::builder(&Schema::BigDecimal).build();
    let value = reader.and_then(|reader| reader.read_value(&mut body.as_slice()));
    value.map_err(|fault| format!("it is no decimal: {fault}"))
}

fn number(choice: usize) -> u32 {
    u32::try_from(choice).unwrap_or(u32::MAX)
}
