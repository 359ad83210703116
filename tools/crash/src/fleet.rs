//! The worker processes, as the driver sees them.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::{
    process::{Child, ChildStdin, Command},
    time::{Instant, timeout},
};

use crate::{
    diary::Diary,
    role::{Point, Role},
};

/// How long a worker may take to end in an orderly way.
const CLOSING: Duration = Duration::from_secs(40);
/// How long a worker with a point has to get there before it may be killed like any other.
const TIME_TO_ITS_POINT: Duration = Duration::from_secs(2);
/// At which time that it comes to its point a worker ends, at most.
const LAST_TIME: u32 = 8;
const SIGABRT: i32 = 6;

/// What all workers of a run are told.
pub(crate) struct Common {
    pub(crate) program: PathBuf,
    pub(crate) run: String,
    pub(crate) broker: String,
    pub(crate) database: String,
    pub(crate) lease: Duration,
    pub(crate) transactional: bool,
}

/// How a worker's life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was asked to end, and did.
    Closed,
    /// It was killed from outside.
    Killed,
    /// It ended itself at its point.
    Died(Point),
}

/// A life that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) ending: Ending,
}

pub(crate) struct Fleet<'a> {
    common: Common,
    diary: &'a Diary,
    random: fastrand::Rng,
    workers: Vec<Worker>,
    /// How many lives each place of a crew has had.
    begun: BTreeMap<(Role, usize), u32>,
    /// How many lives of a role were to end by violence: they take its points in turn.
    armed: BTreeMap<Role, usize>,
    ended: Vec<Life>,
}

