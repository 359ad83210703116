//! Where a payload and its schema part ways, in a few words.
//!
//! What apache-avro says of it is the whole schema, and sometimes the value.

use std::fmt::{self, Display};

use apache_avro::{
    error::Details,
    types::{Value, ValueKind},
};

use super::{
    data::Fault,
    layout::{Field, Layout, Record, Shape, TypeId},
};
use crate::counted::counted;

/// The most characters of a path, of a list of names and of what somebody else says.
const MOST_OF_A_PATH: usize = 120;
const MOST_OF_A_LIST: usize = 160;
const MOST_OF_A_TEXT: usize = 300;

/// The way to a part of a payload.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'a> {
    /// All of it.
    Root,
    Field(&'a Self, &'a str),
    Item(&'a Self, usize),
    /// One of a map, whose keys are the payload's.
    Entry(&'a Self),
}

impl Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(of, name) => write!(f, "{of}.{name}"),
            Self::Item(of, number) => write!(f, "{of}[{number}]"),
            Self::Entry(of) => write!(f, "{of}[…]"),
        }
    }
}

/// A part of a payload, for people. Of a long way its end.
fn part(path: Path<'_>) -> String {
    if matches!(path, Path::Root) {
        return "the payload".to_owned();
    }
    let path = path.to_string();
    match path.char_indices().nth_back(MOST_OF_A_PATH) {
        Some((at, _)) => format!("`…{}`", &path[at..]),
        None => format!("`{path}`"),
    }
}

/// A value that is not what the schema wants at its place.
pub(super) fn unlike(
    path: Path<'_>,
    layout: &Layout,
    wanted: Option<TypeId>,
    given: impl Display,
) -> Fault {
    let part = part(path);
    match wanted {
        Some(id) => format!("{part} is {} in the schema, and {given} here", wants(layout, id)),
        None => format!("{part} is {given}, which the schema has no place for"),
    }
}

/// A field that the record does not have; without a name where that is the payload's.
pub(super) fn not_in_schema(path: Path<'_>, record: &Record, name: Option<&str>) -> Fault {
    let field = match name {
        Some(name) => part(Path::Field(&path, name)),
        None => format!("a key of {}", part(path)),
    };
    let Record { names, fields, .. } = record;
    format!(
        "{field} is no field of record {} in the schema, which has {}; rename one of the two, or \
         leave it out with `#[serde(skip)]`",
        names.name,
        listed(fields.iter().map(|field| &*field.name))
    )
}

/// A field of a record that nothing was given for.
pub(super) fn not_in_payload(
    path: Path<'_>,
    layout: &Layout,
    record: &Record,
    field: &Field,
) -> Fault {
    format!(
        "{} is {} of record {} in the schema, without a default, and is not here; give the type a \
         field of that name, or the schema a default",
        part(Path::Field(&path, &field.name)),
        wants(layout, field.of_type),
        record.names.name
    )
}

/// What does not fit in a value of any shape, where that can be told.
pub(super) fn within(value: &Value, layout: &Layout, id: TypeId, path: Path<'_>) -> Option<Fault> {
    let not_it = || {
        let kind = format!("a `Value::{:?}`", ValueKind::from(value));
        Some(unlike(path, layout, Some(id), kind))
    };
    match (layout.shape(id), value) {
        (Shape::Union(branches), Value::Union(place, value)) => {
            let branch = usize::try_from(*place).ok().and_then(|place| branches.get(place));
            branch.map_or_else(not_it, |branch| within(value, layout, *branch, path))
        }
        (Shape::Union(branches), _) => {
            let fits = |branch: &TypeId| within(value, layout, *branch, path).is_none();
            if branches.iter().any(fits) { None } else { not_it() }
        }
        (Shape::Array(of), Value::Array(items)) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| within(item, layout, *of, Path::Item(&path, at))),
        (Shape::Map(of), Value::Map(entries)) => {
            entries.values().find_map(|value| within(value, layout, *of, Path::Entry(&path)))
        }
        (Shape::Record(record), Value::Record(values)) => {
            let values: Vec<_> = values.iter().map(|(name, value)| (&**name, value)).collect();
            within_record(&values, layout, record, path)
        }
        (Shape::Record(record), Value::Map(values)) => {
            let values: Vec<_> = values.iter().map(|(name, value)| (&**name, value)).collect();
            within_record(&values, layout, record, path)
        }
        (shape, value) if is_leaf_of(shape, value) => None,
        _ => not_it(),
    }
}

