//! Which exchanges are known to exist, and what waits to hear about others.
//!
//! A publish to an exchange that does not exist closes the channel, so each is asked for before
//! its first use.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use super::{limits, window::Settled};
use crate::{
    error::{Error, ErrorKind, Result},
    transport::{Publish, PublishFailure},
};

/// How soon a link that is short of channels asks for a missing exchange again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const MISSING: &str = "the exchange does not exist; declare it first";

#[derive(Debug, Default)]
pub(super) struct Exchanges {
    known: HashSet<String>,
    held: HashMap<String, VecDeque<Publish>>,
    /// Exchanges that were missing a moment ago.
    missing: HashMap<String, Instant>,
}

/// What is to be done with a publish.
pub(super) enum Route {
    /// Its exchange exists.
    Write(Publish),
    /// It waits for an answer that is on its way.
    Held,
    /// It waits, and this exchange is to be asked for.
    Ask(String),
    /// Its exchange was missing a moment ago.
    Refused(Settled),
}

impl Exchanges {
    /// Says what to do with a publish, and keeps it if its exchange is not known to exist.
    /// `sparing`: every "no" uses up a channel number, so one that asks again and again waits.
    pub(super) fn route(&mut self, publish: Publish, sparing: impl FnOnce() -> bool) -> Route {
        let exchange = &publish.message.exchange;
        if exchange.is_empty() || self.known.contains(exchange) {
            return Route::Write(publish);
        }
        let Some(publish) = self.hold(publish) else { return Route::Held };
        let exchange = &publish.message.exchange;
        if let Some(since) = self.missing.get(exchange)
            && since.elapsed() < ASK_AGAIN
            && sparing()
        {
            return Route::Refused(refuse(publish, ErrorKind::NotFound, MISSING));
        }
        let exchange = exchange.clone();
        self.held.insert(exchange.clone(), VecDeque::from([publish]));
        Route::Ask(exchange)
    }

    /// Keeps a publish with those before it to the same exchange, if there are any.
    pub(super) fn hold(&mut self, publish: Publish) -> Option<Publish> {
        match self.held.get_mut(&publish.message.exchange) {
            Some(held) => {
                held.push_back(publish);
                None
            }
            None => Some(publish),
        }
    }

    /// Takes the answer about an exchange: gives what was held back for one that exists, and what
    /// is refused for one that does not.
    pub(super) fn decide(
        &mut self,
        name: String,
        answer: Result<bool>,
        settled: &mut Vec<Settled>,
    ) -> VecDeque<Publish> {
        let held = self.held.remove(&name).unwrap_or_default();
        match answer {
            // No answer in time is no answer: the broker may have paused the connection, and the
            // publish itself will tell.
            Err(error) if error.kind() == ErrorKind::Timeout => return held,
            Ok(true) => {
                self.known.insert(name);
                return held;
            }
            Ok(false) => {
                settled.extend(
                    held.into_iter().map(|publish| refuse(publish, ErrorKind::NotFound, MISSING)),
                );
                self.missing.retain(|_, since| since.elapsed() < ASK_AGAIN);
                self.missing.insert(name, Instant::now());
            }
            Err(error) => {
                settled.extend(held.into_iter().map(|publish| unanswered(publish, &error)));
            }
        }
        VecDeque::new()
    }

    /// One of them may be gone.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Takes everything that waits.
    pub(super) fn take_held(&mut self) -> impl Iterator<Item = Publish> + use<> {
        std::mem::take(&mut self.held).into_values().flatten()
    }
}

fn unanswered(publish: Publish, error: &Error) -> Settled {
    match error.kind() {
        ErrorKind::Lost => lose(publish, &error.to_string()),
        kind => refuse(publish, kind, &error.to_string()),
    }
}

/// The broker does not take it, or not again.
pub(super) fn refuse(publish: Publish, kind: ErrorKind, why: &str) -> Settled {
    let Publish { message, answer, written } = publish;
    let error = match written {
        false => limits::about(&message, kind, why),
        true => {
            let why = format!("{why}; before that it may have been published");
            limits::about(&message, kind, &why).maybe_published(true)
        }
    };
    (answer, Err(PublishFailure::Refused(error)))
}

/// The link has ended.
pub(super) fn lose(publish: Publish, reason: &str) -> Settled {
    let Publish { answer, written, .. } = publish;
    (answer, Err(PublishFailure::Lost { written, reason: reason.to_owned() }))
}
