//! The names that all libraries of the family share on one broker.

/// The exchange through which a waiting message returns to its queue.
pub(crate) const RETRY_EXCHANGE: &str = "acemq.retry";

/// The exchange of dead-letter and parking queues.
pub(crate) const DEAD_LETTER_EXCHANGE: &str = "acemq.dlx";

/// Where a queue's failed messages are kept.
pub(crate) fn dead_letter_queue(queue: &str) -> String {
    format!("{queue}.dlq")
}

/// Where a queue's unreadable messages are kept.
pub(crate) fn parking_queue(queue: &str) -> String {
    format!("{queue}.parked")
}
