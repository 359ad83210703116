//! From bytes to a type of serde's.
//!
//! apache-avro's own reader believes every length, so each body would have to be walked through
//! before. This one reads a body once, and takes from it what it holds.

use std::fmt;

use serde::{
    Deserializer,
    de::{
        self, DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess,
        SeqAccess, VariantAccess, Visitor, value::StrDeserializer,
    },
    forward_to_deserialize_any,
};

use super::{
    data::{Data, Fault},
    layout::{Field, Layout, ROOT, Record, Shape, TypeId},
};
use crate::codec::unread::without_values;

/// Reads a body, all of it.
pub(super) fn read<T: DeserializeOwned>(body: &[u8], layout: &Layout) -> Result<T, Fault> {
    let mut data = Data::new(body);
    let typed = Typed { data: &mut data, layout, id: ROOT };
    let value = T::deserialize(typed).map_err(|Failure(fault)| fault)?;
    data.end()?;
    Ok(value)
}

/// What is wrong with a body, or with a type for it.
#[derive(Debug)]
struct Failure(Fault);

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

impl de::Error for Failure {
    fn custom<T: fmt::Display>(said: T) -> Self {
        Self(without_values(&said.to_string()))
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A value that is read next, of the type `id`.
struct Typed<'a, 'de> {
    data: &'a mut Data<'de>,
    layout: &'a Layout,
    id: TypeId,
}

impl<'a, 'de> Typed<'a, 'de> {
    fn shape(&self) -> &'a Shape {
        self.layout.shape(self.id)
    }

    /// Reads what is chosen, where this is a union.
    fn chosen<T>(
        self,
        read: impl FnOnce(Typed<'_, 'de>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Self { data, layout, .. } = self;
        let Shape::Union(branches) = layout.shape(self.id) else {
            return read(Typed { data, layout, id: self.id });
        };
        let id = branches[data.choice(branches.len())?];
        data.nested(|data| read(Typed { data, layout, id }))
    }

    fn fields<V: Visitor<'de>>(self, fields: &[Field], visitor: V) -> Result<V::Value, Failure> {
        let layout = self.layout;
        self.data.nested(|data| {
            let mut fields = Fields { data, layout, rest: fields.iter() };
            let value = visitor.visit_map(&mut fields)?;
            let Fields { data, rest, .. } = fields;
            for field in rest {
                data.skip(layout, field.of_type)?;
            }
            Ok(value)
        })
    }

    /// The fields without their names: a tuple.
    fn places<V: Visitor<'de>>(self, fields: &[Field], visitor: V) -> Result<V::Value, Failure> {
        let layout = self.layout;
        self.data.nested(|data| {
            let mut places = Fields { data, layout, rest: fields.iter() };
            let value = visitor.visit_seq(Places(&mut places))?;
            all_read(places.rest.len())?;
            Ok(value)
        })
    }

    fn items<V: Visitor<'de>>(self, of_type: TypeId, visitor: V) -> Result<V::Value, Failure> {
        let layout = self.layout;
        self.data.nested(|data| {
            let mut items = Items { data, layout, of_type, block: 0, ended: false };
            let value = visitor.visit_seq(&mut items)?;
            all_read(usize::from(items.next()?))?;
            Ok(value)
        })
    }

    fn entries<V: Visitor<'de>>(self, of_type: TypeId, visitor: V) -> Result<V::Value, Failure> {
        let layout = self.layout;
        self.data.nested(|data| {
            let mut entries = Items { data, layout, of_type, block: 0, ended: false };
            let value = visitor.visit_map(&mut entries)?;
            all_read(usize::from(entries.next()?))?;
            Ok(value)
        })
    }

    /// The bytes of a number that Avro has no type for, as apache-avro writes it.
    fn wide<const SIZE: usize>(&mut self, name: &str) -> Result<Option<[u8; SIZE]>, Failure> {
        match self.shape() {
            Shape::Fixed { names, size } if *size == SIZE && names.name == name => {
                Ok(self.data.take(SIZE)?.try_into().ok())
            }
            _ => Ok(None),
        }
    }
}

