//! From a value to a document.

use std::fmt::{Display, Write as _};

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::{
    super::{guard::is_field, leaf},
    Fault,
    text::{check_name, escape, special},
};

/// The root's name where neither the payload nor its sender has one.
const ROOT: &str = "message";

/// Writes a value as a document.
pub(super) fn document<T: Serialize>(value: &T, root: Option<&str>) -> Result<String, Fault> {
    let mut out = String::new();
    value.serialize(Part { out: &mut out, name: root, place: Place::ROOT })?;
    Ok(out)
}

/// Where a value is, as far as it decides about what may be there.
#[derive(Clone, Copy)]
struct Place {
    root: bool,
    /// A struct's field, which is an empty list if it is not there.
    field: bool,
    in_list: bool,
    in_some: bool,
}

impl Place {
    const INSIDE: Self = Self { root: false, field: false, in_list: false, in_some: false };
    const FIELD: Self = Self { field: true, ..Self::INSIDE };
    const ROOT: Self = Self { root: true, ..Self::INSIDE };
}

/// A value and the name of its element: of its elements, for a list.
struct Part<'w> {
    out: &'w mut String,
    /// `None` is the root's, which then has the name of the payload's type.
    name: Option<&'w str>,
    place: Place,
}

impl<'w> Part<'w> {
    /// An element with a value in it that has no special characters.
    fn plain(self, value: impl Display) -> Result<(), Fault> {
        self.element(ROOT, |out| write!(out, "{value}").map_err(|_| Fault::new("it has no text")))
    }

    fn element(
        self,
        default: &str,
        content: impl FnOnce(&mut String) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if self.place.root {
            return Err(Fault::new(
                "the root of a document has to be a struct or a map; put the value into one",
            ));
        }
        let name = self.name.unwrap_or(default);
        open(self.out, name)?;
        content(self.out)?;
        close(self.out, name);
        Ok(())
    }

    /// An element with elements in it. The root may be one.
    fn begin(self, default: &'w str) -> Result<Elements<'w>, Fault> {
        let name = self.name.unwrap_or(default);
        open(self.out, name)?;
        Ok(Elements { out: self.out, name, key: None, variant: None })
    }

    fn begin_list(self) -> Result<List<'w>, Fault> {
        let Some(name) = self.name.filter(|_| !self.place.root) else {
            return Err(Fault::new(
                "the root of a document cannot be a list; put it into a struct",
            ));
        };
        if self.place.in_list {
            return Err(Fault::new(
                "a list directly in a list has no form in XML: make the inner one a struct's field",
            ));
        }
        Ok(List { out: self.out, name, place: self.place, empty: true, outer: None })
    }
}

macro_rules! plain {
    ($($method:ident($type:ty))*) => {$(
        fn $method(self, value: $type) -> Result<(), Fault> {
            self.plain(value)
        }
    )*};
}

impl<'w> Serializer for Part<'w> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = List<'w>;
    type SerializeTuple = List<'w>;
    type SerializeTupleStruct = List<'w>;
    type SerializeTupleVariant = List<'w>;
    type SerializeMap = Elements<'w>;
    type SerializeStruct = Elements<'w>;
    type SerializeStructVariant = Elements<'w>;

    plain! {
        serialize_bool(bool)
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64) serialize_i128(i128)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64) serialize_u128(u128)
    }

    fn serialize_f32(self, value: f32) -> Result<(), Fault> {
        match special(value.into()) {
            Some(text) => self.plain(text),
            // `Debug` is the shortest form that reads back, with an exponent where that is shorter.
            None => self.plain(format_args!("{value:?}")),
        }
    }

    fn serialize_f64(self, value: f64) -> Result<(), Fault> {
        match special(value) {
            Some(text) => self.plain(text),
            None => self.plain(format_args!("{value:?}")),
        }
    }

    fn serialize_char(self, value: char) -> Result<(), Fault> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Fault> {
        self.element(ROOT, |out| escape(out, value))
    }

    fn serialize_bytes(self, _value: &[u8]) -> Result<(), Fault> {
        Err(Fault::new(
            "XML has no form for a byte string: make it a list of numbers, or text in Base64",
        ))
    }

    fn serialize_none(self) -> Result<(), Fault> {
        if self.place.in_some {
            return Err(Fault::new("XML cannot tell a `None` inside a `Some` from `None`"));
        }
        let Some(name) = self.name.filter(|_| !self.place.root) else {
            return self.plain("");
        };
        check_name(name)?;
        self.out.extend(["<", name, "/>"]);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(mut self, value: &T) -> Result<(), Fault> {
        self.place.in_some = true;
        self.place.field = false;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Fault> {
        self.plain("")
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), Fault> {
        self.plain("")
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<(), Fault> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        let mut outer = self.begin(name)?;
        outer.element(variant, value, Place::INSIDE)?;
        outer.finish()
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<List<'w>, Fault> {
        self.begin_list()
    }

    fn serialize_tuple(self, _length: usize) -> Result<List<'w>, Fault> {
        self.begin_list()
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<List<'w>, Fault> {
        self.begin_list()
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<List<'w>, Fault> {
        let outer = self.begin(name)?;
        Ok(List {
            out: outer.out,
            name: variant,
            place: Place::INSIDE,
            empty: true,
            outer: Some(outer.name),
        })
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Elements<'w>, Fault> {
        self.begin(ROOT)
    }

    fn serialize_struct(self, name: &'static str, _length: usize) -> Result<Elements<'w>, Fault> {
        self.begin(name)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Elements<'w>, Fault> {
        let outer = self.begin(name)?;
        open(outer.out, variant)?;
        Ok(Elements { variant: Some(variant), ..outer })
    }
}

/// A list that is being written: its elements, one after the other.
struct List<'w> {
    out: &'w mut String,
    name: &'w str,
    place: Place,
    empty: bool,
    /// The element around the list, for a variant.
    outer: Option<&'w str>,
}

