//! What is done to the workers and servers while they work.

use std::{ops::Range, time::Duration};

use anyhow::Result;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    diary::Diary,
    fleet::Fleet,
    ledger::{self, Deed, Line, Moment},
    role::Role,
    scenario::Scenario,
    servers::{Restarts, Server, Servers},
};

/// The shortest and the longest time that a server is left to work, in milliseconds. Not less:
/// RabbitMQ 3.10 writes a new quorum queue down half a second and more after it has said that the
/// queue is there, and a kill before that takes the queue away for good.
const SERVER_WORKS: Range<u64> = 1_500..3_500;
/// And how long it is away.
const SERVER_IS_AWAY: Range<u64> = 0..500;
/// How long to wait for the middle of a batch.
const LONGEST_AIM: Duration = Duration::from_secs(2);
const A_MOMENT_AGO: Duration = Duration::from_millis(3);

/// How much longer than asked it may take until everything was tried.
const OVERTIME: Duration = Duration::from_secs(60);
/// How many victims are killed at once, at most.
const AT_ONCE: usize = 2;
/// How often the driver says how it goes.
const PROGRESS: Duration = Duration::from_secs(5);

/// What was done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// How often the broker was away.
    pub(crate) broker: u32,
    pub(crate) database: u32,
    /// What was to be done and was not, however long it was tried.
    pub(crate) untried: Vec<String>,
}

/// For how long things are done.
#[derive(Clone, Copy)]
struct Time {
    /// At least until then.
    until: Instant,
    /// And until everything has been tried, but no longer than this.
    at_last: Instant,
}

impl Time {
    fn goes_on(self, is_tried: bool) -> bool {
        Instant::now() < if is_tried { self.until } else { self.at_last }
    }
}

/// Does what the scenario says for that long, and until all of it was tried.
///
/// # Errors
/// Where a worker ended by itself.
pub(crate) async fn chaos(
    scenario: Scenario,
    fleet: &mut Fleet<'_>,
    servers: &mut Servers,
    diary: &Diary,
    random: &mut fastrand::Rng,
    mean_pause: Duration,
    length: Duration,
) -> Result<Done> {
    let until = Instant::now() + length;
    let time = Time { until, at_last: until + OVERTIME };
    let (broker, database) = (random.fork(), random.fork());
    let (untried, broker, database) = tokio::try_join!(
        kill(scenario.victims(), fleet, random, mean_pause, time),
        take_away(scenario.restarts_broker(), &mut servers.broker, broker, diary, time),
        take_away(scenario.restarts_database(), &mut servers.database, database, diary, time),
    )?;
    let mut done = Done { untried, ..Done::default() };
    for (name, away, count) in
        [("broker", broker, &mut done.broker), ("database", database, &mut done.database)]
    {
        *count = away.count;
        if away.count > 0 && !away.in_a_batch {
            done.untried.push(format!("the {name} was not killed in the middle of a batch"));
        }
    }
    Ok(done)
}

/// Kills a victim now and then, and puts up the next one for each that has gone. Says what was
/// not tried.
async fn kill(
    victims: &[Role],
    fleet: &mut Fleet<'_>,
    random: &mut fastrand::Rng,
    mean_pause: Duration,
    time: Time,
) -> Result<Vec<String>> {
    let mut next_word = Instant::now() + PROGRESS;
    while time.goes_on(fleet.untried(victims).is_empty()) {
        sleep(mean_pause.mul_f64(0.5 + random.f64())).await;
        fleet.reap()?;
        for _ in 0..random.usize(1..=AT_ONCE) {
            fleet.kill_one(victims).await?;
        }
        if Instant::now() > next_word {
            next_word += PROGRESS;
            let left = time.until.saturating_duration_since(Instant::now()).as_secs();
            eprintln!("{} lives have ended, {left} s to go", fleet.ended().len());
        }
    }
    Ok(fleet.untried(victims))
}

/// How often a server was taken away, and whether that hit a batch.
#[derive(Clone, Copy, Default)]
struct Away {
    count: u32,
    in_a_batch: bool,
}

/// Takes a server away again and again. The first time, and every other time, that is a kill in
/// the middle of a batch.
async fn take_away<S: Restarts>(
    asked: bool,
    server: &mut Server<S>,
    mut random: fastrand::Rng,
    diary: &Diary,
    time: Time,
) -> Result<Away> {
    let mut away = Away::default();
    let (true, Server::Own(server)) = (asked, server) else { return Ok(away) };
    let name = S::NAME;
    while time.goes_on(away.in_a_batch) {
        sleep(Duration::from_millis(random.u64(SERVER_WORKS))).await;
        if !away.in_a_batch || random.bool() {
            let in_a_batch = timeout(LONGEST_AIM, batch_in_hand(diary)).await.is_ok();
            server.kill();
            diary.note(format_args!("kill -9 of the {name}, in a batch: {in_a_batch}"))?;
            away.in_a_batch |= in_a_batch;
        } else {
            diary.note(format_args!("shut down the {name}"))?;
            server.stop().await;
        }
        away.count += 1;
        sleep(Duration::from_millis(random.u64(SERVER_IS_AWAY))).await;
        server.restart().await;
        diary.note(format_args!("the {name} is up"))?;
    }
    Ok(away)
}

/// Waits until a relay has claimed a batch a moment ago and has not marked it.
async fn batch_in_hand(diary: &Diary) -> Result<()> {
    loop {
        let last = diary.ledgers()?.into_iter().filter_map(|path| ledger::last(&path));
        // A consumer claims one at a time.
        let is_fresh_batch = |line: Line| {
            line.deed == Deed::Claimed
                && line.ids.len() > 1
                && Moment::now().since(line.to) < A_MOMENT_AGO
        };
        if last.into_iter().any(is_fresh_batch) {
            return Ok(());
        }
        sleep(Duration::from_millis(1)).await;
    }
}
