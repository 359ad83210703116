//! Times as the tables hold them.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;

/// The longest span that is written into a table: longer ones would leave what the databases'
/// types can say.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A time in UTC, in the fixed width that sorts: `2026-09-26 00:00:00.000000`.
pub(crate) fn text(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.microsecond()
    )
}

/// A time from text in UTC, with or without a fraction, a `T` or a `Z`.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    use time::{PrimitiveDateTime, macros::format_description};

    let format = format_description!(
        "[year]-[month]-[day] [hour]:[minute]:[second][optional [.[subsecond]]]"
    );
    let text = text.trim_end_matches('Z').trim_end_matches("+00:00").replacen('T', " ", 1);
    Some(PrimitiveDateTime::parse(&text, format).ok()?.assume_utc().into())
}

/// The time that many microseconds after (or, negative, before) the epoch.
#[cfg(any(test, feature = "postgres"))]
pub(crate) fn from_micros(micros: i64) -> Option<SystemTime> {
    let distance = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    }
}

/// A span in whole microseconds.
pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(any(feature = "mysql", feature = "sqlite"))]
    #[test]
    fn text_round_trips_and_foreign_forms_are_read() {
        for micros in [0, 1, 1_790_380_800_000_000, 1_790_380_800_123_456] {
            let time = from_micros(micros).unwrap();
            assert_eq!(text(time).len(), 26);
            assert_eq!(parse(&text(time)), Some(time));
        }
        let midnight = from_micros(1_790_380_800_000_000);
        for foreign in [
            "2026-09-26 00:00:00.000000",
            "2026-09-26 00:00:00",
            "2026-09-26T00:00:00Z",
            "2026-09-26 00:00:00.000+00:00",
        ] {
            assert_eq!(parse(foreign), midnight, "{foreign}");
        }
        assert_eq!(parse("yesterday"), None);
    }

    #[test]
    fn a_span_without_end_is_cut_to_what_a_database_can_add() {
        assert_eq!(micros(Duration::from_millis(1)), 1_000);
        assert_eq!(micros(Duration::MAX), 3_153_600_000_000_000);
    }
}
