//! From a type of serde's to apache-avro's writer.
//!
//! That one says of a value that does not fit what the schema is, and not where the value was; and
//! it writes a number only as the type of that very width. So what it refuses is written once more,
//! and what comes after that in the same way: [`Placed`] goes with each value into the writer. It knows
//! its place in the payload and in the schema, notes what does not fit, and widens numbers as Avro's
//! promotions do, where nothing is lost.

mod parts;
mod place;

use std::{
    cell::OnceCell,
    fmt::{self, Display},
    sync::atomic::Ordering,
};

use apache_avro::writer::datum::GenericDatumWriter;
use serde::{Serialize, Serializer};

use self::{
    parts::Parts,
    place::{Inside, Place},
};
use super::{
    data::Fault,
    definition::Definition,
    layout::{ROOT, Record, Shape},
    misfit::{self, Path},
};
use crate::counted::counted;

/// Writes a payload.
pub(super) fn payload<T: Serialize + ?Sized>(
    writer: &GenericDatumWriter<'_>,
    body: &mut Vec<u8>,
    payload: &T,
    Definition { layout, widens, .. }: &Definition,
) -> Result<(), Fault> {
    let begin = body.len();
    if !widens.load(Ordering::Relaxed) {
        if writer.write_ser(body, &payload).is_ok() {
            return Ok(());
        }
        body.truncate(begin);
    }
    let noted = OnceCell::new();
    let place = Place { layout, id: Some(ROOT), path: Path::Root, noted: &noted };
    let written = writer.write_ser(body, &Placed { value: payload, place });
    match written {
        Ok(_) => {
            widens.store(true, Ordering::Relaxed);
            Ok(())
        }
        Err(cause) => Err(noted.into_inner().unwrap_or_else(|| misfit::refused(&cause))),
    }
}

/// A value on its way into the writer.
struct Placed<'a, T: ?Sized> {
    value: &'a T,
    place: Place<'a>,
}

impl<T: Serialize + ?Sized> Serialize for Placed<'_, T> {
    #[inline(always)]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Fitting { inner: serializer, place: self.place })
    }
}

/// A serializer at a place.
struct Fitting<'a, S> {
    inner: S,
    place: Place<'a>,
}

/// Methods for values that are written as they are.
macro_rules! leaves {
    ($($method:ident($type:ty) $given:literal)*) => {$(
        #[inline]
        fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
            self.inner.$method(value).map_err(|error| self.place.note(error, $given))
        }
    )*};
}

/// Methods for numbers that are also written as wider ones, the first that the schema takes.
macro_rules! numbers {
    ($($method:ident($type:ty): $own:ident $(or $wider:ident $wide:ident)*, $given:literal)*) => {$(
        #[inline]
        fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
            let Self { inner, place } = self;
            if !place.takes(|shape| matches!(shape, Shape::$own)) {
                $(if place.takes(|shape| matches!(shape, Shape::$wider)) {
                    return inner.$wide(value.into()).map_err(|error| place.note(error, $given));
                })*
            }
            inner.$method(value).map_err(|error| place.note(error, $given))
        }
    )*};
}

