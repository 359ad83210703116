//! What a topology would change on a broker.

use std::fmt;

use serde_json::{Value, json};

use crate::{
    envelope::Headers,
    transport::{BindingSpec, ExchangeSpec, QueueSpec},
};

/// What declaring a topology would do, object by object, from [`Client::plan`](crate::Client::plan).
///
/// It is printed with a line an object:
///
/// ```text
/// topology plan:
///   create   exchange orders (topic)
///   present  queue orders.new (quorum)
///   DRIFT    queue orders.old (classic) — …what the broker says
///   create   binding orders.new <- orders [order.*]
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyPlan {
    pub(super) items: Vec<PlannedObject>,
}

/// One exchange, queue or binding of a [`TopologyPlan`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedObject {
    /// What declaring it would do.
    pub status: PlannedStatus,
    /// Which it is.
    pub object: TopologyObject,
}

/// An exchange, queue or binding, as a plan names it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyObject {
    /// An exchange.
    #[non_exhaustive]
    Exchange {
        /// Its name.
        name: String,
        /// `direct`, `fanout`, `headers` or `topic`.
        kind: &'static str,
    },
    /// A queue.
    #[non_exhaustive]
    Queue {
        /// Its name.
        name: String,
        /// `quorum`, `classic`, `stream`, or what else its `x-queue-type` says.
        kind: String,
    },
    /// A binding.
    #[non_exhaustive]
    Binding {
        /// The queue that is bound.
        queue: String,
        /// The exchange that it is bound to.
        exchange: String,
        /// The routing key.
        routing_key: String,
    },
}

/// What declaring an object would do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlannedStatus {
    /// It is not there, or cannot be asked for: of bindings AMQP does not tell.
    Create,
    /// It is there in this form.
    Present,
    /// It is there in another form, and the broker refuses this one.
    #[non_exhaustive]
    Drift {
        /// What differs, with both values.
        reason: String,
    },
    /// The broker did not let it be asked for.
    #[non_exhaustive]
    Unknown {
        /// What it said.
        reason: String,
        /// Whether it is there, if in an unknown form: a broker compares only for those who may
        /// declare.
        exists: bool,
    },
}

impl TopologyPlan {
    /// All objects, in the order in which they are declared: exchanges, queues, bindings.
    #[must_use]
    pub fn objects(&self) -> &[PlannedObject] {
        &self.items
    }

    /// What is not there yet; of bindings it is not known, so that all of them are among these.
    pub fn changes(&self) -> impl Iterator<Item = &PlannedObject> {
        self.items.iter().filter(|item| item.status == PlannedStatus::Create)
    }

    /// Whether something is there in another form.
    #[must_use]
    pub fn has_drift(&self) -> bool {
        self.items.iter().any(|item| matches!(item.status, PlannedStatus::Drift { .. }))
    }

    /// The same for programs: an object with `drift`, `changes` and `objects`, each of which has its
    /// `status`, its `object` and what names it.
    #[must_use]
    pub fn to_json(&self) -> String {
        let objects: Vec<Value> = self.items.iter().map(PlannedObject::json).collect();
        json!({
            "drift": self.has_drift(),
            "changes": self.changes().count(),
            "objects": objects,
        })
        .to_string()
    }
}

impl fmt::Display for TopologyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("topology plan:")?;
        if self.items.is_empty() {
            return f.write_str("\n  nothing declared");
        }
        self.items.iter().try_for_each(|item| write!(f, "\n  {item}"))
    }
}

impl PlannedObject {
    fn json(&self) -> Value {
        let mut json = match &self.object {
            TopologyObject::Exchange { name, kind } => {
                json!({"object": "exchange", "name": name, "kind": kind})
            }
            TopologyObject::Queue { name, kind } => {
                json!({"object": "queue", "name": name, "kind": kind})
            }
            TopologyObject::Binding { queue, exchange, routing_key } => json!({
                "object": "binding",
                "queue": queue,
                "exchange": exchange,
                "routing_key": routing_key,
            }),
        };
        json["status"] = self.status.word().to_ascii_lowercase().into();
        if let Some(reason) = self.status.reason() {
            json["reason"] = reason.into();
        }
        json
    }
}

