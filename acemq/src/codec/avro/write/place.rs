//! Where a value is, in its payload and in the schema.

use std::{cell::OnceCell, fmt::Display};

use super::super::{
    data::Fault,
    layout::{Layout, Record, Shape, TypeId},
    misfit::{self, Path},
};

/// How many fields of a record are told apart when one is missing.
pub(super) const TOLD_APART: usize = 128;

/// Where a value is.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) layout: &'a Layout,
    /// Its type, where the writer leaves no doubt about it.
    pub(super) id: Option<TypeId>,
    pub(super) path: Path<'a>,
    /// The first thing that does not fit.
    pub(super) noted: &'a OnceCell<Fault>,
}

impl<'a> Place<'a> {
    /// A place inside of this one, or another type at the same.
    pub(super) fn at<'b>(self, path: Path<'b>, id: Option<TypeId>) -> Place<'b>
    where
        'a: 'b,
    {
        Place { layout: self.layout, id, path, noted: self.noted }
    }

    /// The type here, or the branch where it is a union, that is wanted.
    #[inline]
    pub(super) fn find(&self, wanted: impl Fn(&Shape) -> bool) -> Option<&'a Shape> {
        let layout = self.layout;
        match layout.shape(self.id?) {
            Shape::Union(branches) => {
                branches.iter().map(|branch| layout.shape(*branch)).find(|shape| wanted(shape))
            }
            shape => Some(shape).filter(|shape| wanted(shape)),
        }
    }

    #[inline]
    pub(super) fn takes(&self, wanted: impl Fn(&Shape) -> bool) -> bool {
        self.find(wanted).is_some()
    }

    pub(super) fn record(&self, wanted: impl Fn(&Record) -> bool) -> Inside<'a> {
        let is_wanted = |shape: &Shape| matches!(shape, Shape::Record(record) if wanted(record));
        match self.find(is_wanted) {
            Some(Shape::Record(record)) => Inside::Fields(record),
            _ => Inside::Unknown,
        }
    }

    /// The branch that an enum's variant is written as.
    pub(super) fn variant(&self, number: u32) -> Option<TypeId> {
        let Shape::Union(branches) = self.layout.shape(self.id?) else { return None };
        branches.get(usize::try_from(number).ok()?).copied()
    }

    /// The fields of that branch.
    pub(super) fn variant_record(&self, number: u32) -> Inside<'a> {
        match self.variant(number).map(|id| self.layout.shape(id)) {
            Some(Shape::Record(record)) => Inside::Fields(record),
            _ => Inside::Unknown,
        }
    }

    /// The branch that is not null, of a union that an `Option` is written as.
    pub(super) fn optional(&self) -> Option<TypeId> {
        let Shape::Union(branches) = self.layout.shape(self.id?) else { return None };
        let is_null = |id| matches!(self.layout.shape(id), Shape::Null);
        match branches[..] {
            [null, other] if is_null(null) => Some(other),
            [other, null] if is_null(null) => Some(other),
            _ => None,
        }
    }

    #[cold]
    pub(super) fn note<E>(&self, error: E, given: impl Display) -> E {
        self.noted.get_or_init(|| misfit::unlike(self.path, self.layout, self.id, given));
        error
    }

    /// A note of the field that nothing was given for, where it can be told.
    #[cold]
    pub(super) fn note_missing<E>(&self, error: E, inside: Inside<'a>, written: u128) -> E {
        if let Inside::Fields(record) = inside
            && record.fields.len() <= TOLD_APART
        {
            let mut fields = record.fields.iter().enumerate();
            let missing =
                fields.find(|(at, field)| field.default.is_none() && written & (1 << at) == 0);
            if let Some((_, field)) = missing {
                let note = || misfit::not_in_payload(self.path, self.layout, record, field);
                self.noted.get_or_init(note);
            }
        }
        error
    }
}

/// What the parts of a value are in the schema.
#[derive(Clone, Copy)]
pub(super) enum Inside<'a> {
    /// Of one type.
    Each(TypeId),
    Fields(&'a Record),
    Unknown,
}
