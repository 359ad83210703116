//! The parts of a value, each at its place.

use std::fmt::Display;

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};

use super::{
    super::{
        layout::TypeId,
        misfit::{self, Path},
    },
    Placed,
    place::{Inside, Place, TOLD_APART},
};
use crate::codec::{guard::is_field, leaf};

/// The parts of a list, map or struct.
pub(super) struct Parts<'a, S> {
    inner: S,
    place: Place<'a>,
    inside: Inside<'a>,
    /// How many parts there were, or behind which field of the record the last one was.
    next: usize,
    /// Which fields of the record there were, a bit each.
    written: u128,
    /// The field of the key before this value.
    key: Option<usize>,
}

impl<'a, S> Parts<'a, S> {
    /// The parts of a value that the writer has begun, or a note of why it has not.
    pub(super) fn new<E>(
        begun: Result<S, E>,
        place: Place<'a>,
        inside: Inside<'a>,
        given: impl Display,
    ) -> Result<Self, E> {
        let inner = begun.map_err(|error| place.note(error, given))?;
        Ok(Self { inner, place, inside, next: 0, written: 0, key: None })
    }

    /// The type of the next item.
    fn item(&mut self) -> Option<TypeId> {
        let at = self.next;
        self.next += 1;
        match self.inside {
            Inside::Each(id) => Some(id),
            Inside::Fields(record) => record.fields.get(at).map(|field| field.of_type),
            Inside::Unknown => None,
        }
    }

    /// Which field of the record has a name; a note where none has, with the name if it is the
    /// type's and not the payload's.
    #[inline]
    fn field(&mut self, name: &str, is_the_types: bool) -> Option<usize> {
        let Inside::Fields(record) = self.inside else { return None };
        // Most types have their fields in the schema's order.
        let at = match record.fields.get(self.next) {
            Some(field) if field.name == name => Some(self.next),
            _ => record.field(name).map(|(at, _)| at),
        };
        match at {
            Some(at) => {
                self.next = at + 1;
                if at < TOLD_APART {
                    self.written |= 1 << at;
                }
            }
            None => {
                let name = is_the_types.then_some(name);
                let note = || misfit::not_in_schema(self.place.path, record, name);
                self.place.noted.get_or_init(note);
            }
        }
        at
    }

    fn type_of(&self, field: Option<usize>) -> Option<TypeId> {
        match (self.inside, field) {
            (Inside::Fields(record), Some(at)) => Some(record.fields[at].of_type),
            _ => None,
        }
    }
}

macro_rules! items {
    ($($trait:ident::$method:ident)*) => {$(
        impl<S: $trait> $trait for Parts<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
                let (at, id) = (self.next, self.item());
                let place = self.place.at(Path::Item(&self.place.path, at), id);
                self.inner.$method(&Placed { value, place })
            }

            #[inline]
            fn end(self) -> Result<S::Ok, S::Error> {
                self.inner.end()
            }
        }
    )*};
}

items! {
    SerializeSeq::serialize_element
    SerializeTuple::serialize_element
    SerializeTupleStruct::serialize_field
    SerializeTupleVariant::serialize_field
}

macro_rules! fields {
    ($($trait:ident)*) => {$(
        impl<S: $trait> $trait for Parts<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            #[inline]
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), S::Error> {
                let field = self.field(name, true);
                let id = self.type_of(field);
                let place = self.place.at(Path::Field(&self.place.path, name), id);
                self.inner.serialize_field(name, &Placed { value, place })
            }

            fn skip_field(&mut self, name: &'static str) -> Result<(), S::Error> {
                let written = self.written;
                self.field(name, true);
                let skipped = self.inner.skip_field(name);
                skipped.map_err(|error| self.place.note_missing(error, self.inside, written))
            }

            #[inline]
            fn end(self) -> Result<S::Ok, S::Error> {
                let Self { inner, place, inside, written, .. } = self;
                inner.end().map_err(|error| place.note_missing(error, inside, written))
            }
        }
    )*};
}

fields! { SerializeStruct SerializeStructVariant }

impl<S: SerializeMap> SerializeMap for Parts<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.key = None;
        if matches!(self.inside, Inside::Fields(_))
            && let Some(name) = leaf::text(key)
        {
            self.key = self.field(&name, is_field::<T>());
        }
        self.inner.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        let (path, id) = match (self.inside, self.key) {
            (Inside::Fields(record), Some(at)) => {
                let field = &record.fields[at];
                (Path::Field(&self.place.path, &field.name), Some(field.of_type))
            }
            (Inside::Each(id), _) => (Path::Entry(&self.place.path), Some(id)),
            _ => (Path::Entry(&self.place.path), None),
        };
        self.inner.serialize_value(&Placed { value, place: self.place.at(path, id) })
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        let Self { inner, place, inside, written, .. } = self;
        inner.end().map_err(|error| place.note_missing(error, inside, written))
    }
}