impl<'a, S: Serializer> Serializer for Fitting<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Parts<'a, S::SerializeSeq>;
    type SerializeTuple = Parts<'a, S::SerializeTuple>;
    type SerializeTupleStruct = Parts<'a, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Parts<'a, S::SerializeTupleVariant>;
    type SerializeMap = Parts<'a, S::SerializeMap>;
    type SerializeStruct = Parts<'a, S::SerializeStruct>;
    type SerializeStructVariant = Parts<'a, S::SerializeStructVariant>;

    leaves! {
        serialize_bool(bool) "a bool"
        serialize_i64(i64) "an i64"
        serialize_i128(i128) "an i128"
        serialize_u128(u128) "a u128"
        serialize_f64(f64) "an f64"
        serialize_char(char) "a char"
        serialize_str(&str) "text"
    }

    numbers! {
        serialize_i8(i8): Int or Long serialize_i64 or Double serialize_f64, "an i8"
        serialize_i16(i16): Int or Long serialize_i64 or Double serialize_f64, "an i16"
        serialize_i32(i32): Int or Long serialize_i64 or Double serialize_f64, "an i32"
        serialize_u8(u8): Int or Long serialize_i64 or Double serialize_f64, "a u8"
        serialize_u16(u16): Int or Long serialize_i64 or Double serialize_f64, "a u16"
        serialize_u32(u32): Long or Double serialize_f64, "a u32"
        serialize_f32(f32): Float or Double serialize_f64, "an f32"
    }

    fn serialize_u64(self, value: u64) -> Result<S::Ok, S::Error> {
        let Self { inner, place } = self;
        // The type that apache-avro derives for it has room for all of them.
        let has_its_own = place.takes(|shape| matches!(shape, Shape::Fixed { size: 8, .. }));
        match i64::try_from(value) {
            Ok(long) if !has_its_own && place.takes(|shape| matches!(shape, Shape::Long)) => {
                inner.serialize_i64(long)
            }
            _ => inner.serialize_u64(value),
        }
        .map_err(|error| match i64::try_from(value) {
            Ok(_) => place.note(error, "a u64"),
            Err(_) => place.note(error, "a u64 beyond the largest long"),
        })
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<S::Ok, S::Error> {
        let given = || counted(value.len(), "byte");
        self.inner.serialize_bytes(value).map_err(|error| self.place.note(error, given()))
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner
            .serialize_none()
            .map_err(|error| self.place.note(error, "`None` (a union of null and one other)"))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let Self { inner, place } = self;
        let id = place.optional();
        if place.id.is_some() && id.is_none() {
            place.note((), "an `Option` (a union of null and one other)");
        }
        inner.serialize_some(&Placed { value, place: place.at(place.path, id) })
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit().map_err(|error| self.place.note(error, "`()`"))
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<S::Ok, S::Error> {
        let given = format_args!("the empty struct `{name}`");
        self.inner.serialize_unit_struct(name).map_err(|error| self.place.note(error, given))
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        number: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner
            .serialize_unit_variant(name, number, variant)
            .map_err(|error| self.place.note(error, Variant { name, number, variant }))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let Self { inner, place } = self;
        let around_one = |record: &Record| record.fields.len() == 1 && record.is_called(name);
        match place.record(around_one) {
            Inside::Fields(record) => {
                let place = place.at(place.path, Some(record.fields[0].of_type));
                inner.serialize_newtype_struct(name, &Placed { value, place })
            }
            Inside::Each(_) | Inside::Unknown if place.id.is_none() => {
                inner.serialize_newtype_struct(name, &Placed { value, place })
            }
            // As it is read: what is in it.
            Inside::Each(_) | Inside::Unknown => value.serialize(Fitting { inner, place }),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        number: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let Self { inner, place } = self;
        let id = place.variant(number).map(|id| place.layout.within_wrapper(id));
        if place.id.is_some() && id.is_none() {
            place.note((), Variant { name, number, variant });
        }
        let placed = Placed { value, place: place.at(place.path, id) };
        inner.serialize_newtype_variant(name, number, variant, &placed)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        let Self { inner, place } = self;
        let items = match place.find(|shape| matches!(shape, Shape::Array(_))) {
            Some(Shape::Array(of)) => Inside::Each(*of),
            _ => Inside::Unknown,
        };
        Parts::new(inner.serialize_seq(length), place, items, List(place, "a list"))
    }

    fn serialize_tuple(self, length: usize) -> Result<Self::SerializeTuple, S::Error> {
        let Self { inner, place } = self;
        let items = match (length, place.id) {
            // What is in it, and nothing around it.
            (1, Some(id)) => Inside::Each(id),
            _ => place.record(|record| record.fields.len() == length),
        };
        let given = List(place, "a tuple (a record; an array is a `Vec`)");
        Parts::new(inner.serialize_tuple(length), place, items, given)
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        let Self { inner, place } = self;
        let items = place.record(|record| record.fields.len() == length && record.is_called(name));
        let given = format_args!("the tuple struct `{name}` of {length}");
        Parts::new(inner.serialize_tuple_struct(name, length), place, items, given)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        number: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        let Self { inner, place } = self;
        let items = place.variant_record(number);
        let begun = inner.serialize_tuple_variant(name, number, variant, length);
        Parts::new(begun, place, items, Variant { name, number, variant })
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        let Self { inner, place } = self;
        let entries = match place.find(|shape| matches!(shape, Shape::Map(_))) {
            Some(Shape::Map(of)) => Inside::Each(*of),
            // A struct with flattened fields. Of a union's records one is chosen by its length.
            _ => match place.id.map(|id| place.layout.shape(id)) {
                Some(Shape::Record(record)) => Inside::Fields(record),
                _ => Inside::Unknown,
            },
        };
        Parts::new(inner.serialize_map(length), place, entries, "a map or a flattened struct")
    }

    fn serialize_struct(
        self,
        name: &'static str,
        length: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        let Self { inner, place } = self;
        let is_union = matches!(place.id.map(|id| place.layout.shape(id)), Some(Shape::Union(_)));
        let fields = place.record(|record| !is_union || record.is_called(name));
        let given = format_args!("the struct `{name}`");
        Parts::new(inner.serialize_struct(name, length), place, fields, given)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        number: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        let Self { inner, place } = self;
        let fields = place.variant_record(number);
        let begun = inner.serialize_struct_variant(name, number, variant, length);
        Parts::new(begun, place, fields, Variant { name, number, variant })
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// A list or tuple, for people, who may have wanted bytes.
struct List<'a>(Place<'a>, &'static str);

impl Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(place, list) = self;
        if place.takes(|shape| matches!(shape, Shape::Bytes | Shape::Fixed { .. })) {
            f.write_str("a list (bytes are `#[serde(with = \"apache_avro::serde::bytes\")]`)")
        } else {
            f.write_str(list)
        }
    }
}

/// A variant of an enum, for people.
struct Variant {
    name: &'static str,
    number: u32,
    variant: &'static str,
}

impl Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, number, variant } = self;
        write!(f, "variant `{variant}` of `{name}`, at place {number} counted from 0,")
    }
}
