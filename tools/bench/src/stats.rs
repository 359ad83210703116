//! The median, and how far it can be trusted.

use serde::Serialize;

/// How sure the interval has to be, where there are readings enough for that: from six on.
const CONFIDENCE: f64 = 0.95;

/// A median with the interval that holds the true one.
///
/// The interval is between two of the readings (a sign test turned round), so nothing is assumed
/// about how they are distributed, and one wild reading moves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// How probable it is that the interval holds the true median.
    pub(crate) confidence: f64,
}

impl Estimate {
    /// `None` without readings.
    pub(crate) fn of(mut readings: Vec<f64>) -> Option<Self> {
        readings.sort_by(f64::total_cmp);
        let count = readings.len();
        let (outside, confidence) = interval(count)?;
        Some(Self {
            median: f64::midpoint(readings[(count - 1) / 2], readings[count / 2]),
            low: readings[outside],
            high: readings[count - 1 - outside],
            confidence,
        })
    }
}

/// How many of `count` sorted readings stay out of the interval at each end, and how sure the
/// interval is then.
///
/// A reading is below the true median as often as a coin shows heads. The true median lies below
/// the interval exactly when at most `outside` of the readings do, which is a binomial tail.
fn interval(count: usize) -> Option<(usize, f64)> {
    if count == 0 {
        return None;
    }
    let mut ways = 1.0;
    let mut tail = 0.0;
    let mut found = None;
    for outside in 0..count.div_ceil(2) {
        tail += ways * 0.5_f64.powf(count as f64);
        ways *= (count - outside) as f64 / (outside + 1) as f64;
        let confidence = 1.0 - 2.0 * tail;
        if found.is_some() && confidence < CONFIDENCE {
            break;
        }
        found = Some((outside, confidence.max(0.0)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(readings: &[f64]) -> Estimate {
        Estimate::of(readings.to_vec()).unwrap()
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(of(&[4.0, 1.0, 3.0, 2.0]).median, 2.5);
        assert_eq!(of(&[5.0, 1.0, 3.0]).median, 3.0);
    }

    #[test]
    fn no_readings_give_no_estimate() {
        assert_eq!(Estimate::of(Vec::new()), None);
    }

    #[test]
    fn few_readings_span_the_interval_and_say_how_sure_that_is() {
        let estimate = of(&[3.0, 1.0, 2.0]);
        assert_eq!((estimate.low, estimate.high), (1.0, 3.0));
        assert_eq!(estimate.confidence, 0.75);
        assert_eq!(of(&[7.0]).confidence, 0.0);
    }

    /// From published tables of the sign test's interval at 95 %.
    #[test]
    fn the_interval_is_the_tables() {
        for (count, outside, confidence) in
            [(6, 0, 0.9688), (9, 1, 0.9609), (15, 3, 0.9648), (20, 5, 0.9586), (25, 7, 0.9567)]
        {
            let (found, sure) = interval(count).unwrap();
            assert_eq!(found, outside, "{count} readings");
            assert!((sure - confidence).abs() < 1e-4, "{count} readings: {sure}");
        }
    }

    #[test]
    fn one_wild_reading_moves_neither_median_nor_interval_far() {
        let mut readings: Vec<f64> = (1..=15).map(f64::from).collect();
        let calm = of(&readings);
        readings[14] = 1e9;
        assert_eq!(of(&readings), calm);
    }
}
