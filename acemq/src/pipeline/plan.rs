//! What everything of one pipeline knows: its name, its steps, and how to send to each.

use crate::{connection::Client, publish::Publisher};

/// A pipeline as it was declared here.
pub(super) struct Plan {
    pub(super) client: Client,
    pub(super) name: String,
    /// The names of its steps, in order. A step that joins a route declared elsewhere knows none.
    pub(super) steps: Vec<String>,
    /// Whether queues are declared.
    pub(super) declares: bool,
    /// What sends to each of them.
    publishers: Vec<Publisher<()>>,
}

impl Plan {
    pub(super) fn new(client: Client, name: String, steps: Vec<String>, declares: bool) -> Self {
        // Their type is the one that messages have which were sent into the pipeline.
        let publisher = |step: &String| client.publisher(&*name, step).message_type(&*name);
        Self { publishers: steps.iter().map(publisher).collect(), client, name, steps, declares }
    }

    /// What sends to an exchange under a routing key.
    pub(super) fn publisher(&self, exchange: &str, routing_key: &str) -> Publisher<()> {
        if exchange == self.name {
            let known = self.publishers.iter().find(|known| known.routing_key() == routing_key);
            if let Some(known) = known {
                return known.clone();
            }
        }
        self.client.publisher(exchange, routing_key)
    }

    pub(super) fn queue_of(&self, step: &str) -> String {
        format!("{}.{step}", self.name)
    }
}
