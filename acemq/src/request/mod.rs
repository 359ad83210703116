//! Request and reply: questions that are answered over queues.
//!
//! A [`Requester`] has one reply queue, to which the replies to all of its requests come, and
//! matches them by the correlation id. The other side is a consumer that
//! [`respond`](crate::ConsumerBuilder::respond)s.

mod builder;
mod replies;
mod requester;
mod requests;
mod send;
#[cfg(test)]
mod tests;
mod waiting;

pub use self::{
    builder::RequesterBuilder,
    requester::{Requester, RequesterCounters},
    requests::Requests,
    send::SendRequest,
};
