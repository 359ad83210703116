//! A value that is bytes.

use serde::{
    Serialize,
    de::{
        DeserializeOwned, Deserializer, Visitor,
        value::{Error, SeqDeserializer},
    },
    ser::{Error as _, Impossible, SerializeSeq, SerializeTuple, Serializer},
};

/// The bytes of a value, if it is a byte string or a list of bytes.
pub(super) fn bytes<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    value.serialize(Sink { bytes: &mut bytes, in_list: false })?;
    Ok(bytes)
}

/// Takes bytes, and refuses what is none.
struct Sink<'a> {
    bytes: &'a mut Vec<u8>,
    in_list: bool,
}

fn no_bytes<T>() -> Result<T, Error> {
    Err(Error::custom("it is neither a byte string nor a list of bytes"))
}

/// Methods for values that are no bytes.
macro_rules! refuse {
    ($($method:ident($($type:ty),*) $(-> $part:ident)?;)*) => {$(
        fn $method(self $(, _: $type)*) -> Result<refuse!(@ $($part)?), Error> {
            no_bytes()
        }
    )*};
    (@) => { () };
    (@ $part:ident) => { Self::$part };
}

impl Serializer for Sink<'_> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Impossible<(), Error>;
    type SerializeTupleVariant = Impossible<(), Error>;
    type SerializeMap = Impossible<(), Error>;
    type SerializeStruct = Impossible<(), Error>;
    type SerializeStructVariant = Impossible<(), Error>;

    refuse! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
        serialize_str(&str);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant;
        serialize_map(Option<usize>) -> SerializeMap;
        serialize_struct(&'static str, usize) -> SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant;
    }

    fn serialize_u8(self, value: u8) -> Result<(), Error> {
        if !self.in_list {
            return no_bytes();
        }
        self.bytes.push(value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Error> {
        if self.in_list {
            return no_bytes();
        }
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<(), Error> {
        no_bytes()
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Self, Error> {
        if self.in_list { no_bytes() } else { Ok(self) }
    }

    fn serialize_tuple(self, _length: usize) -> Result<Self, Error> {
        self.serialize_seq(None)
    }
}

macro_rules! collect {
    ($($trait:ident)*) => {$(
        impl $trait for Sink<'_> {
            type Ok = ();
            type Error = Error;

            fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                value.serialize(Sink { bytes: self.bytes, in_list: true })
            }

            fn end(self) -> Result<(), Error> {
                Ok(())
            }
        }
    )*};
}

collect! { SerializeSeq SerializeTuple }

/// Reads a value that is a byte string or a list of bytes.
pub(super) fn value<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    T::deserialize(Source(bytes))
}

/// Hands out bytes, as a byte string unless a list is asked for.
struct Source<'a>(&'a [u8]);

impl<'de> Deserializer<'de> for Source<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bytes(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new(self.0.iter().copied()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct tuple_struct map struct enum identifier ignored_any
    }
}