/// What a type leaves over is not what was sent.
fn all_read(left: usize) -> Result<(), Failure> {
    match left {
        0 => Ok(()),
        _ => Err(Failure("it has more items than the type".to_owned())),
    }
}

impl<'de> Deserializer<'de> for Typed<'_, 'de> {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let Self { data, .. } = self;
        match self.layout.shape(self.id) {
            Shape::Null => visitor.visit_unit(),
            Shape::Boolean => visitor.visit_bool(data.boolean()? == 1),
            Shape::Int => visitor.visit_i32(data.int()?),
            Shape::Long => visitor.visit_i64(data.long()?),
            Shape::Float => visitor.visit_f32(data.float()?),
            Shape::Double => visitor.visit_f64(data.double()?),
            Shape::Bytes => visitor.visit_borrowed_bytes(data.bytes()?),
            Shape::Fixed { size, .. } => visitor.visit_borrowed_bytes(data.take(*size)?),
            Shape::String => visitor.visit_borrowed_str(data.text()?),
            Shape::Enum { symbols, .. } => visitor.visit_str(&symbols[data.choice(symbols.len())?]),
            Shape::Array(of_type) => Typed { data, ..self }.items(*of_type, visitor),
            Shape::Map(of_type) => Typed { data, ..self }.entries(*of_type, visitor),
            Shape::Union(_) => Typed { data, ..self }.chosen(|it| it.deserialize_any(visitor)),
            Shape::Record(Record { fields, is_tuple: true, .. }) => {
                Typed { data, ..self }.places(fields, visitor)
            }
            Shape::Record(Record { fields, .. }) => Typed { data, ..self }.fields(fields, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.chosen(|it| match it.shape() {
            Shape::Null => visitor.visit_none(),
            _ => visitor.visit_some(it),
        })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.chosen(|it| match it.shape() {
            Shape::Record(record) if record.fields.is_empty() => visitor.visit_unit(),
            _ => it.deserialize_any(visitor),
        })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        // apache-avro writes it as a record, whose name tells it from what is in it.
        self.chosen(|it| match it.shape() {
            Shape::Record(record) if record.fields.len() == 1 && record.is_called(name) => {
                let id = record.fields[0].of_type;
                let Typed { data, layout, .. } = it;
                data.nested(|data| visitor.visit_newtype_struct(Typed { data, layout, id }))
            }
            _ => visitor.visit_newtype_struct(it),
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if length == 1 && !matches!(self.shape(), Shape::Array(_)) {
            // apache-avro writes what is in it and nothing else.
            return visitor.visit_seq(One(Some(self)));
        }
        self.chosen(|it| match it.shape() {
            Shape::Record(Record { fields, .. }) => it.places(fields, visitor),
            _ => it.deserialize_any(visitor),
        })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.chosen(|it| match it.shape() {
            Shape::Record(Record { fields, .. }) => it.places(fields, visitor),
            _ => it.deserialize_any(visitor),
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.chosen(|it| match it.shape() {
            Shape::Record(Record { fields, .. }) => it.fields(fields, visitor),
            _ => it.deserialize_any(visitor),
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let Self { data, layout, id } = self;
        match layout.shape(id) {
            Shape::Enum { symbols, .. } => {
                let symbol = &*symbols[data.choice(symbols.len())?];
                visitor.visit_enum(IntoDeserializer::<Failure>::into_deserializer(symbol))
            }
            Shape::Union(branches) => {
                let place = data.choice(branches.len())?;
                data.nested(|data| {
                    let branch = Typed { data, layout, id: branches[place] };
                    visitor.visit_enum(Branch { place, branch })
                })
            }
            _ => Typed { data, layout, id }.deserialize_any(visitor),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Failure> {
        match self.wide("org.apache.avro.rust.u64")? {
            Some(bytes) => visitor.visit_u64(u64::from_le_bytes(bytes)),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_i128<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Failure> {
        match self.wide("org.apache.avro.rust.i128")? {
            Some(bytes) => visitor.visit_i128(i128::from_le_bytes(bytes)),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_u128<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Failure> {
        match self.wide("org.apache.avro.rust.u128")? {
            Some(bytes) => visitor.visit_u128(u128::from_le_bytes(bytes)),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.data.skip(self.layout, self.id)?;
        visitor.visit_unit()
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 f32 f64 char str string bytes byte_buf unit seq identifier
    }
}

/// The fields of a record that have not been read.
struct Fields<'a, 'f, 'de> {
    data: &'a mut Data<'de>,
    layout: &'a Layout,
    rest: std::slice::Iter<'f, Field>,
}

impl<'de> Fields<'_, '_, 'de> {
    fn value<S: DeserializeSeed<'de>>(
        &mut self,
        field: &Field,
        seed: S,
    ) -> Result<S::Value, Failure> {
        let id = self.layout.within_wrapper(field.of_type);
        seed.deserialize(Typed { data: self.data, layout: self.layout, id })
    }
}

impl<'de> MapAccess<'de> for &mut Fields<'_, '_, 'de> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Failure> {
        let Some(field) = self.rest.as_slice().first() else { return Ok(None) };
        seed.deserialize(StrDeserializer::new(&field.name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Failure> {
        match self.rest.next() {
            Some(field) => self.value(field, seed),
            None => Err(de::Error::custom("a value was asked for after the last field")),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Places<'a, 'b, 'f, 'de>(&'a mut Fields<'b, 'f, 'de>);

impl<'de> SeqAccess<'de> for Places<'_, '_, '_, 'de> {
    type Error = Failure;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        let Some(field) = self.0.rest.next() else { return Ok(None) };
        self.0.value(field, seed).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.rest.len())
    }
}

struct One<'a, 'de>(Option<Typed<'a, 'de>>);

impl<'de> SeqAccess<'de> for One<'_, 'de> {
    type Error = Failure;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        self.0.take().map(|value| seed.deserialize(value)).transpose()
    }
}

/// The items of an array, or the values of a map.
struct Items<'a, 'de> {
    data: &'a mut Data<'de>,
    layout: &'a Layout,
    of_type: TypeId,
    /// How many are left of this block.
    block: u64,
    ended: bool,
}

impl<'de> Items<'_, 'de> {
    /// Whether there is one more, which is read next.
    fn next(&mut self) -> Result<bool, Failure> {
        if self.block == 0 && !self.ended {
            self.block = self.data.block()?;
            self.ended = self.block == 0;
        }
        self.block = self.block.saturating_sub(1);
        Ok(!self.ended)
    }

    fn hint(&self) -> Option<usize> {
        usize::try_from(self.block).ok()
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = Failure;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        if !self.next()? {
            return Ok(None);
        }
        let item = Typed { data: self.data, layout: self.layout, id: self.of_type };
        seed.deserialize(item).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

impl<'de> MapAccess<'de> for &mut Items<'_, 'de> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Failure> {
        if !self.next()? {
            return Ok(None);
        }
        let key = self.data.text()?;
        seed.deserialize(de::value::BorrowedStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Failure> {
        seed.deserialize(Typed { data: self.data, layout: self.layout, id: self.of_type })
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

/// A branch of a union, which a variant of an enum is found for by its place.
struct Branch<'a, 'de> {
    place: usize,
    branch: Typed<'a, 'de>,
}

impl<'a, 'de> EnumAccess<'de> for Branch<'a, 'de> {
    type Error = Failure;
    type Variant = Typed<'a, 'de>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), Failure> {
        let place = IntoDeserializer::<Failure>::into_deserializer(self.place as u64);
        Ok((seed.deserialize(place)?, self.branch))
    }
}

impl<'de> VariantAccess<'de> for Typed<'_, 'de> {
    type Error = Failure;

    fn unit_variant(self) -> Result<(), Failure> {
        self.data.skip(self.layout, self.id).map_err(Failure)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Failure> {
        let id = self.layout.within_wrapper(self.id);
        seed.deserialize(Typed { id, ..self })
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_map(visitor)
    }
}
