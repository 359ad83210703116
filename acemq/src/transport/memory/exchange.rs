//! Exchanges and how they route.

use std::{collections::HashMap, sync::Arc};

use super::state::QueueName;
use crate::transport::{BindingSpec, ExchangeKind, ExchangeSpec};

/// How many routing keys an exchange remembers the queues of.
const ROUTES_KEPT: usize = 1_024;

pub(super) struct Exchange {
    pub(super) kind: ExchangeKind,
    pub(super) durable: bool,
    pub(super) auto_delete: bool,
    pub(super) internal: bool,
    bindings: Vec<Binding>,
    /// The queues for a routing key, found once: messages with few keys are the rule.
    routes: HashMap<String, Arc<[QueueName]>>,
}

#[derive(PartialEq)]
struct Binding {
    queue: QueueName,
    key: String,
}

impl Exchange {
    pub(super) fn new(spec: &ExchangeSpec) -> Self {
        Self {
            kind: spec.kind,
            durable: spec.durable,
            auto_delete: spec.auto_delete,
            internal: spec.internal,
            bindings: Vec::new(),
            routes: HashMap::new(),
        }
    }

    pub(super) fn predeclared(kind: ExchangeKind) -> Self {
        Self {
            kind,
            durable: true,
            auto_delete: false,
            internal: false,
            bindings: Vec::new(),
            routes: HashMap::new(),
        }
    }

    /// The queues bound for a routing key, each once.
    pub(super) fn route(&mut self, key: &str) -> Arc<[QueueName]> {
        if let Some(queues) = self.routes.get(key) {
            return queues.clone();
        }
        let mut queues: Vec<QueueName> = Vec::new();
        for binding in &self.bindings {
            if binding.matches(self.kind, key) && !queues.contains(&binding.queue) {
                queues.push(binding.queue.clone());
            }
        }
        let queues: Arc<[QueueName]> = queues.into();
        if self.routes.len() == ROUTES_KEPT {
            self.routes.clear();
        }
        self.routes.insert(key.to_owned(), queues.clone());
        queues
    }

    pub(super) fn bind(&mut self, queue: QueueName, binding: &BindingSpec) {
        let binding = Binding { queue, key: binding.routing_key.clone() };
        if !self.bindings.contains(&binding) {
            self.bindings.push(binding);
            self.routes.clear();
        }
    }

    /// Removes the bindings of a queue, those with one routing key or all. Says whether the
    /// exchange goes with its last binding.
    pub(super) fn unbind(&mut self, queue: &str, key: Option<&str>) -> bool {
        let before = self.bindings.len();
        self.bindings.retain(|binding| {
            *binding.queue != *queue || key.is_some_and(|key| binding.key != key)
        });
        let removed = self.bindings.len() < before;
        if removed {
            self.routes.clear();
        }
        removed && self.auto_delete && self.bindings.is_empty()
    }
}

impl Binding {
    fn matches(&self, kind: ExchangeKind, key: &str) -> bool {
        match kind {
            ExchangeKind::Direct => self.key == key,
            ExchangeKind::Fanout => true,
            ExchangeKind::Topic => topic_matches(&self.key, key),
            // Refused when declared.
            ExchangeKind::Headers => false,
        }
    }
}

/// Whether a routing key matches a topic pattern: `*` is one word, `#` any number of words.
///
/// Words are what stands between dots, also nothing (`a..b` has three); the empty key has none.
fn topic_matches(pattern: &str, key: &str) -> bool {
    let pattern: Vec<&str> = words(pattern).collect();
    let key: Vec<&str> = words(key).collect();
    let (mut p, mut k) = (0, 0);
    // The last `#` and the first word it does not cover yet: where matching goes back to.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match pattern.get(p) {
            Some(&"#") => {
                retry = Some((p, k));
                p += 1;
            }
            Some(&word) if key.get(k).is_some_and(|&other| word == "*" || word == other) => {
                p += 1;
                k += 1;
            }
            None if k == key.len() => return true,
            _ => match retry {
                Some((hash, covered)) if covered < key.len() => {
                    retry = Some((hash, covered + 1));
                    p = hash + 1;
                    k = covered + 1;
                }
                _ => return false,
            },
        }
    }
}

fn words(key: &str) -> impl Iterator<Item = &str> {
    key.split('.').filter(|_| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, word by word.
    fn defined(pattern: &[&str], key: &[&str]) -> bool {
        match (pattern.split_first(), key.split_first()) {
            (None, None) => true,
            (Some((&"#", rest)), _) => {
                defined(rest, key) || key.split_first().is_some_and(|(_, k)| defined(pattern, k))
            }
            (Some((&word, rest)), Some((&first, others))) => {
                (word == "*" || word == first) && defined(rest, others)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn topic_patterns_match_as_defined(
            pattern in "([ab*#]?\\.){0,5}[ab*#]?", key in "([ab]?\\.){0,6}[ab]?",
        ) {
            let by_definition = defined(
                &words(&pattern).collect::<Vec<_>>(),
                &words(&key).collect::<Vec<_>>(),
            );
            prop_assert_eq!(topic_matches(&pattern, &key), by_definition);
        }
    }
}
