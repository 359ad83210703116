//! The way out: from a payload to a message that is known to have reached a queue.
//!
//! Awaiting a send means that the broker has the message and routed it to a queue: publisher
//! confirms and `mandatory` are on unless given away by a long name (`without_confirms`,
//! `allow_unroutable`).

mod batch;
mod draft;
mod interceptor;
mod publisher;
mod record;
mod send;

use self::interceptor::{after_confirm, before_publish, on_error};
pub use self::{
    batch::{BatchError, SendBatch},
    interceptor::{PublishContext, PublishInterceptor},
    publisher::Publisher,
    record::MakeRecord,
    send::{Receipt, SendMessage},
};
pub(crate) use self::{
    draft::{Draft, draft_options},
    send::Prepared,
};
