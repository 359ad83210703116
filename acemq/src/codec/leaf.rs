//! A value that is a piece of text.

use std::{
    fmt::{self, Write as _},
    marker::PhantomData,
    str::FromStr,
};

use serde::{
    Serialize,
    de::{DeserializeOwned, Deserializer, Error, IntoDeserializer as _, Unexpected, Visitor},
};

/// Makes text of a value, if it is text, a number, a truth value or an enum's variant with nothing
/// in it.
pub(super) fn text<T: Serialize + ?Sized>(value: &T) -> Option<String> {
    /// serde lets a formatter serialize such values, and no others.
    struct Shown<'a, T: ?Sized>(&'a T);

    impl<T: Serialize + ?Sized> fmt::Display for Shown<'_, T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.serialize(f)
        }
    }

    let mut text = String::new();
    write!(text, "{}", Shown(value)).ok()?;
    Some(text)
}

/// Reads a value that is a piece of text.
pub(super) fn value<T: DeserializeOwned>(text: &str) -> Result<T, serde::de::value::Error> {
    T::deserialize(Leaf::new(text))
}

/// Reads a value out of text: text as it is, numbers and truth values by what they look like, and an
/// enum by a variant's name.
pub(super) struct Leaf<'a, E> {
    text: &'a str,
    error: PhantomData<E>,
}

impl<'a, E: Error> Leaf<'a, E> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, error: PhantomData }
    }

    fn parse<N: FromStr>(&self, expected: &'static str) -> Result<N, E> {
        let text = self.text.trim();
        text.parse().map_err(|_| E::invalid_value(Unexpected::Other("text"), &expected))
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $expected:literal)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
            visitor.$visit(self.parse($expected)?)
        }
    )*};
}

impl<'de, E: Error> Deserializer<'de> for Leaf<'_, E> {
    type Error = E;

    numbers! {
        deserialize_i8 visit_i8 "an integer of 8 bits"
        deserialize_i16 visit_i16 "an integer of 16 bits"
        deserialize_i32 visit_i32 "an integer of 32 bits"
        deserialize_i64 visit_i64 "an integer of 64 bits"
        deserialize_i128 visit_i128 "an integer of 128 bits"
        deserialize_u8 visit_u8 "an unsigned integer of 8 bits"
        deserialize_u16 visit_u16 "an unsigned integer of 16 bits"
        deserialize_u32 visit_u32 "an unsigned integer of 32 bits"
        deserialize_u64 visit_u64 "an unsigned integer of 64 bits"
        deserialize_u128 visit_u128 "an unsigned integer of 128 bits"
        deserialize_f32 visit_f32 "a number"
        deserialize_f64 visit_f64 "a number"
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_str(self.text)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        match self.text.trim() {
            "true" | "1" => visitor.visit_bool(true),
            "false" | "0" => visitor.visit_bool(false),
            _ => Err(E::invalid_value(Unexpected::Other("text"), &"true or false")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        if self.text.trim().is_empty() {
            visitor.visit_unit()
        } else {
            Err(E::invalid_value(Unexpected::Other("text"), &"nothing"))
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, E> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, E> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, E> {
        visitor.visit_enum(self.text.into_deserializer())
    }

    serde::forward_to_deserialize_any! {
        char str string bytes byte_buf seq tuple tuple_struct map struct identifier ignored_any
    }
}
