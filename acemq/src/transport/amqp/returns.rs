//! Messages that the broker returned, waiting for the publish they belong to.
//!
//! lapin hands a returned message to whichever publish it confirms next, so that one says nothing
//! about whose it is. They are kept here, found by what they carry: message id, exchange and
//! routing key.
//!
//! Why that is enough. RabbitMQ sends a return before the confirm of the same publish, and returns
//! and confirms unroutable publishes in order. lapin's queue of returns is a FIFO of which every
//! confirm takes one, if there is one. By induction over the unroutable publishes: when the
//! confirm of the n-th has been resolved, the first n returns have been taken, and stand here as
//! soon as all confirms of the same frame have been looked at.

use std::collections::{HashMap, VecDeque};

use lapin::message::BasicReturnMessage;

use crate::transport::{Outgoing, PublishFailure};

#[derive(Debug, Default)]
pub(super) struct Returns {
    /// By message id, which tells nearly all apart; the empty text for those without.
    by_id: HashMap<String, VecDeque<Return>>,
}

#[derive(Debug)]
struct Return {
    exchange: String,
    routing_key: String,
    code: u16,
    reason: String,
}

impl Returns {
    pub(super) fn add(&mut self, returned: BasicReturnMessage) {
        let id = returned.properties.message_id().as_ref().map_or("", |id| id.as_str()).to_owned();
        let BasicReturnMessage { delivery, reply_code, reply_text } = returned;
        self.by_id.entry(id).or_default().push_back(Return {
            exchange: delivery.exchange.into(),
            routing_key: delivery.routing_key.into(),
            code: reply_code,
            reason: reply_text.into(),
        });
    }

    /// Takes the oldest return that can be this message's. To be called in the order in which the
    /// messages were published, once their confirms are final.
    pub(super) fn take(&mut self, message: &Outgoing) -> Option<PublishFailure> {
        // Nearly always: nothing is unroutable.
        if self.by_id.is_empty() || !message.mandatory {
            return None;
        }
        let id = message.properties.message_id.as_deref().unwrap_or("");
        let returns = self.by_id.get_mut(id)?;
        let position = returns.iter().position(|returned| {
            returned.exchange == message.exchange && returned.routing_key == message.routing_key
        })?;
        let returned = returns.remove(position)?;
        if returns.is_empty() {
            self.by_id.remove(id);
        }
        Some(failure(returned.code, returned.reason))
    }
}

/// The verdict on a message that was returned.
pub(super) fn failure(code: u16, reason: String) -> PublishFailure {
    PublishFailure::Unroutable { code, reason }
}
