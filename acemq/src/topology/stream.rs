//! Declaring streams.

use std::time::Duration;

use super::{Queue, Topology};
use crate::{
    connection::Client,
    envelope::{HeaderValue, Headers},
    error::Result,
    transport::QueueSpec,
};

const MAX_AGE: &str = "x-max-age";
const MAX_LENGTH_BYTES: &str = "x-max-length-bytes";
const SEGMENT_BYTES: &str = "x-stream-max-segment-size-bytes";

/// A stream to declare: a log that keeps its messages whoever reads them, and any number of readers
/// at any place of it. See [`Client::stream_consumer`].
///
/// RabbitMQ has streams from 3.9 on; the memory transport has none. One is bound and published to as
/// a queue is. It removes its oldest messages once it is larger than
/// [`max_length_bytes`](Self::max_length_bytes) or they are older than [`max_age`](Self::max_age), a
/// whole segment of its log at a time. Declaring one with neither is logged as a warning: it grows
/// until the broker's disk is full.
///
/// ```
/// # async fn example(mq: &acemq::Client) -> acemq::Result<()> {
/// use std::time::Duration;
/// use acemq::Stream;
///
/// let week = Duration::from_secs(7 * 24 * 60 * 60);
/// mq.declare_stream(&Stream::new("orders.log").max_age(week).max_length_bytes(20_000_000_000)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a stream is declared by `Client::declare_stream`"]
pub struct Stream(QueueSpec);

impl Stream {
    /// A stream that keeps everything.
    pub fn new(name: impl Into<String>) -> Self {
        let stream = Self(QueueSpec {
            name: name.into(),
            durable: true,
            exclusive: false,
            auto_delete: false,
            arguments: Headers::new(),
        });
        stream.argument("x-queue-type", "stream")
    }

    /// How old a segment of messages becomes before it may be removed, in whole seconds, at least
    /// one: what is beyond a whole second counts as one more.
    pub fn max_age(self, age: Duration) -> Self {
        self.argument(MAX_AGE, age_text(age))
    }

    /// How many bytes the stream may have before its oldest segment is removed.
    pub fn max_length_bytes(self, bytes: u64) -> Self {
        self.argument(MAX_LENGTH_BYTES, whole(bytes))
    }

    /// How many bytes a segment of the log has. Unless set, the broker decides (500 MB), and the
    /// argument is not sent.
    pub fn segment_bytes(self, bytes: u64) -> Self {
        self.argument(SEGMENT_BYTES, whole(bytes))
    }

    /// An argument of the broker's, such as `x-queue-leader-locator`.
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<HeaderValue>) -> Self {
        self.0.arguments.insert(name.into(), value.into());
        self
    }
}

impl From<Stream> for Queue {
    fn from(stream: Stream) -> Self {
        Self { spec: stream.0, dead_letters: false, retries: None }
    }
}

impl From<Stream> for Topology {
    fn from(stream: Stream) -> Self {
        Self::new().stream(stream)
    }
}

impl Topology {
    /// Adds a stream.
    pub fn stream(self, stream: Stream) -> Self {
        self.queue(stream.into())
    }
}

impl Client {
    /// Declares one stream.
    ///
    /// # Errors
    /// As [`declare`](Self::declare), and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported)
    /// for a broker that has no streams: the memory transport, and RabbitMQ before 3.9.
    pub async fn declare_stream(&self, stream: &Stream) -> Result<()> {
        self.declare_queue(&stream.clone().into()).await.map(drop)
    }
}

/// Whether what is declared is a stream.
pub(super) fn is_stream(spec: &QueueSpec) -> bool {
    spec.arguments.get("x-queue-type").and_then(HeaderValue::as_str) == Some("stream")
}

/// A broker does not tell what a stream was declared with, so this is said at the declaration.
pub(super) fn warn_about_retention(spec: &QueueSpec) {
    let limits = [MAX_AGE, MAX_LENGTH_BYTES];
    if is_stream(spec) && limits.iter().all(|limit| !spec.arguments.contains_key(*limit)) {
        tracing::warn!(
            stream = %spec.name,
            "this stream has neither a largest age nor a largest size: unless a policy sets one, it \
             grows until the broker's disk is full; declare it with `max_age` or `max_length_bytes`"
        );
    }
}

/// An age as RabbitMQ reads it: the largest unit that says it in whole numbers.
fn age_text(age: Duration) -> String {
    let seconds = age.as_secs().saturating_add(u64::from(age.subsec_nanos() > 0)).max(1);
    [(86_400, 'D'), (3_600, 'h'), (60, 'm')]
        .into_iter()
        .find(|(unit, _)| seconds.is_multiple_of(*unit))
        .map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}

fn whole(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use testkit::logs;

    use super::*;

    fn arguments(stream: &Stream) -> Vec<(&str, String)> {
        stream.0.arguments.iter().map(|(name, value)| (&**name, format!("{value:?}"))).collect()
    }

    #[test]
    fn an_age_is_written_in_the_largest_unit_that_is_exact() {
        for (millis, text) in [
            (0, "1s"),
            (1, "1s"),
            (45_000, "45s"),
            (45_001, "46s"),
            (30 * 60_000, "30m"),
            (90 * 60_000, "90m"),
            (12 * 3_600_000, "12h"),
            (7 * 86_400_000, "7D"),
        ] {
            assert_eq!(age_text(Duration::from_millis(millis)), text);
        }
        assert_eq!(age_text(Duration::MAX), format!("{}s", u64::MAX));
    }

    #[test]
    fn only_what_was_asked_for_is_an_argument() {
        let stream = "Text(\"stream\")".to_owned();
        assert_eq!(arguments(&Stream::new("s")), [("x-queue-type", stream.clone())]);
        let all = Stream::new("s")
            .max_age(Duration::from_secs(60))
            .max_length_bytes(20_000)
            .segment_bytes(500);
        assert_eq!(
            arguments(&all),
            [
                ("x-max-age", "Text(\"1m\")".to_owned()),
                ("x-max-length-bytes", "I64(20000)".to_owned()),
                ("x-queue-type", stream),
                ("x-stream-max-segment-size-bytes", "I64(500)".to_owned()),
            ]
        );
    }

    #[test]
    fn a_stream_that_keeps_everything_is_warned_about() {
        let (log, _guard) = logs::of_this_thread();
        for stream in [Stream::new("s-1").max_length_bytes(1), Stream::new("s-2")] {
            warn_about_retention(&stream.0);
        }
        assert!(log.lines_with(&["WARN", "s-1"]).is_empty());
        assert_eq!(log.lines_with(&["WARN", "s-2", "max_age"]).len(), 1);
    }
}
