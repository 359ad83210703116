//! What can be set about a step, whatever its types are.

use std::time::Duration;

use crate::{consume::ConsumerBuilder, idempotency::SharedIdempotencyStore, retry::RetryPolicy};

/// A step holds this many messages at least, so that as many of what it hands on can be on their way
/// to the broker at once.
const LEAST_PREFETCH: usize = 20;

/// A step's name and settings.
#[derive(Clone, Debug)]
pub struct StepOptions {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) retry: RetryPolicy,
    pub(super) consumers: usize,
    pub(super) concurrency: usize,
    pub(super) prefetch: Option<u16>,
    pub(super) store: Option<SharedIdempotencyStore>,
    pub(super) key_shared_with_family: bool,
    pub(super) in_progress_wait: Option<Duration>,
    pub(super) handler_timeout: Option<Duration>,
}

impl StepOptions {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            description: None,
            retry: RetryPolicy::none(),
            consumers: 1,
            concurrency: 1,
            prefetch: None,
            store: None,
            key_shared_with_family: false,
            in_progress_wait: None,
            handler_timeout: None,
        }
    }

    /// The step as people read it: its name, and its description where it has one.
    pub(super) fn label(&self) -> String {
        match &self.description {
            Some(description) => format!("{} ({description})", self.name),
            None => self.name.clone(),
        }
    }

    /// Sets up a consumer as this says.
    pub(super) fn apply<T, C>(&self, consumer: ConsumerBuilder<T, C>) -> ConsumerBuilder<T, C> {
        let prefetch = self.prefetch.unwrap_or_else(|| {
            let wanted = self.concurrency.saturating_mul(2).max(LEAST_PREFETCH);
            wanted.try_into().unwrap_or(u16::MAX)
        });
        let mut consumer =
            consumer.retry(self.retry.clone()).concurrency(self.concurrency).prefetch(prefetch);
        if let Some(store) = &self.store {
            consumer = consumer.idempotent(store.clone());
        }
        if self.key_shared_with_family {
            consumer = consumer.key_shared_with_family();
        }
        if let Some(wait) = self.in_progress_wait {
            consumer = consumer.in_progress_wait(wait);
        }
        if let Some(limit) = self.handler_timeout {
            consumer = consumer.handler_timeout(limit);
        }
        consumer
    }
}
