//! How far a pipeline's builder has come, as a type: what can be said next depends on it.

use std::{fmt, sync::Arc};

use super::{
    builder::Steps,
    handler::{MakeConsumer, MakeConsumerOf},
    options::StepOptions,
};
use crate::codec::Encode;

/// There is no step yet.
#[derive(Debug)]
pub struct Entry(pub(super) ());

/// There is a step that makes an `N`.
pub struct AfterStep<N> {
    pub(super) options: StepOptions,
    pub(super) make: MakeConsumerOf<N>,
}

/// There is a step that lets its messages through as they came.
pub struct AfterFilter {
    pub(super) options: StepOptions,
    pub(super) make: MakeConsumer,
}

/// There is the last step.
pub struct AfterLast {
    pub(super) options: StepOptions,
    pub(super) make: MakeConsumer,
}

/// There is the one step, which joins a route that was declared elsewhere and makes an `N`.
pub struct AfterJoin<N> {
    pub(super) options: StepOptions,
    pub(super) make: MakeConsumerOf<N>,
}

/// There is the one step, which joins a route that was declared elsewhere and is its end.
pub struct AfterJoinLast {
    pub(super) options: StepOptions,
    pub(super) make: MakeConsumer,
}

/// The step before can be described and set up.
pub trait HasStep: sealed::Options {}

/// Another step can follow.
pub trait TakesStep<In, Cur>: sealed::Settle<In, Cur> {}

/// The format of what comes out here can be chosen.
pub trait HasFormat: sealed::Format {}

pub(super) mod sealed {
    use super::{Arc, Encode, StepOptions, Steps};

    pub trait Options {
        fn options(&mut self) -> &mut StepOptions;
    }

    pub trait Settle<In, Cur> {
        /// Adds the step that there is to those before it. What comes out of it is written by
        /// `codec`.
        fn settle<C: Encode<Cur>>(self, codec: &Arc<C>, steps: &mut Steps<In>);
    }

    pub trait Format {}
}

macro_rules! has_step {
    ($($state:ident $(<$made:ident>)?),+) => {$(
        impl$(<$made>)? HasStep for $state$(<$made>)? {}

        impl$(<$made>)? sealed::Options for $state$(<$made>)? {
            fn options(&mut self) -> &mut StepOptions {
                &mut self.options
            }
        }

        impl$(<$made>)? fmt::Debug for $state$(<$made>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($state))
                    .field("step", &self.options.label())
                    .finish_non_exhaustive()
            }
        }
    )+};
}

has_step! { AfterStep<N>, AfterFilter, AfterLast, AfterJoin<N>, AfterJoinLast }

impl<T: Sync + 'static> TakesStep<T, T> for Entry {}

impl<T: Sync + 'static> sealed::Settle<T, T> for Entry {
    fn settle<C: Encode<T>>(self, codec: &Arc<C>, steps: &mut Steps<T>) {
        steps.entry = Some(Arc::<C>::clone(codec));
    }
}

impl<In, N: Sync + 'static> TakesStep<In, N> for AfterStep<N> {}

impl<In, N: Sync + 'static> sealed::Settle<In, N> for AfterStep<N> {
    fn settle<C: Encode<N>>(self, codec: &Arc<C>, steps: &mut Steps<In>) {
        steps.declared.push((self.options, (self.make)(Arc::<C>::clone(codec))));
    }
}

impl<In, Cur> TakesStep<In, Cur> for AfterFilter {}

impl<In, Cur> sealed::Settle<In, Cur> for AfterFilter {
    fn settle<C: Encode<Cur>>(self, _: &Arc<C>, steps: &mut Steps<In>) {
        steps.declared.push((self.options, self.make));
    }
}

impl HasFormat for Entry {}
impl<N> HasFormat for AfterStep<N> {}
impl<N> HasFormat for AfterJoin<N> {}
impl sealed::Format for Entry {}
impl<N> sealed::Format for AfterStep<N> {}
impl<N> sealed::Format for AfterJoin<N> {}
