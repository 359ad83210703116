//! The way in: from a delivery to its settlement.
//!
//! delivery → envelope → decode → idempotency claim → interceptors → handler → outcome → settle.
//! Settling is one function (`settle`), the only place that acknowledges: first the copy is
//! confirmed elsewhere, then the original is acknowledged.

mod ack;
mod builder;
mod claim;
mod consumer;
mod copies;
mod counters;
mod handle;
mod interceptor;
mod message;
mod pacing;
mod runtime;
mod settle;
#[cfg(test)]
mod tests;
mod work;

pub use self::{
    ack::{Ack, HandlerError},
    builder::{ConsumerBuilder, StartConsumer},
    consumer::{Consumer, ConsumerState},
    counters::ConsumerCounters,
    interceptor::{ConsumeContext, ConsumeInterceptor, Settlement},
    message::Message,
};
