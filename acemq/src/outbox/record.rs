//! One message in the outbox, in its final form.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;

use super::json;
use crate::{
    envelope::{self, Envelope, Headers},
    error::{Error, ErrorKind, Result},
    transport::{Outgoing, Properties},
};

/// The longest id in bytes; the column is that wide.
const MAX_ID: usize = 64;
/// The longest exchange name, routing key and content type in bytes, on the wire and in the table.
const MAX_SHORT: usize = 255;

/// A message that waits in an outbox: encoded, addressed, its headers fixed.
///
/// A publisher makes it ([`Publisher::record`](crate::Publisher::record)), or
/// [`OutboxRecord::new`] does from ready bytes, with no connection. It offers only what the
/// table's row can hold: no priority, expiration or reply-to. Headers are JSON there, so an integer
/// or floating point header of the application's comes out 64 bits wide, whatever its width was.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRecord {
    id: String,
    exchange: String,
    routing_key: String,
    content_type: String,
    headers: Headers,
    body: Bytes,
    created_at: SystemTime,
}

/// A row of the outbox table, for [`OutboxRecord::from_stored`].
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the columns of the family's table")]
pub struct StoredRecord {
    /// `id`: the message id.
    pub id: String,
    /// `exchange_name`.
    pub exchange_name: String,
    /// `routing_key`.
    pub routing_key: String,
    /// `body`, decoded where `body_encoding` says base64.
    pub body: Vec<u8>,
    /// `content_type`.
    pub content_type: String,
    /// `headers`: a JSON object.
    pub headers: String,
    /// `created_at`.
    pub created_at: SystemTime,
}

impl OutboxRecord {
    /// Makes a record from ready bytes. The envelope should carry an origin and the time it was
    /// first seen; [`Publisher::record`](crate::Publisher::record) sets both.
    ///
    /// ```
    /// use acemq::{Envelope, OutboxRecord};
    ///
    /// let envelope = Envelope::new("order.placed");
    /// let record =
    ///     OutboxRecord::new("orders", "order.placed", "application/json", "{}", &envelope)?;
    /// assert_eq!(record.id(), envelope.id());
    /// # Ok::<(), acemq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for an id over 64 bytes or a name over 255;
    /// [`ErrorKind::Encode`] for an empty id, U+0000 in a name, a reply address, or a header that JSON cannot say
    /// (bytes, timestamps, decimals, numbers that are not finite), naming it.
    pub fn new(
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
        content_type: impl Into<String>,
        body: impl Into<Bytes>,
        envelope: &Envelope,
    ) -> Result<Self> {
        let record = Self {
            id: envelope.id().to_owned(),
            exchange: exchange.into(),
            routing_key: routing_key.into(),
            content_type: content_type.into(),
            headers: envelope::write(envelope),
            body: body.into(),
            created_at: next_created_at(),
        };
        if record.id.is_empty() {
            return Err(Error::new(
                ErrorKind::Encode,
                "make an outbox record: the message id is empty; leave it unset or give one",
            ));
        }
        if envelope.reply_to().is_some() {
            return Err(Error::new(
                ErrorKind::Encode,
                format!(
                    "make outbox record {}: the table has no reply address; publish requests \
                     directly",
                    record.id
                ),
            ));
        }
        let limits = [
            ("message id", &record.id, MAX_ID),
            ("exchange", &record.exchange, MAX_SHORT),
            ("routing key", &record.routing_key, MAX_SHORT),
            ("content type", &record.content_type, MAX_SHORT),
        ];
        for (what, value, limit) in limits {
            if value.len() > limit {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    format!(
                        "make outbox record {}: the {what} has {} bytes, and at most {limit} fit",
                        record.id,
                        value.len()
                    ),
                )
                .with_message_id(&record.id));
            }
            if value.contains('\0') {
                return Err(Error::new(
                    ErrorKind::Encode,
                    format!(
                        "make outbox record {:?}: the {what} holds U+0000, which no text column can",
                        record.id
                    ),
                ));
            }
        }
        json::check(&record.headers).map_err(|error| error.with_message_id(&record.id))?;
        Ok(record)
    }

    /// Reads a record back from the columns of the family's table, whoever wrote the row.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] where the headers are not a JSON object.
    pub fn from_stored(stored: StoredRecord) -> Result<Self> {
        let headers = json::parse(&stored.headers).map_err(|error| {
            Error::new(
                ErrorKind::Decode,
                format!("read the headers of outbox record {}: {error}", stored.id),
            )
            .with_message_id(&stored.id)
        })?;
        Ok(Self {
            id: stored.id,
            exchange: stored.exchange_name,
            routing_key: stored.routing_key,
            content_type: stored.content_type,
            headers,
            body: stored.body.into(),
            created_at: stored.created_at,
        })
    }

    /// The row's id, which is the message id and `x-acemq-id`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where it goes; empty for the default exchange.
    #[must_use]
    pub fn exchange(&self) -> &str {
        &self.exchange
    }

    /// Where it goes.
    #[must_use]
    pub fn routing_key(&self) -> &str {
        &self.routing_key
    }

    /// What the codec says the bytes are.
    #[must_use]
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// The bytes, exactly as they go out.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// All headers, the library's and the application's.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The headers as the table holds them: a JSON object.
    #[must_use]
    pub fn headers_json(&self) -> String {
        json::render(&self.headers)
    }

    /// When the record was made: at least a microsecond after the process's last one, so that the
    /// records of one transaction keep their order.
    #[must_use]
    pub fn created_at(&self) -> SystemTime {
        self.created_at
    }

    /// With that header in place of one of that name.
    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.into());
        self
    }

    /// The message as it goes to the broker: the same as one published directly.
    pub(crate) fn into_outgoing(self) -> Outgoing {
        Outgoing {
            exchange: self.exchange,
            routing_key: self.routing_key,
            mandatory: true,
            properties: Properties {
                content_type: Some(self.content_type),
                delivery_mode: Some(Properties::PERSISTENT),
                message_id: Some(self.id),
                headers: self.headers,
                ..Properties::default()
            },
            body: self.body,
        }
    }
}

/// Now, in whole microseconds (as databases keep them), and later than every earlier answer.
fn next_created_at() -> SystemTime {
    // The order of records is the process's, not one object's: two publishers may write into one
    // transaction. This is the one value that the whole process shares.
    static LAST: AtomicI64 = AtomicI64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX - 1));
    let previous = LAST
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(now.max(last + 1)))
        .unwrap_or_default();
    let micros = now.max(previous + 1);
    UNIX_EPOCH + Duration::from_micros(micros.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_made_side_by_side_have_times_of_their_own() {
        let times: Vec<SystemTime> = (0..1_000).map(|_| next_created_at()).collect();
        assert!(
            times.windows(2).all(|pair| {
                pair[1].duration_since(pair[0]).unwrap() >= Duration::from_micros(1)
            })
        );
    }

    #[test]
    fn an_id_the_column_cannot_hold_is_refused_with_both_lengths() {
        let envelope = Envelope { id: "i".repeat(65), ..Envelope::new("t") };
        let error = OutboxRecord::new("x", "k", "text/plain", "", &envelope).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.to_string().contains("65") && error.to_string().contains("64"), "{error}");
    }
}
