//! Header values: every type that AMQP 0-9-1 tables carry and RabbitMQ reads.

use std::collections::BTreeMap;

use bytes::Bytes;

/// A message's headers by name, in the order of their names.
pub type Headers = BTreeMap<String, HeaderValue>;

/// One header's value.
///
/// The variants are the field types of RabbitMQ's table grammar (AMQP 0-9-1 errata, "Field
/// types"), so that whatever another client wrote is read and passed on with its type intact.
/// There is no unsigned 64-bit integer: RabbitMQ has none.
///
/// ```
/// use acemq::HeaderValue;
///
/// assert_eq!(HeaderValue::from("acme").as_str(), Some("acme"));
/// assert_eq!(HeaderValue::from(42).as_i64(), Some(42));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "the protocol's own closed list of field types")]
pub enum HeaderValue {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// A signed 8-bit integer.
    I8(i8),
    /// An unsigned 8-bit integer.
    U8(u8),
    /// A signed 16-bit integer.
    I16(i16),
    /// An unsigned 16-bit integer.
    U16(u16),
    /// A signed 32-bit integer.
    I32(i32),
    /// An unsigned 32-bit integer.
    U32(u32),
    /// A signed 64-bit integer.
    I64(i64),
    /// A 32-bit floating-point number.
    F32(f32),
    /// A 64-bit floating-point number.
    F64(f64),
    /// A decimal number: `value` divided by ten to the `scale`.
    Decimal {
        /// How many digits of `value` stand behind the point.
        scale: u8,
        /// The digits.
        value: u32,
    },
    /// Text.
    Text(String),
    /// A long string that is not valid UTF-8: it travels on as it came.
    OpaqueText(Bytes),
    /// A byte array.
    Bytes(Bytes),
    /// A point in time, in seconds since the epoch.
    Timestamp(u64),
    /// A list of values.
    List(Vec<Self>),
    /// A nested table.
    Table(Headers),
}

impl HeaderValue {
    /// The text, if this is text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if this is an integer of any width.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::I8(n) => Some(n.into()),
            Self::U8(n) => Some(n.into()),
            Self::I16(n) => Some(n.into()),
            Self::U16(n) => Some(n.into()),
            Self::I32(n) => Some(n.into()),
            Self::U32(n) => Some(n.into()),
            Self::I64(n) => Some(n),
            _ => None,
        }
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident),* $(,)?) => {$(
        impl From<$from> for HeaderValue {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

from! {
    bool => Bool, i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64,
    f32 => F32, f64 => F64, &str => Text, String => Text, Bytes => Bytes,
    Vec<HeaderValue> => List, Headers => Table,
}

/// The length of a header table on the wire, in bytes (AMQP 0-9-1, 4.2.5.5).
pub(crate) fn encoded_len(headers: &Headers) -> usize {
    4 + headers.iter().map(|(name, value)| 1 + name.len() + value_len(value)).sum::<usize>()
}

fn value_len(value: &HeaderValue) -> usize {
    1 + match value {
        HeaderValue::Null => 0,
        HeaderValue::Bool(_) | HeaderValue::I8(_) | HeaderValue::U8(_) => 1,
        HeaderValue::I16(_) | HeaderValue::U16(_) => 2,
        HeaderValue::I32(_) | HeaderValue::U32(_) | HeaderValue::F32(_) => 4,
        HeaderValue::Decimal { .. } => 5,
        HeaderValue::I64(_) | HeaderValue::F64(_) | HeaderValue::Timestamp(_) => 8,
        HeaderValue::Text(text) => 4 + text.len(),
        HeaderValue::OpaqueText(bytes) | HeaderValue::Bytes(bytes) => 4 + bytes.len(),
        HeaderValue::List(values) => 4 + values.iter().map(value_len).sum::<usize>(),
        HeaderValue::Table(headers) => encoded_len(headers),
    }
}
