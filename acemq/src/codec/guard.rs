//! What a format cannot say, found while it is being written.
//!
//! A serializer of most formats writes some values as others: JSON makes `null` of NaN, TOML leaves
//! out what is `None`. [`Guarded`] stands between a payload and such a serializer and makes errors of
//! them, so that a message is never sent that will not be read as what it was.

use std::marker::PhantomData;

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// What a format has a form for. Constants, so that what needs no check costs nothing.
pub(super) trait Limits: Copy {
    /// How many lists, maps and structs may be in each other: no more than can be read back.
    const DEPTH: u8;
    /// Whether there are NaN and the infinities.
    const NON_FINITE: bool;
    /// Whether there are integers beyond 64 bits with a sign.
    const WIDE_INTEGERS: bool;
    /// Whether there is `None` elsewhere than as a field's value, where leaving the field out says
    /// the same.
    const NONE: bool;
}

/// A value that is checked while it is serialized.
pub(super) struct Guarded<'a, T: ?Sized, L> {
    value: &'a T,
    place: Place<L>,
}

/// Where in the payload a value is.
#[derive(Clone, Copy)]
struct Place<L> {
    /// How many levels may still begin.
    depth: u8,
    field: bool,
    /// Right inside of `Some`.
    some: bool,
    limits: PhantomData<L>,
}

impl<'a, T: ?Sized, L: Limits> Guarded<'a, T, L> {
    pub(super) const fn new(value: &'a T) -> Self {
        Self {
            value,
            place: Place { depth: L::DEPTH, field: false, some: false, limits: PhantomData },
        }
    }
}

impl<L: Limits> Place<L> {
    #[inline]
    fn inside<E: Error>(self, levels: u8, field: bool) -> Result<Self, E> {
        match self.depth.checked_sub(levels) {
            Some(depth) => Ok(Self { depth, field, some: false, ..self }),
            None => Err(too_deep(L::DEPTH)),
        }
    }

    #[inline]
    fn number<E: Error>(self, finite: bool) -> Result<(), E> {
        if finite || L::NON_FINITE {
            Ok(())
        } else {
            Err(no_form("a number in it is NaN or infinite, for which the format has no form"))
        }
    }

    #[inline]
    fn integer<E: Error>(self, value: impl TryInto<i64>) -> Result<(), E> {
        if L::WIDE_INTEGERS || value.try_into().is_ok() {
            Ok(())
        } else {
            Err(no_form(
                "an integer in it has more than 64 bits with a sign, for which the format has no form: \
                 make it text",
            ))
        }
    }

    #[inline]
    fn nothing<E: Error>(self) -> Result<(), E> {
        if self.field || L::NONE {
            Ok(())
        } else {
            Err(no_form(
                "there is a `None` or unit in it that is no field of a struct, and the format has no \
                 form for nothing: leave it out",
            ))
        }
    }
}

#[cold]
fn too_deep<E: Error>(limit: u8) -> E {
    E::custom(format_args!(
        "it is nested more than {limit} levels deep, which could not be read back"
    ))
}

#[cold]
fn no_form<E: Error>(text: &str) -> E {
    E::custom(text)
}

impl<T: Serialize + ?Sized, L: Limits> Serialize for Guarded<'_, T, L> {
    #[inline(always)]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Guard { inner: serializer, place: self.place })
    }
}

/// A serializer, or a part of one, and the place that it writes.
struct Guard<S, L> {
    inner: S,
    place: Place<L>,
}

/// Whether an entry of a map with keys of this type is a field of a struct. A struct with flattened
/// fields serializes as a map, and its fields' names are `str` itself, which has no size; the keys
/// of other maps come by reference.
pub(super) const fn is_field<K: ?Sized>() -> bool {
    size_of::<&K>() > size_of::<usize>()
}

/// Methods that hand a plain value on.
macro_rules! forward {
    ($($method:ident($type:ty))*) => {$(
        #[inline]
        fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
            self.inner.$method(value)
        }
    )*};
}

/// Methods that hand a plain value on if the format can say it.
macro_rules! check {
    ($($method:ident($value:ident: $type:ty): $check:ident($what:expr))*) => {$(
        #[inline]
        fn $method(self, $value: $type) -> Result<S::Ok, S::Error> {
            self.place.$check($what)?;
            self.inner.$method($value)
        }
    )*};
}

