use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn seconds(waits: &[Duration]) -> Vec<u64> {
    waits.iter().map(Duration::as_secs).collect()
}

fn rung_names(policy: &RetryPolicy) -> Vec<String> {
    policy.rungs("orders.new").into_iter().map(|rung| rung.name).collect()
}

#[test]
fn the_schedule_and_the_rungs_are_the_familys() {
    let cases: [(RetryPolicy, &[u64], &[&str]); 6] = [
        (RetryPolicy::exponential(5, SECOND, 24 * HOUR), &[1, 2, 4, 8], &[]),
        (
            RetryPolicy::exponential(6, 10 * SECOND, MINUTE),
            &[10, 20, 40, 60, 60],
            &["orders.new.retry.40s", "orders.new.retry.1m"],
        ),
        (
            RetryPolicy::exponential(6, 10 * SECOND, 5 * MINUTE),
            &[10, 20, 40, 80, 160],
            &["orders.new.retry.40s", "orders.new.retry.80s", "orders.new.retry.160s"],
        ),
        (RetryPolicy::fixed(4, 30 * SECOND), &[30, 30, 30], &["orders.new.retry.30s"]),
        (RetryPolicy::none(), &[], &[]),
        (
            RetryPolicy::exponential(4, MINUTE, HOUR).multiplier(3.0),
            &[60, 180, 540],
            &["orders.new.retry.1m", "orders.new.retry.3m", "orders.new.retry.9m"],
        ),
    ];
    for (policy, schedule, rungs) in cases {
        assert_eq!(seconds(&policy.schedule()), schedule, "{policy:?}");
        assert_eq!(rung_names(&policy), rungs, "{policy:?}");
        let total: Duration = policy.schedule().iter().sum();
        assert_eq!(policy.total_wait(), total, "{policy:?}");
        policy.check().unwrap();
    }
}

#[test]
fn a_rung_is_named_by_the_largest_unit_that_says_its_wait() {
    let cases = [
        (500, "500ms"),
        (1_000, "1s"),
        (1_500, "1500ms"),
        (30_000, "30s"),
        (60_000, "1m"),
        (90_000, "90s"),
        (300_000, "5m"),
        (3_600_000, "1h"),
        (5_400_000, "90m"),
        (7_200_000, "2h"),
        (86_400_000, "24h"),
    ];
    for (millis, unit) in cases {
        let policy = RetryPolicy::fixed(2, Duration::from_millis(millis))
            .wait_in_broker_from(Duration::from_millis(1));
        assert_eq!(rung_names(&policy), [format!("orders.new.retry.{unit}")]);
        assert_eq!(policy.rungs("q")[0].wait, Duration::from_millis(millis));
    }
}

#[test]
fn a_wait_is_spent_in_the_broker_from_the_threshold_on() {
    let in_broker = |threshold, wait| {
        RetryPolicy::fixed(2, Duration::from_millis(wait))
            .wait_in_broker_from(Duration::from_millis(threshold))
            .waits_in_broker(Duration::from_millis(wait))
    };
    for wait in [0, 1, 29_999] {
        assert!(!in_broker(30_000, wait), "{wait}");
    }
    for wait in [30_000, 30_001, 300_000] {
        assert!(in_broker(30_000, wait), "{wait}");
    }
    assert!(!in_broker(60_000, 59_999) && in_broker(60_000, 60_000));
    for wait in [0, 1, 30_000, 300_000] {
        assert!(!in_broker(0, wait), "{wait}");
    }
}

#[test]
fn it_tries_until_the_attempts_or_the_age_run_out() {
    let policy = RetryPolicy::exponential(5, SECOND, 24 * HOUR);
    for age in [Duration::ZERO, YEAR] {
        assert!(policy.retries(1, age) && policy.retries(4, age) && !policy.retries(5, age));
    }
    let policy = policy.give_up_after(2 * MINUTE);
    let limit = Duration::from_millis(120_000);
    for attempt in [1, 4] {
        assert!(policy.retries(attempt, Duration::ZERO));
        assert!(policy.retries(attempt, limit - Duration::from_millis(1)));
        assert!(!policy.retries(attempt, limit));
    }
    assert!(!policy.retries(5, Duration::ZERO) && !policy.retries(u32::MAX, Duration::ZERO));
    assert!(!RetryPolicy::none().retries(1, Duration::ZERO));
}

#[test]
fn jitter_moves_waits_in_the_consumer_by_a_fifth_and_no_rung() {
    let policy = RetryPolicy::exponential(6, 10 * SECOND, 5 * MINUTE);
    let waits: Vec<Duration> = (0..1_000)
        .map(|_| match policy.wait("q", 1) {
            Wait::InConsumer(wait) => wait,
            Wait::InBroker(rung) => panic!("in the broker: {rung:?}"),
        })
        .collect();
    let (shortest, longest) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
    assert!(*shortest >= 8 * SECOND && *longest <= 12 * SECOND);
    assert!(*shortest < 9 * SECOND && *longest > 11 * SECOND, "it does not vary");
    for _ in 0..100 {
        assert_eq!(policy.wait("q", 3), Wait::InBroker(rung("q", 40 * SECOND)));
    }
    let short = RetryPolicy::fixed(2, Duration::from_millis(1)).jitter(1.0);
    for _ in 0..100 {
        let Wait::InConsumer(wait) = short.wait("q", 1) else { panic!("in the broker") };
        assert!(wait >= Duration::from_millis(1));
    }
    let fixed = RetryPolicy::fixed(2, SECOND);
    assert_eq!(fixed.wait("q", 1), Wait::InConsumer(SECOND));
}

#[test]
fn attempts_without_end_cost_no_time() {
    let forever = [
        RetryPolicy::fixed(u32::MAX, MINUTE),
        RetryPolicy::exponential(u32::MAX, SECOND, HOUR),
        RetryPolicy::exponential(u32::MAX, MINUTE, HOUR).multiplier(1.0),
        RetryPolicy::exponential(u32::MAX, Duration::ZERO, HOUR),
    ];
    for policy in forever {
        assert!(policy.rungs("q").len() < 10);
        let _ = policy.total_wait();
        policy.check().unwrap();
        policy.wait("q", u32::MAX);
    }
}

#[test]
fn a_wait_that_fits_no_queue_is_refused() {
    let day = 24 * HOUR;
    assert!(RetryPolicy::fixed(2, 49 * day).check().is_ok());
    assert!(RetryPolicy::fixed(2, 50 * day).check().is_err());
    assert!(RetryPolicy::exponential(40, SECOND, 49 * day).check().is_ok());
    assert!(RetryPolicy::exponential(40, SECOND, 60 * day).check().is_err());
    assert!(RetryPolicy::fixed(1, 60 * day).check().is_ok());
    assert!(RetryPolicy::fixed(2, SECOND).multiplier(f64::NAN).check().is_err());
}
