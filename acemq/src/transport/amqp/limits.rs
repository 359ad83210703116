//! What a broker allows, by its version.

use crate::transport::Limits;
pub(super) use crate::transport::limits::{about, check, check_name, check_table};

/// RabbitMQ's default `max_message_size` before 4.0.
const BODY_MAX_BEFORE_4: usize = 128 * 1024 * 1024;
/// The same since.
const BODY_MAX: usize = 16 * 1024 * 1024;

/// The limits of a broker of this version, given the negotiated frame size (0: none) and what
/// body the caller wants to publish at most, if not the version's default.
pub(super) fn limits(version: Option<&str>, frame_max: u32, body_max: Option<usize>) -> Limits {
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    Limits {
        frame_max: if frame_max == 0 { usize::MAX } else { frame_max as usize },
        body_max: body_max.unwrap_or(match major {
            Some(0..4) => BODY_MAX_BEFORE_4,
            // A peer that does not say is taken for a new one: the smaller limit is the safe one.
            Some(_) | None => BODY_MAX,
        }),
    }
}
