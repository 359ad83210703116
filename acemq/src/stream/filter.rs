//! Reading a part of a stream.

use crate::envelope::{HeaderValue, Headers};

/// The header of a message whose text a filter looks at, see
/// [`StreamConsumerBuilder::filter`](super::StreamConsumerBuilder::filter): publish with
/// `.header(STREAM_FILTER_VALUE, "eu")`.
pub const STREAM_FILTER_VALUE: &str = "x-stream-filter-value";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) values: Vec<String>,
    pub(super) unfiltered: bool,
}

impl Filter {
    /// As the broker is told.
    pub(super) fn arguments(&self) -> Headers {
        let values = self.values.iter().map(|value| HeaderValue::from(value.as_str()));
        Headers::from([
            ("x-stream-filter".to_owned(), HeaderValue::List(values.collect())),
            ("x-stream-match-unfiltered".to_owned(), self.unfiltered.into()),
        ])
    }

    /// Whether a message is asked for. The broker leaves out whole chunks in which nothing is; what
    /// it sends may still be something else.
    pub(super) fn matches(&self, headers: &Headers) -> bool {
        match headers.get(STREAM_FILTER_VALUE) {
            None => self.unfiltered,
            Some(value) => {
                value.as_str().is_some_and(|text| self.values.iter().any(|value| value == text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_matches() {
        let headers = |value: HeaderValue| Headers::from([(STREAM_FILTER_VALUE.to_owned(), value)]);
        let mut filter =
            Filter { values: vec!["eu".to_owned(), "us".to_owned()], unfiltered: false };
        assert!(filter.matches(&headers("eu".into())) && filter.matches(&headers("us".into())));
        assert!(!filter.matches(&headers("EU".into())) && !filter.matches(&headers(1.into())));
        assert!(!filter.matches(&Headers::new()));
        filter.unfiltered = true;
        assert!(filter.matches(&Headers::new()) && !filter.matches(&headers("ap".into())));
    }
}
