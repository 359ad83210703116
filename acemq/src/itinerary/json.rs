//! The itinerary's JSON: the family's fields in the family's order, and nothing that is empty.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Itinerary, Stop, unreadable};
use crate::error::Result;

#[derive(Serialize)]
struct Written<'a> {
    steps: Vec<WrittenStop<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    done: Vec<WrittenStop<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenStop<'a> {
    exchange: &'a str,
    routing_key: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    completed_at: &'a str,
}

impl<'a> WrittenStop<'a> {
    fn of(stop: &'a Stop) -> Self {
        Self {
            exchange: &stop.exchange,
            routing_key: &stop.routing_key,
            name: &stop.name,
            completed_at: &stop.completed_at,
        }
    }
}

pub(super) fn write(itinerary: &Itinerary) -> String {
    let written = Written {
        steps: itinerary.steps.iter().map(WrittenStop::of).collect(),
        done: itinerary.done.iter().map(WrittenStop::of).collect(),
    };
    // Lists of texts have a form in JSON.
    serde_json::to_string(&written).unwrap_or_default()
}

pub(super) fn read(text: &str) -> Result<Itinerary> {
    let slip: Value = serde_json::from_str(text)
        .map_err(|error| unreadable(&format!("it is not JSON: {error}")))?;
    let Value::Object(mut slip) = slip else { return Err(unreadable("it is not a JSON object")) };
    // A slip that does not say where the message goes is not one whose message has arrived.
    let steps = slip.remove("steps").ok_or_else(|| unreadable("it has no `steps`"))?;
    let done = slip.remove("done").unwrap_or_default();
    Ok(Itinerary { steps: stops("steps", steps)?, done: stops("done", done)? })
}

fn stops(field: &str, value: Value) -> Result<Vec<Stop>> {
    let list = match value {
        Value::Array(list) => list,
        // An empty list of Go's.
        Value::Null => return Ok(Vec::new()),
        _ => return Err(unreadable(&format!("its `{field}` are no list"))),
    };
    let stop = |value| match value {
        Value::Object(fields) => stop(fields),
        _ => Err(unreadable(&format!("one of its `{field}` is not an object"))),
    };
    list.into_iter().map(stop).collect()
}

fn stop(mut fields: Map<String, Value>) -> Result<Stop> {
    let mut text = |field: &str| match fields.remove(field) {
        Some(Value::String(text)) => Ok(text),
        Some(Value::Null) | None => Ok(String::new()),
        Some(_) => Err(unreadable(&format!("the `{field}` of a stop is not text"))),
    };
    Ok(Stop {
        exchange: text("exchange")?,
        routing_key: text("routingKey")?,
        name: text("name")?,
        completed_at: text("completedAt")?,
    })
}