fn within_record(
    values: &[(&str, &Value)],
    layout: &Layout,
    record: &Record,
    path: Path<'_>,
) -> Option<Fault> {
    let of_value = |&(name, value): &(&str, &Value)| match record.field(name) {
        Some((_, field)) => within(value, layout, field.of_type, Path::Field(&path, name)),
        None => Some(not_in_schema(path, record, Some(name))),
    };
    values.iter().find_map(of_value).or_else(|| {
        let is_there = |field: &Field| values.iter().any(|(name, _)| *name == field.name);
        let may_be_null = |field: &Field| match layout.shape(field.of_type) {
            Shape::Union(branches) => {
                branches.iter().any(|branch| matches!(layout.shape(*branch), Shape::Null))
            }
            shape => matches!(shape, Shape::Null),
        };
        let missing = record.fields.iter().find(|field| !is_there(field) && !may_be_null(field));
        missing.map(|field| not_in_payload(path, layout, record, field))
    })
}

fn is_leaf_of(shape: &Shape, value: &Value) -> bool {
    match (shape, value) {
        (Shape::Null, Value::Null)
        | (Shape::Boolean, Value::Boolean(_))
        | (Shape::Int, Value::Int(_) | Value::Date(_) | Value::TimeMillis(_))
        | (
            Shape::Long,
            Value::Int(_)
            | Value::Long(_)
            | Value::TimeMicros(_)
            | Value::TimestampMillis(_)
            | Value::TimestampMicros(_)
            | Value::TimestampNanos(_)
            | Value::LocalTimestampMillis(_)
            | Value::LocalTimestampMicros(_)
            | Value::LocalTimestampNanos(_),
        )
        | (Shape::Float, Value::Float(_))
        | (Shape::Double, Value::Float(_) | Value::Double(_))
        | (
            Shape::Bytes,
            Value::Bytes(_) | Value::Decimal(_) | Value::BigDecimal(_) | Value::Uuid(_),
        )
        | (Shape::String, Value::String(_) | Value::Uuid(_))
        | (Shape::Fixed { .. }, Value::Decimal(_) | Value::Duration(_) | Value::Uuid(_)) => true,
        (Shape::Fixed { size, .. }, Value::Fixed(_, bytes) | Value::Bytes(bytes)) => {
            bytes.len() == *size
        }
        (Shape::Enum { symbols, .. }, Value::String(symbol)) => symbols.contains(symbol),
        (Shape::Enum { symbols, .. }, Value::Enum(place, symbol)) => {
            usize::try_from(*place).is_ok_and(|place| symbols.get(place) == Some(symbol))
        }
        _ => false,
    }
}

/// What is to be said of an error that nothing is known about but itself.
pub(super) fn refused(cause: &apache_avro::Error) -> Fault {
    match cause.details() {
        Details::SerializeValue(text) => shortened(text),
        Details::SerializeRecordFieldWithSchema { field_name, error, .. } => {
            shortened(&format!("field `{field_name}`: {error}"))
        }
        Details::FieldNameDuplicate(name) => shortened(&format!("field `{name}` is there twice")),
        // The others may show the schema and the value.
        _ => "it does not fit the schema".to_owned(),
    }
}

/// A text of somebody else's, which may be of any length.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_OF_A_TEXT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// What the schema wants.
fn wants(layout: &Layout, id: TypeId) -> String {
    let name = layout.name(id);
    match layout.shape(id) {
        Shape::Null | Shape::Bytes => name.to_owned(),
        Shape::Int | Shape::Array(_) => format!("an {name}"),
        Shape::Fixed { size, .. } => format!("fixed {name} of {}", counted(size, "byte")),
        Shape::Enum { symbols, .. } => {
            format!("enum {name} of {}", listed(symbols.iter().map(String::as_str)))
        }
        Shape::Union(branches) => {
            format!("a union of {}", listed(branches.iter().map(|branch| layout.name(*branch))))
        }
        Shape::Record(_) => format!("record {name}"),
        _ => format!("a {name}"),
    }
}

/// Names, as many of them as have room.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut list = String::new();
    for name in names {
        if !list.is_empty() {
            list.push_str(", ");
        }
        if list.len() + name.len() > MOST_OF_A_LIST {
            list.push('…');
            break;
        }
        list.push_str(name);
    }
    if list.is_empty() { "none".to_owned() } else { list }
}