struct Worker {
    role: Role,
    place: usize,
    life: String,
    point: Option<Point>,
    started: Instant,
    child: Child,
    /// The worker ends when this does.
    input: Option<ChildStdin>,
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(common: Common, diary: &'a Diary, random: fastrand::Rng) -> Self {
        Self {
            common,
            diary,
            random,
            workers: Vec::new(),
            begun: BTreeMap::new(),
            armed: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    /// Starts a role's whole crew. Every other life of a victim ends itself at a point; the rest
    /// wait to be killed.
    pub(crate) fn start_crew(&mut self, role: Role, victims: &[Role]) -> Result<()> {
        (1..=role.crew()).try_for_each(|place| self.start(role, place, victims.contains(&role)))
    }

    /// Starts one worker that nobody disturbs.
    pub(crate) fn start_undisturbed(&mut self, role: Role) -> Result<()> {
        self.start(role, role.crew() + 1, false)
    }

    fn start(&mut self, role: Role, place: usize, is_victim: bool) -> Result<()> {
        let begun = self.begun.entry((role, place)).or_default();
        *begun += 1;
        let life = format!("{}-{place}.{begun}", role.name());
        let point = if is_victim { self.next_point(role) } else { None };
        let folder = self.diary.folder();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(folder.join(format!("{}-{place}.log", role.name())))
            .context("open a worker's log")?;
        let mut command = Command::new(&self.common.program);
        command
            .args(["work", "--role", role.name(), "--life", &life, "--run", &self.common.run])
            .args(["--broker", &self.common.broker, "--database", &self.common.database])
            .args(["--lease", &self.common.lease.as_millis().to_string()])
            .args(["--seed", &self.random.u64(..).to_string()])
            .arg("--ledger")
            .arg(self.diary.ledger_of(&life));
        if self.common.transactional {
            command.arg("--transactional");
        }
        if let Some(point) = point {
            let nth = self.random.u32(1..=LAST_TIME).to_string();
            command.args(["--point", &point.name(), "--nth", &nth]);
        }
        command
            .stdin(Stdio::piped())
            .stdout(log.try_clone().context("share a worker's log")?)
            .stderr(log)
            .kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("start {life}"))?;
        let plan = point.map(|point| format!(", to die at {}", point.name())).unwrap_or_default();
        self.diary.note(format_args!("start {life}{plan}"))?;
        let input = child.stdin.take();
        let started = Instant::now();
        self.workers.push(Worker { role, place, life, point, started, child, input });
        Ok(())
    }

    fn next_point(&mut self, role: Role) -> Option<Point> {
        let armed = self.armed.entry(role).or_default();
        let turn = *armed;
        *armed += 1;
        let points = role.points();
        turn.is_multiple_of(2).then(|| points[turn / 2 % points.len()])
    }

    /// Kills one of the victims, chosen at random, and starts its next life.
    pub(crate) async fn kill_one(&mut self, victims: &[Role]) -> Result<()> {
        let candidates: Vec<usize> = (0..self.workers.len())
            .filter(|index| {
                let worker = &self.workers[*index];
                let has_time =
                    worker.point.is_some() && worker.started.elapsed() < TIME_TO_ITS_POINT;
                victims.contains(&worker.role) && !has_time
            })
            .collect();
        let Some(index) = self.random.choice(candidates) else { return Ok(()) };
        let (role, place) = self.kill(index).await?;
        self.start(role, place, true)
    }

    async fn kill(&mut self, index: usize) -> Result<(Role, usize)> {
        let mut worker = self.workers.swap_remove(index);
        self.diary.note(format_args!("kill -9 of {}", worker.life))?;
        // One that has just ended by itself is no error here.
        let _ = worker.child.start_kill();
        let status = worker.child.wait().await.context("wait for a worker")?;
        let place = (worker.role, worker.place);
        self.note_end(worker, status, true)?;
        Ok(place)
    }

    /// Starts the next life of those that have ended themselves at their points.
    ///
    /// # Errors
    /// Where one has ended in another way: nothing that is done to it is a reason to.
    pub(crate) fn reap(&mut self) -> Result<()> {
        for index in (0..self.workers.len()).rev() {
            let Some(status) = self.workers[index].child.try_wait()? else { continue };
            let worker = self.workers.swap_remove(index);
            let (role, place) = (worker.role, worker.place);
            self.note_end(worker, status, false)?;
            self.start(role, place, true)?;
        }
        Ok(())
    }

    fn note_end(&mut self, worker: Worker, status: ExitStatus, killed: bool) -> Result<()> {
        let Worker { role, place, life, point, .. } = worker;
        let ending = match (status.signal(), point) {
            (Some(SIGABRT), Some(point)) => Ending::Died(point),
            (Some(_), _) if killed => Ending::Killed,
            _ => bail!("{life} ended by itself ({status}); see {}-{place}.log", role.name()),
        };
        self.diary.note(format_args!("{life} has ended: {ending:?}"))?;
        self.ended.push(Life { name: life, role, ending });
        Ok(())
    }

    /// Kills all of a role that are left.
    pub(crate) async fn kill_all(&mut self, role: Role) -> Result<()> {
        while let Some(index) = self.workers.iter().position(|worker| worker.role == role) {
            self.kill(index).await?;
        }
        Ok(())
    }

    /// Asks all of a role to end, and waits for that.
    pub(crate) async fn close(&mut self, role: Role) -> Result<()> {
        let (closing, others) = self.workers.drain(..).partition(|worker| worker.role == role);
        self.workers = others;
        let mut closing: Vec<Worker> = closing;
        for worker in &mut closing {
            self.diary.note(format_args!("close {}", worker.life))?;
            worker.input = None;
        }
        for mut worker in closing {
            let life = worker.life;
            let ended = timeout(CLOSING, worker.child.wait()).await;
            let status = ended.with_context(|| format!("{life} did not end in {CLOSING:?}"))??;
            ensure!(status.success(), "{life} did not end in an orderly way ({status})");
            self.ended.push(Life { name: life, role, ending: Ending::Closed });
        }
        Ok(())
    }

    /// The ways to end that no victim has ended in yet.
    pub(crate) fn untried(&self, victims: &[Role]) -> Vec<String> {
        let mut untried = Vec::new();
        for role in victims {
            let lives = self.ended.iter().filter(|life| life.role == *role);
            let tried: Vec<Ending> = lives.map(|life| life.ending).collect();
            if !tried.contains(&Ending::Killed) {
                untried.push(format!("no {} was killed", role.name()));
            }
            for point in role.points() {
                if !tried.contains(&Ending::Died(*point)) {
                    untried.push(format!("no {} died at {}", role.name(), point.name()));
                }
            }
        }
        untried
    }

    /// Every life there was.
    pub(crate) fn into_lives(self) -> Vec<Life> {
        self.ended
    }

    pub(crate) fn ended(&self) -> &[Life] {
        &self.ended
    }
}
