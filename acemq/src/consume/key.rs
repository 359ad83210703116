//! What a message is recognised by when it comes again.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use super::{
    Message,
    handle::{Verdict, panic_text},
    message::Received,
};

/// The longest key that a store has to hold, in bytes.
const MAX_KEY: usize = 255;

/// Whose key an id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyScope {
    /// `queue/id`: consumers of different queues never suppress each other.
    Queue,
    /// The bare id, as the other libraries of the family store it.
    Family,
}

impl KeyScope {
    fn key(self, queue: &str, id: &str) -> String {
        let key = match self {
            Self::Queue => format!("{queue}/{id}"),
            Self::Family => id.to_owned(),
        };
        // PostgreSQL's text has no U+0000, and an id may hold anything.
        if key.len() <= MAX_KEY && !key.contains('\0') {
            return key;
        }
        Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What makes a key of a message, where that is not its id.
pub(super) type MakeKey<T> = Box<dyn Fn(&Message<T>) -> String + Send + Sync>;

/// How one consumer's keys are made.
pub(super) struct MessageKey<T> {
    pub(super) scope: KeyScope,
    pub(super) make: Option<MakeKey<T>>,
}

impl<T> MessageKey<T> {
    /// A message's key, and its payload again; or what becomes of a message without one. Never the
    /// id in its place: what was to be recognised by its content would be handled twice.
    pub(super) fn of(&self, payload: T, received: &Arc<Received>) -> Result<(String, T), Verdict> {
        let scoped = |id: &str| self.scope.key(&received.queue, id);
        let Some(make) = &self.make else {
            return Ok((scoped(received.envelope.id()), payload));
        };
        let message = Message::new(payload, Arc::clone(received));
        match catch_unwind(AssertUnwindSafe(|| make(&message))) {
            Ok(id) if id.is_empty() => Err(Verdict::Rejected {
                text: "the idempotency key made of it is empty".to_owned(),
            }),
            Ok(id) => Ok((scoped(&id), message.into_payload())),
            Err(panic) => Err(Verdict::Rejected {
                text: format!("making its idempotency key panicked: {}", panic_text(&*panic)),
            }),
        }
    }
}