impl<S: Serializer, L: Limits> Serializer for Guard<S, L> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Guard<S::SerializeSeq, L>;
    type SerializeTuple = Guard<S::SerializeTuple, L>;
    type SerializeTupleStruct = Guard<S::SerializeTupleStruct, L>;
    type SerializeTupleVariant = Guard<S::SerializeTupleVariant, L>;
    type SerializeMap = Guard<S::SerializeMap, L>;
    type SerializeStruct = Guard<S::SerializeStruct, L>;
    type SerializeStructVariant = Guard<S::SerializeStructVariant, L>;

    forward! {
        serialize_bool(bool)
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32)
        serialize_char(char) serialize_str(&str) serialize_bytes(&[u8])
    }

    check! {
        serialize_u64(value: u64): integer(value)
        serialize_i128(value: i128): integer(value)
        serialize_u128(value: u128): integer(value)
        serialize_f32(value: f32): number(value.is_finite())
        serialize_f64(value: f64): number(value.is_finite())
    }

    #[inline]
    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        if self.place.some {
            return Err(no_form(
                "there is a `Some(None)` in it, which would be read back as `None`",
            ));
        }
        self.place.nothing()?;
        self.inner.serialize_none()
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let place = Place { some: true, ..self.place };
        self.inner.serialize_some(&Guarded { value, place })
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.place.nothing()?;
        self.inner.serialize_unit()
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<S::Ok, S::Error> {
        self.place.nothing()?;
        self.inner.serialize_unit_struct(name)
    }

    #[inline]
    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_newtype_struct(name, &Guarded { value, place: self.place })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let place = self.place.inside(1, false)?;
        self.inner.serialize_newtype_variant(name, index, variant, &Guarded { value, place })
    }

    #[inline]
    fn serialize_seq(self, length: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        let place = self.place.inside(1, false)?;
        Ok(Guard { inner: self.inner.serialize_seq(length)?, place })
    }

    fn serialize_tuple(self, length: usize) -> Result<Self::SerializeTuple, S::Error> {
        let place = self.place.inside(1, false)?;
        Ok(Guard { inner: self.inner.serialize_tuple(length)?, place })
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        let place = self.place.inside(1, false)?;
        Ok(Guard { inner: self.inner.serialize_tuple_struct(name, length)?, place })
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        let place = self.place.inside(2, false)?;
        Ok(Guard {
            inner: self.inner.serialize_tuple_variant(name, index, variant, length)?,
            place,
        })
    }

    #[inline]
    fn serialize_map(self, length: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        let place = self.place.inside(1, false)?;
        Ok(Guard { inner: self.inner.serialize_map(length)?, place })
    }

    #[inline]
    fn serialize_struct(
        self,
        name: &'static str,
        length: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        let place = self.place.inside(1, true)?;
        Ok(Guard { inner: self.inner.serialize_struct(name, length)?, place })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        let place = self.place.inside(2, true)?;
        Ok(Guard {
            inner: self.inner.serialize_struct_variant(name, index, variant, length)?,
            place,
        })
    }

    fn collect_str<T: std::fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// The parts of a list or struct, each of them guarded.
macro_rules! parts {
    ($($trait:ident::$method:ident $(($key:ident))?)*) => {$(
        impl<S: $trait, L: Limits> $trait for Guard<S, L> {
            type Ok = S::Ok;
            type Error = S::Error;

            #[inline]
            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($key: &'static str,)?
                value: &T,
            ) -> Result<(), S::Error> {
                self.inner.$method($($key,)? &Guarded { value, place: self.place })
            }

            #[inline]
            fn end(self) -> Result<S::Ok, S::Error> {
                self.inner.end()
            }
        }
    )*};
}

parts! {
    SerializeSeq::serialize_element
    SerializeTuple::serialize_element
    SerializeTupleStruct::serialize_field
    SerializeTupleVariant::serialize_field
    SerializeStruct::serialize_field(key)
    SerializeStructVariant::serialize_field(key)
}

impl<S: SerializeMap, L: Limits> SerializeMap for Guard<S, L> {
    type Ok = S::Ok;
    type Error = S::Error;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.inner.serialize_key(key)
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.inner.serialize_value(&Guarded { value, place: self.place })
    }

    #[inline]
    fn serialize_entry<K: Serialize + ?Sized, T: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &T,
    ) -> Result<(), S::Error> {
        let place = Place { field: is_field::<K>(), ..self.place };
        self.inner.serialize_entry(key, &Guarded { value, place })
    }

    #[inline]
    fn end(self) -> Result<S::Ok, S::Error> {
        self.inner.end()
    }
}