impl fmt::Display for PlannedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {}", self.status.word(), self.object)?;
        self.status.reason().map_or(Ok(()), |reason| write!(f, " — {reason}"))
    }
}

impl PlannedStatus {
    fn word(&self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Present => "present",
            Self::Drift { .. } => "DRIFT",
            Self::Unknown { .. } => "UNKNOWN",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Drift { reason } | Self::Unknown { reason, .. } => Some(reason),
            Self::Create | Self::Present => None,
        }
    }
}

impl fmt::Display for TopologyObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exchange { name, kind } => write!(f, "exchange {name} ({kind})"),
            Self::Queue { name, kind } => write!(f, "queue {name} ({kind})"),
            Self::Binding { queue, exchange, routing_key } => {
                write!(f, "binding {queue} <- {exchange} [{routing_key}]")
            }
        }
    }
}

impl From<&ExchangeSpec> for TopologyObject {
    fn from(exchange: &ExchangeSpec) -> Self {
        Self::Exchange { name: exchange.name.clone(), kind: exchange.kind.as_str() }
    }
}

impl From<&QueueSpec> for TopologyObject {
    fn from(queue: &QueueSpec) -> Self {
        Self::Queue { name: queue.name.clone(), kind: kind(&queue.arguments).to_owned() }
    }
}

impl From<&BindingSpec> for TopologyObject {
    fn from(binding: &BindingSpec) -> Self {
        Self::Binding {
            queue: binding.queue.clone(),
            exchange: binding.exchange.clone(),
            routing_key: binding.routing_key.clone(),
        }
    }
}

fn kind(arguments: &Headers) -> &str {
    arguments.get("x-queue-type").and_then(|kind| kind.as_str()).unwrap_or("classic")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, kind: &str, status: PlannedStatus) -> PlannedObject {
        let object = TopologyObject::Queue { name: name.to_owned(), kind: kind.to_owned() };
        PlannedObject { status, object }
    }

    fn plan() -> TopologyPlan {
        let exchange = TopologyObject::Exchange { name: "orders".to_owned(), kind: "topic" };
        let binding = TopologyObject::Binding {
            queue: "orders.new".to_owned(),
            exchange: "orders".to_owned(),
            routing_key: "order.*".to_owned(),
        };
        let reason = "x-message-ttl is 10 there and 20 here".to_owned();
        let items = vec![
            PlannedObject { status: PlannedStatus::Create, object: exchange },
            queue("orders.new", "quorum", PlannedStatus::Present),
            queue("orders.old", "classic", PlannedStatus::Drift { reason }),
            PlannedObject { status: PlannedStatus::Create, object: binding },
        ];
        TopologyPlan { items }
    }

    #[test]
    fn a_plan_is_printed_as_in_every_library_of_the_family() {
        assert_eq!(
            plan().to_string(),
            "topology plan:\n\
             \x20 create   exchange orders (topic)\n\
             \x20 present  queue orders.new (quorum)\n\
             \x20 DRIFT    queue orders.old (classic) — x-message-ttl is 10 there and 20 here\n\
             \x20 create   binding orders.new <- orders [order.*]"
        );
        let nothing = TopologyPlan::default();
        assert_eq!(nothing.to_string(), "topology plan:\n  nothing declared");
        assert!(plan().has_drift() && !nothing.has_drift());
        assert_eq!((plan().changes().count(), nothing.changes().count()), (2, 0));
    }

    #[test]
    fn a_plan_is_json_for_programs() {
        let read: Value = serde_json::from_str(&plan().to_json()).unwrap();
        assert_eq!(
            read,
            json!({
                "drift": true,
                "changes": 2,
                "objects": [
                    {"status": "create", "object": "exchange", "name": "orders", "kind": "topic"},
                    {"status": "present", "object": "queue", "name": "orders.new", "kind": "quorum"},
                    {
                        "status": "drift", "object": "queue", "name": "orders.old",
                        "kind": "classic", "reason": "x-message-ttl is 10 there and 20 here"
                    },
                    {
                        "status": "create", "object": "binding", "queue": "orders.new",
                        "exchange": "orders", "routing_key": "order.*"
                    },
                ],
            })
        );
    }
}
