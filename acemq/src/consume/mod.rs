//! The way in: from a delivery to its settlement.
//!
//! delivery → envelope → decode → idempotency claim → interceptors → handler → outcome → settle.
//! A transactional handler's claim, work and confirmation are one transaction of its database.
//! Settling is one function (`settle`), the only place that acknowledges: first the copy is
//! confirmed elsewhere, then the original is acknowledged.

mod ack;
mod answer;
mod attempt;
mod builder;
mod claim;
mod confirmations;
mod consumer;
mod control;
mod copies;
mod counters;
mod group;
mod handle;
mod host;
mod in_order;
mod interceptor;
mod key;
mod message;
mod moving;
mod onward;
mod order;
mod outage;
mod pacing;
mod place;
mod responder;
mod runtime;
mod settle;
mod start;
#[cfg(test)]
mod tests;
mod transaction;
mod transactional;
mod work;
mod worker;

pub(crate) use self::copies::for_queue;
pub use self::{
    ack::{Ack, HandlerError},
    builder::ConsumerBuilder,
    consumer::{Consumer, ConsumerState},
    counters::ConsumerCounters,
    group::{ConsumerGroup, StartConsumerGroup},
    interceptor::{ConsumeContext, ConsumeInterceptor, Settlement},
    message::Message,
    order::{HaltedKey, OnFailure},
    responder::{Responder, ResponderCounters, StartResponder},
    start::StartConsumer,
    transaction::{CommitError, TransactionClaim, TransactionalStore},
};
pub(crate) use self::{
    claim::answer,
    handle::{
        Judged, Verdict, decode, failed, intercept, panic_text, payload_of, unharmed, within_limits,
    },
    host::{Ask, Host},
    interceptor::after_handle,
    message::{Received, stream_offset},
    moving::{Moved, Mover, Way},
    order::Then,
    runtime::{FIRST_PAUSE, GRACE, LONGEST_PAUSE, stranded},
    transactional::InTransaction,
};
