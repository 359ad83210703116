//! A message as it stands in a queue.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::{
    codec::{Decode, Json, is_textual},
    envelope::{self, Envelope, HeaderValue, Headers, ReadContext},
    transport::Delivery,
};

/// A message that stands in a queue, from a [`Peek`](super::Peek), and as the
/// [filter](super::ReplayBuilder::filter) of a replay sees it.
#[derive(Clone)]
pub struct QueuedMessage {
    queue: Arc<str>,
    position: u64,
    envelope: Envelope,
    delivery: Delivery,
}

/// A body for people to read, from [`QueuedMessage::view`].
///
/// Text is as it came, control characters too: escape it for a terminal or a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyView<'a> {
    /// Valid JSON, where the content type says JSON or nothing.
    Json(&'a str),
    /// Text, where the content type says text of some kind, such as XML or YAML, or JSON that is
    /// not valid.
    Text(&'a str),
    /// Anything else.
    Bytes(&'a [u8]),
}

impl QueuedMessage {
    pub(super) fn new(queue: Arc<str>, position: u64, delivery: Delivery) -> Self {
        let context = ReadContext {
            message_id: delivery.properties.message_id.as_deref(),
            reply_to: delivery.properties.reply_to.as_deref(),
            routing_key: &delivery.routing_key,
        };
        let envelope = envelope::read(&delivery.properties.headers, context);
        Self { queue, position, envelope, delivery }
    }

    pub(super) fn into_delivery(self) -> Delivery {
        self.delivery
    }

    /// The queue it stands in.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Its place among the messages that were looked at, counted from 1.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What it says about itself.
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// Its message id. A message that carries none is given another at each look.
    #[must_use]
    pub fn id(&self) -> &str {
        self.envelope.id()
    }

    /// Why it is here: what was written on it when it was set aside, or else the broker's own word
    /// for why it dead-lettered it (`rejected`, `expired`, `maxlen`, `delivery_limit`).
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.envelope.error().or_else(|| last_death(&self.delivery.properties.headers))
    }

    /// The exchange it was last published to; empty for the default exchange.
    #[must_use]
    pub fn exchange(&self) -> &str {
        &self.delivery.exchange
    }

    /// The key it was last published under; for what was set aside, the queue's own name.
    #[must_use]
    pub fn routing_key(&self) -> &str {
        &self.delivery.routing_key
    }

    /// Whether the broker has delivered it before, to a consumer or for another look.
    #[must_use]
    pub fn redelivered(&self) -> bool {
        self.delivery.redelivered
    }

    /// What its sender says the body is.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        // Some clients write an empty one for none.
        self.delivery
            .properties
            .content_type
            .as_deref()
            .filter(|content_type| !content_type.is_empty())
    }

    /// The body as it is.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.delivery.body
    }

    /// The body as what its content type says, where it is that, or else as bytes. What was
    /// encrypted, compressed or put into a claim-check store is bytes.
    #[must_use]
    pub fn view(&self) -> BodyView<'_> {
        let content_type = self.content_type();
        let is_json = Decode::<IgnoredAny>::accepts(&Json, content_type);
        let text = match std::str::from_utf8(self.body()) {
            Ok(text) if is_json || content_type.is_some_and(is_textual) => text,
            _ => return BodyView::Bytes(self.body()),
        };
        if is_json && serde_json::from_str::<IgnoredAny>(text).is_ok() {
            BodyView::Json(text)
        } else {
            BodyView::Text(text)
        }
    }
}

/// Without the body, which may be large and nobody's business.
impl fmt::Debug for QueuedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedMessage")
            .field("queue", &self.queue)
            .field("position", &self.position)
            .field("envelope", &self.envelope)
            .field("reason", &self.reason())
            .finish_non_exhaustive()
    }
}

/// The broker's word for why it dead-lettered a message last.
fn last_death(headers: &Headers) -> Option<&str> {
    let HeaderValue::List(deaths) = headers.get("x-death")? else { return None };
    let HeaderValue::Table(death) = deaths.first()? else { return None };
    death.get("reason")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Properties;

    fn message(content_type: Option<&str>, body: &'static [u8]) -> QueuedMessage {
        let delivery = Delivery {
            tag: 1,
            redelivered: false,
            exchange: String::new(),
            routing_key: "q.dlq".to_owned(),
            properties: Properties {
                content_type: content_type.map(str::to_owned),
                ..Properties::default()
            },
            body: Bytes::from_static(body),
        };
        QueuedMessage::new("q.dlq".into(), 1, delivery)
    }

    #[test]
    fn a_body_is_shown_as_what_it_says_it_is_where_it_is_that() {
        let cases: [(Option<&str>, &'static [u8], BodyView<'_>); 14] = [
            (Some("application/json"), b"{\"a\":1}", BodyView::Json("{\"a\":1}")),
            (Some("application/vnd.x+json; charset=utf-8"), b"[]", BodyView::Json("[]")),
            (None, b"\"o-1\"", BodyView::Json("\"o-1\"")),
            (Some(""), b"1", BodyView::Json("1")),
            (None, b"not json", BodyView::Text("not json")),
            (Some("application/json"), b"{", BodyView::Text("{")),
            (Some("application/json"), b"\xff", BodyView::Bytes(b"\xff")),
            (Some("text/plain"), "grüße".as_bytes(), BodyView::Text("grüße")),
            (Some("text/plain"), b"\xff", BodyView::Bytes(b"\xff")),
            (Some("application/xml"), b"<a/>", BodyView::Text("<a/>")),
            (Some("application/yaml"), b"a: 1", BodyView::Text("a: 1")),
            (Some("application/octet-stream"), b"abc", BodyView::Bytes(b"abc")),
            (Some("application/vnd.acemq.encrypted"), b"abc", BodyView::Bytes(b"abc")),
            (Some("application/json"), b"", BodyView::Text("")),
        ];
        for (content_type, body, expected) in cases {
            assert_eq!(message(content_type, body).view(), expected, "{content_type:?} {body:?}");
        }
    }

    #[test]
    fn a_body_nested_beyond_reason_is_text() {
        let deep: &'static [u8] = vec![b'['; 100_000].leak();
        assert!(matches!(message(None, deep).view(), BodyView::Text(_)));
    }
}
