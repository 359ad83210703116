//! What a broker allows, by its version.

pub(super) use crate::transport::limits::{about, check, check_name, check_table};
use crate::transport::{Limits, Streams};

/// RabbitMQ's default `max_message_size` before 4.0.
const BODY_MAX_BEFORE_4: usize = 128 * 1024 * 1024;
/// The same since.
const BODY_MAX: usize = 16 * 1024 * 1024;

/// The limits of a broker of this version, given the negotiated frame size (0: none) and what
/// body the caller wants to publish at most, if not the version's default.
pub(super) fn limits(version: Option<&str>, frame_max: u32, body_max: Option<usize>) -> Limits {
    let version = version.and_then(numbers);
    Limits {
        frame_max: if frame_max == 0 { usize::MAX } else { frame_max as usize },
        body_max: body_max.unwrap_or(match version {
            Some((0..4, _)) => BODY_MAX_BEFORE_4,
            // A peer that does not say is taken for a new one: the smaller limit is the safe one.
            Some(_) | None => BODY_MAX,
        }),
        streams: match version {
            Some((0..3, _) | (3, 0..9)) => Streams::Unknown,
            // A peer that does not say refuses a stream by itself. A filter it would ignore.
            Some((3, 9..13)) | None => Streams::Known,
            Some(_) => Streams::Filtered,
        },
    }
}

/// A version's first two numbers.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_tells_the_largest_body_and_what_is_known_of_streams() {
        for (version, body_max, streams) in [
            (Some("3.8.35"), BODY_MAX_BEFORE_4, Streams::Unknown),
            (Some("3.9.0"), BODY_MAX_BEFORE_4, Streams::Known),
            (Some("3.10.8"), BODY_MAX_BEFORE_4, Streams::Known),
            (Some("3.13.0-rc.1"), BODY_MAX_BEFORE_4, Streams::Filtered),
            (Some("4.0.5"), BODY_MAX, Streams::Filtered),
            (Some("4"), BODY_MAX, Streams::Filtered),
            (Some("nonsense"), BODY_MAX, Streams::Known),
            (None, BODY_MAX, Streams::Known),
        ] {
            let limits = limits(version, 0, None);
            assert_eq!((limits.body_max, limits.streams), (body_max, streams), "{version:?}");
        }
    }
}
