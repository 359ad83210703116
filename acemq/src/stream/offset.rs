//! Where in a stream to begin.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::envelope::HeaderValue;

/// Where in a stream a reader begins, see
/// [`StreamConsumerBuilder::from`](super::StreamConsumerBuilder::from).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamOffset {
    /// With the oldest message there is.
    First,
    /// With the newest chunk of messages, which is one or more: RabbitMQ stores what arrives
    /// together in a chunk.
    Last,
    /// With what is published from now on. The default.
    #[default]
    Next,
    /// With the message at this offset, counted from 0; at most `i64::MAX`. Where it was removed
    /// already, with the oldest there is, and the [gap](super::StreamGap) is reported. Where it is yet
    /// to come, it is waited for.
    Offset(u64),
    /// With what was published at that time, by the broker's clock, in whole seconds. The chunk that
    /// it is in is read from its beginning, so that a few older messages may come first. A time
    /// yet to come is as [`Next`](Self::Next), but without a place of its own: what is published while
    /// the reader is away before its first message is not read.
    Time(SystemTime),
}

impl StreamOffset {
    /// As the broker is told, or what is wrong with it.
    pub(super) fn argument(self) -> Result<HeaderValue, &'static str> {
        Ok(match self {
            Self::First => "first".into(),
            Self::Last => "last".into(),
            Self::Next => "next".into(),
            Self::Offset(offset) => i64::try_from(offset)
                .map_err(
                    |_| "the offset is larger than any: it has to fit a signed 64-bit integer",
                )?
                .into(),
            Self::Time(time) => {
                let since = time.duration_since(UNIX_EPOCH);
                let since = since.map_err(|_| "the time is before 1970")?;
                HeaderValue::Timestamp(since.as_secs())
            }
        })
    }

    /// The offset that is asked for, where one is.
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Self::Offset(offset) => Some(offset),
            Self::First | Self::Last | Self::Next | Self::Time(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_beginning_is_written_as_the_broker_reads_it() {
        let late = UNIX_EPOCH + Duration::from_millis(1_767_323_045_999);
        for (from, argument) in [
            (StreamOffset::First, HeaderValue::Text("first".to_owned())),
            (StreamOffset::Last, HeaderValue::Text("last".to_owned())),
            (StreamOffset::default(), HeaderValue::Text("next".to_owned())),
            (StreamOffset::Offset(0), HeaderValue::I64(0)),
            (StreamOffset::Offset(i64::MAX as u64), HeaderValue::I64(i64::MAX)),
            // Rounded down: what is missed does not come again.
            (StreamOffset::Time(late), HeaderValue::Timestamp(1_767_323_045)),
        ] {
            assert_eq!(from.argument(), Ok(argument));
        }
    }

    #[test]
    fn what_the_wire_cannot_say_is_refused() {
        assert!(StreamOffset::Offset(i64::MAX as u64 + 1).argument().is_err());
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert!(StreamOffset::Time(before).argument().is_err());
    }
}