impl List<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        self.empty = false;
        // One `<name/>` alone would be the list that is `None`.
        let place = Place { in_list: true, in_some: self.place.in_some, ..Place::INSIDE };
        value.serialize(Part { out: self.out, name: Some(self.name), place })
    }

    fn finish(self) -> Result<(), Fault> {
        if self.empty && !self.place.field {
            return Err(Fault::new(
                "an empty list has no form in XML but as a struct's field that is not there: leave it out",
            ));
        }
        if let Some(outer) = self.outer {
            close(self.out, outer);
        }
        Ok(())
    }
}

/// An element that is being written, with elements in it.
struct Elements<'w> {
    out: &'w mut String,
    name: &'w str,
    /// The name of the map's next value.
    key: Option<String>,
    /// The element in this one that the others go into, for a variant.
    variant: Option<&'static str>,
}

impl Elements<'_> {
    fn element<T: Serialize + ?Sized>(
        &mut self,
        name: &str,
        value: &T,
        place: Place,
    ) -> Result<(), Fault> {
        value.serialize(Part { out: self.out, name: Some(name), place })
    }

    fn finish(self) -> Result<(), Fault> {
        if let Some(variant) = self.variant {
            close(self.out, variant);
        }
        close(self.out, self.name);
        Ok(())
    }
}

macro_rules! parts {
    ($($type:ident: $trait:ident::$method:ident, $add:ident($($key:ident)? $(; $place:expr)?);)*) => {$(
        impl $trait for $type<'_> {
            type Ok = ();
            type Error = Fault;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($key: &'static str,)?
                value: &T,
            ) -> Result<(), Fault> {
                self.$add($($key,)? value $(, $place)?)
            }

            fn end(self) -> Result<(), Fault> {
                self.finish()
            }
        }
    )*};
}

parts! {
    List: SerializeSeq::serialize_element, item();
    List: SerializeTuple::serialize_element, item();
    List: SerializeTupleStruct::serialize_field, item();
    List: SerializeTupleVariant::serialize_field, item();
    Elements: SerializeStruct::serialize_field, element(key; Place::FIELD);
    Elements: SerializeStructVariant::serialize_field, element(key; Place::FIELD);
}

impl SerializeMap for Elements<'_> {
    type Ok = ();
    type Error = Fault;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Fault> {
        self.key = Some(key_name(key)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        let key = self.key.take().unwrap_or_default();
        self.element(&key, value, Place::INSIDE)
    }

    fn serialize_entry<K: Serialize + ?Sized, T: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &T,
    ) -> Result<(), Fault> {
        let place = if is_field::<K>() { Place::FIELD } else { Place::INSIDE };
        self.element(&key_name(key)?, value, place)
    }

    fn end(self) -> Result<(), Fault> {
        self.finish()
    }
}

fn key_name<K: Serialize + ?Sized>(key: &K) -> Result<String, Fault> {
    leaf::text(key).ok_or_else(|| {
        Fault::new("a key in it is neither text nor a number, and cannot be the name of an element")
    })
}

fn open(out: &mut String, name: &str) -> Result<(), Fault> {
    check_name(name)?;
    out.extend(["<", name, ">"]);
    Ok(())
}

fn close(out: &mut String, name: &str) {
    out.extend(["</", name, ">"]);
}
