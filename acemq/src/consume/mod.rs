//! The way in: from a delivery to its settlement.
//!
//! delivery → envelope → decode → idempotency claim → interceptors → handler → outcome → settle.
//! A transactional handler's claim, work and confirmation are one transaction of its database.
//! Settling is one function (`settle`), the only place that acknowledges: first the copy is
//! confirmed elsewhere, then the original is acknowledged.

mod ack;
mod builder;
mod claim;
mod confirmations;
mod consumer;
mod copies;
mod counters;
mod handle;
mod in_order;
mod interceptor;
mod key;
mod message;
mod order;
mod outage;
mod pacing;
mod runtime;
mod settle;
mod start;
#[cfg(test)]
mod tests;
mod transaction;
mod transactional;
mod work;

pub(crate) use self::copies::for_queue;
pub use self::{
    ack::{Ack, HandlerError},
    builder::ConsumerBuilder,
    consumer::{Consumer, ConsumerState},
    counters::ConsumerCounters,
    interceptor::{ConsumeContext, ConsumeInterceptor, Settlement},
    message::Message,
    order::{HaltedKey, OnFailure},
    start::StartConsumer,
    transaction::{CommitError, TransactionClaim, TransactionalStore},
};
