//! The consumers of a channel, each under a tag of its own.
//!
//! A prefetch is a consumer's from its beginning on (measured on RabbitMQ 3.10 and 4.0: a later
//! `basic.qos` changes nothing for it), so another prefetch takes another consumer. It begins
//! before the old one is cancelled, all on one channel: nothing that is in flight notices, and an
//! auto-delete queue is never without a consumer.

use super::channel::{Asked, Over, SubscriptionChannel};
use crate::transport::amqp::encode;

impl SubscriptionChannel {
    /// Begins to consume.
    pub(super) async fn begin(&self, prefetch: u16) -> Result<(), Over> {
        self.all_answered(self.ask_to_begin(prefetch)?).await
    }

    /// Goes on with another prefetch.
    pub(super) async fn replace(&self, prefetch: u16) -> Result<(), Over> {
        let old = self.consumers();
        // All of it is written before any of it is awaited: nothing is ever half done.
        let begun = self.ask_to_begin(prefetch)?;
        let ended = self.ask_to_end(&old)?;
        self.all_answered(begun).await?;
        self.all_answered(ended).await
    }

    /// Ends whatever consumes.
    pub(super) async fn end_consumers(&self) -> Result<(), Over> {
        self.all_answered(self.ask_to_end(&self.consumers())?).await
    }

    fn ask_to_begin(&self, prefetch: u16) -> Result<Vec<Asked>, Over> {
        let qos = self.ask(|state, number| encode::basic_qos(&mut state.out, number, prefetch))?;
        let consume = self.ask(|state, number| {
            let tag = format!("acemq-{}", uuid::Uuid::new_v4());
            encode::basic_consume(&mut state.out, number, &tag, &self.subscription);
            state.consumers.push(tag);
            state.prefetch = prefetch;
            state.cancelled = None;
            state.drain = None;
        })?;
        Ok(vec![qos, consume])
    }

    fn ask_to_end(&self, tags: &[String]) -> Result<Vec<Asked>, Over> {
        let end = |tag: &String| {
            self.ask(|state, number| encode::basic_cancel(&mut state.out, number, tag))
        };
        tags.iter().map(end).collect()
    }

    async fn all_answered(&self, asked: Vec<Asked>) -> Result<(), Over> {
        for asked in asked {
            self.answered(asked).await?;
        }
        Ok(())
    }

    fn consumers(&self) -> Vec<String> {
        self.lock().consumers.clone()
    }
}
