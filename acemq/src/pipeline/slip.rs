//! The routing slip of a message at a step: which way it goes on.

use std::{fmt, time::SystemTime};

use super::plan::Plan;
use crate::{
    consume::HandlerError,
    envelope::{Envelope, Route},
    error::{Error, ErrorKind},
    itinerary::{Itinerary, Stop},
};

/// A slip in the form that it came in, and goes on in.
#[derive(Debug, PartialEq)]
pub(super) enum Slip {
    /// The names of steps, which are routing keys on the pipeline's exchange.
    Declared(Route),
    /// Stops that say themselves where they are.
    Carried(Itinerary),
}

/// Where a message goes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Next<'a> {
    pub(super) exchange: &'a str,
    pub(super) routing_key: &'a str,
    name: &'a str,
}

impl Slip {
    /// The slip of a message. One that says where to go is followed, whatever was declared here.
    /// Without a slip, the message is at the step whose queue it came out of, `position`, of those
    /// that were declared.
    pub(super) fn of(
        envelope: &Envelope,
        plan: &Plan,
        position: Option<usize>,
    ) -> Result<Self, HandlerError> {
        if let Some(itinerary) = Itinerary::of(envelope).map_err(HandlerError::fatal)? {
            return Ok(Self::Carried(itinerary));
        }
        if envelope.has_unreadable_route() {
            return Err(unreadable("its declared route or the position on it is malformed"));
        }
        if let Some(route) = &envelope.route {
            let place = route.position.saturating_add(1);
            if route.steps.get(place).is_some_and(String::is_empty) {
                return Err(unreadable("the next step of its declared route has no name"));
            }
            return Ok(Self::Declared(route.clone()));
        }
        let Some(position) = position else {
            return Err(HandlerError::fatal(Error::new(
                ErrorKind::Decode,
                "read the routing slip: the message carries none, and this step joins a route that \
                 was declared elsewhere, so there is nowhere to send it next",
            )));
        };
        Ok(Self::Declared(Route {
            steps: plan.steps.clone(),
            position,
            // The same in every attempt.
            run_id: envelope.id().to_owned(),
        }))
    }

    /// Where the message goes after this step; `None` at the end of its route.
    pub(super) fn next<'a>(&'a self, plan: &'a Plan) -> Option<Next<'a>> {
        match self {
            Self::Declared(route) => {
                let step = route.steps.get(route.position.checked_add(1)?)?;
                Some(Next { exchange: &plan.name, routing_key: step, name: step })
            }
            Self::Carried(itinerary) => {
                let stop = itinerary.steps().get(1)?;
                let (exchange, routing_key) = (stop.exchange(), stop.routing_key());
                Some(Next { exchange, routing_key, name: stop.name() })
            }
        }
    }

    /// How often the message has been at this step before on its way. The same id at the same step
    /// is no duplicate on a route that leads there twice.
    pub(super) fn earlier_visits(&self) -> usize {
        match self {
            Self::Declared(route) => {
                let before = route.steps.get(..route.position).unwrap_or_default();
                let here = route.steps.get(route.position);
                before.iter().filter(|step| Some(*step) == here).count()
            }
            Self::Carried(itinerary) => {
                let here = |stop: &&Stop| itinerary.next().is_some_and(|at| at.is_same_place(stop));
                itinerary.done().iter().filter(here).count()
            }
        }
    }

    /// Writes the slip as it is after this step onto the envelope that goes on.
    pub(super) fn advance(self, envelope: &mut Envelope, now: SystemTime) {
        match self {
            Self::Declared(mut route) => {
                route.position = route.position.saturating_add(1);
                envelope.route = Some(route);
            }
            Self::Carried(itinerary) => {
                let header = itinerary.advance(now).to_header();
                envelope.headers.insert(Itinerary::HEADER.to_owned(), header.into());
            }
        }
    }
}

impl fmt::Display for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name, self.exchange) {
            ("", "") => write!(f, "the queue \"{}\"", self.routing_key),
            ("", exchange) => {
                write!(f, "the key \"{}\" of the exchange \"{exchange}\"", self.routing_key)
            }
            (name, _) => write!(f, "the step \"{name}\""),
        }
    }
}

fn unreadable(why: &str) -> HandlerError {
    HandlerError::fatal(Error::new(ErrorKind::Decode, format!("read the routing slip: {why}")))
}
