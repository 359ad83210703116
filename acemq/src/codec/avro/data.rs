//! A body's bytes, none of which is believed before it was looked at.
//!
//! apache-avro takes a length for granted, follows nesting as deep as it goes, and fills a body
//! that ends early with nulls. So its readers get no body, and what is read is read by this.

use super::{
    super::not_utf8,
    layout::{Layout, Record, Shape, TypeId},
};
use crate::counted::counted;

/// How many types may be inside each other: 64 links of a chain of records and unions. A program
/// that is not optimised takes much stack for each.
pub(super) const MAX_DEPTH: usize = 128;

/// How many items of arrays there may be beyond the bytes of the body: those that take no bytes,
/// such as nulls, could otherwise be as many as an eight-byte number says.
const SPARE_ITEMS: u64 = 4_096;

/// How many bytes a reader's defaults may add to a body beyond four times its own: each of the many
/// records of a small body could otherwise have all of them.
const SPARE_DEFAULTS: usize = 64 << 20;

/// What is wrong with a body.
pub(super) type Fault = String;

/// What has not been read yet. It never reads past its end.
pub(super) struct Data<'a> {
    rest: &'a [u8],
    /// How many more items arrays may have.
    items: u64,
    /// How many more bytes of defaults there may be beside it.
    defaults: usize,
    depth: usize,
}

impl<'a> Data<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self {
            rest: body,
            items: body.len() as u64 + SPARE_ITEMS,
            defaults: body.len().saturating_mul(4).saturating_add(SPARE_DEFAULTS),
            depth: 0,
        }
    }

    /// A default of the reader's is put beside what the body has.
    pub(super) fn default(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        match self.defaults.checked_sub(bytes.len()) {
            Some(defaults) => self.defaults = defaults,
            None => return Err("the reader's defaults would make it many times larger".to_owned()),
        }
        Ok(())
    }

    /// Whether everything was read.
    pub(super) fn end(&self) -> Result<(), Fault> {
        match self.rest.len() {
            0 => Ok(()),
            1 => Err("1 byte is left after its end".to_owned()),
            more => Err(format!("{more} bytes are left after its end")),
        }
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or_else(|| {
            format!("it ends {} too early", counted(bytes - self.rest.len(), "byte"))
        })?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn long(&mut self) -> Result<i64, Fault> {
        let mut bits = 0;
        for (place, byte) in self.rest.iter().enumerate() {
            // The tenth byte has room for the last bit alone.
            if place == 9 && *byte > 1 {
                return Err("a number has more than 64 bits".to_owned());
            }
            bits |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[place + 1..];
                return Ok((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed());
            }
        }
        Err("it ends within a number".to_owned())
    }

    pub(super) fn int(&mut self) -> Result<i32, Fault> {
        let long = self.long()?;
        i32::try_from(long).map_err(|_| format!("{long} is no int"))
    }

    pub(super) fn boolean(&mut self) -> Result<u8, Fault> {
        match self.take(1)?[0] {
            byte @ (0 | 1) => Ok(byte),
            byte => Err(format!("{byte} is no boolean")),
        }
    }

    /// A length, and as many bytes.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.long()?;
        let length = usize::try_from(length).map_err(|_| format!("{length} is no length"))?;
        self.take(length)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Fault> {
        std::str::from_utf8(self.bytes()?)
            .map_err(|fault| format!("a text in it: {}", not_utf8(fault)))
    }

    pub(super) fn float(&mut self) -> Result<f32, Fault> {
        self.take(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    pub(super) fn double(&mut self) -> Result<f64, Fault> {
        self.take(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    /// The number of an alternative, of so many.
    pub(super) fn choice(&mut self, of: usize) -> Result<usize, Fault> {
        let choice = self.long()?;
        let chosen = usize::try_from(choice).ok().filter(|chosen| *chosen < of);
        chosen.ok_or_else(|| format!("it chooses number {choice} of {of}"))
    }

    /// How many items the next block of an array or map has; 0 at its end.
    pub(super) fn block(&mut self) -> Result<u64, Fault> {
        let count = self.long()?;
        if count < 0 {
            // The block's size in bytes, for those who skip it.
            self.long()?;
        }
        let count = count.unsigned_abs();
        self.items = self
            .items
            .checked_sub(count)
            .ok_or_else(|| format!("a block of {count} items is more than the body can hold"))?;
        Ok(count)
    }

    /// Reads something that is inside of something.
    pub(super) fn nested<T, E: From<Fault>>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        if self.depth == MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} deep").into());
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Reads over a value.
    pub(super) fn skip(&mut self, layout: &Layout, id: TypeId) -> Result<(), Fault> {
        match layout.shape(id) {
            Shape::Null => Ok(()),
            Shape::Boolean => self.boolean().map(drop),
            Shape::Int => self.int().map(drop),
            Shape::Long => self.long().map(drop),
            Shape::Float => self.take(4).map(drop),
            Shape::Double => self.take(8).map(drop),
            Shape::Bytes | Shape::String => self.bytes().map(drop),
            Shape::Fixed { size, .. } => self.take(*size).map(drop),
            Shape::Enum { symbols, .. } => self.choice(symbols.len()).map(drop),
            Shape::Array(items) => self.nested(|data| data.each(|data| data.skip(layout, *items))),
            Shape::Map(values) => self.nested(|data| {
                data.each(|data| {
                    data.bytes()?;
                    data.skip(layout, *values)
                })
            }),
            Shape::Union(branches) => {
                let branch = branches[self.choice(branches.len())?];
                self.nested(|data| data.skip(layout, branch))
            }
            Shape::Record(Record { fields, .. }) => self.nested(|data| {
                fields.iter().try_for_each(|field| data.skip(layout, field.of_type))
            }),
        }
    }

    /// Reads the items of all blocks.
    pub(super) fn each(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        loop {
            let count = self.block()?;
            if count == 0 {
                return Ok(());
            }
            for _ in 0..count {
                read(self)?;
            }
        }
    }
}

/// Writes a number as Avro does.
pub(super) fn put_long(out: &mut Vec<u8>, long: i64) {
    let mut bits = ((long << 1) ^ (long >> 63)).cast_unsigned();
    while bits > 0x7f {
        out.push((bits & 0x7f) as u8 | 0x80);
        bits >>= 7;
    }
    out.push(bits as u8);
}

/// Writes a length and the bytes.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_long(out, i64::try_from(bytes.len()).unwrap_or(i64::MAX));
    out.extend_from_slice(bytes);
}
