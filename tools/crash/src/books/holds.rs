//! Who held what under a lease, and until when, as the holders' ledgers say.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use super::Books;
use crate::{
    fleet::Ending,
    ledger::{Deed, Line, Moment},
    role::Role,
};

/// Databases keep times to the millisecond, some of them, and cut rather than round.
const ROUNDING: Duration = Duration::from_millis(5);

/// One claim on one order, from the time it was made.
#[derive(Clone, Debug)]
pub(crate) struct Hold<'a> {
    pub(crate) life: &'a str,
    /// Whether the life was cut off, from outside or at a point.
    pub(crate) holder_was_killed: bool,
    claimed: Span,
    renewed: Vec<Span>,
    pub(crate) end: End,
    /// Whether the handler began.
    handled: bool,
    handler_failed: bool,
    had_its_effect: Option<Moment>,
}

/// How a hold ended, as far as its holder knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Marked or confirmed, and the holder knew it from then on.
    Done(Moment),
    /// To be given back from then on.
    GivenBack(Moment),
    /// The mark failed: the lease has to run out, or it is there after all.
    Unsure,
    /// Nothing was written down.
    Open,
}

/// Something that took time: it happened in between.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Moment,
    to: Moment,
}

impl Span {
    fn of(line: &Line) -> Self {
        Self { from: line.from, to: line.to }
    }
}

/// The holds on each order, in the order in which they were made.
pub(crate) struct Holds<'a>(pub(crate) BTreeMap<&'a str, Vec<Hold<'a>>>);

impl<'a> Holds<'a> {
    /// All holds of a role's workers.
    pub(crate) fn of(books: &'a Books, role: Role) -> Self {
        let mut holds: BTreeMap<&str, Vec<Hold<'_>>> = BTreeMap::new();
        for (life, lines) in books.lives.iter().filter(|(life, _)| life.role == role) {
            let killed = life.ending != Ending::Closed;
            let mut current: HashMap<&str, Hold<'_>> = HashMap::new();
            for line in lines {
                for id in &line.ids {
                    if line.deed == Deed::Claimed {
                        let hold = Hold::new(&life.name, killed, Span::of(line));
                        // Its own lease may have run out, and it claims again.
                        if let Some(before) = current.insert(id, hold) {
                            holds.entry(id).or_default().push(before);
                        }
                    } else if let Some(hold) = current.get_mut(&**id) {
                        hold.note(line);
                    }
                }
            }
            for (id, hold) in current {
                holds.entry(id).or_default().push(hold);
            }
        }
        for of_one in holds.values_mut() {
            of_one.sort_by_key(|hold| hold.claimed.to);
        }
        Self(holds)
    }

    pub(crate) fn on(&self, id: &str) -> &[Hold<'a>] {
        self.0.get(id).map_or(&[], Vec::as_slice)
    }

    /// What is wrong with how these followed each other: a lease was not respected, or something
    /// that was done was handed out again.
    pub(crate) fn faults(&self, lease: Duration) -> Vec<(&'a str, String)> {
        let mut faults = Vec::new();
        for (id, holds) in &self.0 {
            for (n, later) in holds.iter().enumerate().skip(1) {
                let claimed = later.claimed;
                let earlier = &holds[..n];
                let done =
                    |hold: &&Hold<'_>| matches!(hold.end, End::Done(at) if at < claimed.from);
                if let Some(done) = earlier.iter().find(done) {
                    let text = format!("{} was done with it, and {} got it", done.life, later.life);
                    faults.push((*id, text));
                }
                let before = &earlier[n - 1];
                let until = before.until(claimed, lease);
                if claimed.to.later(ROUNDING) < until {
                    let early = until.since(claimed.to);
                    let text = format!(
                        "{} got it {early:?} before the lease of {} ran out",
                        later.life, before.life
                    );
                    faults.push((*id, text));
                }
            }
        }
        faults
    }

    /// How long after the lease of a killed holder somebody else had claimed it, at worst.
    pub(crate) fn longest_wait_after_kill(&self, lease: Duration) -> Duration {
        let waits = self.0.values().flat_map(|holds| holds.windows(2)).filter_map(|pair| {
            let [before, after] = pair else { return None };
            let left_behind = before.holder_was_killed && before.end == End::Open;
            left_behind.then(|| after.claimed.to.since(before.until(after.claimed, lease)))
        });
        waits.max().unwrap_or_default()
    }

    /// The time between a handler's effect and its confirmation, which a crash may hit: the
    /// median.
    pub(crate) fn window(&self) -> Duration {
        let all = self.0.values().flatten();
        let mut windows: Vec<Duration> = all.filter_map(Hold::window).collect();
        windows.sort_unstable();
        windows.get(windows.len() / 2).copied().unwrap_or_default()
    }

    /// How often a living holder's lease ran out before it was done: its process or the database
    /// stood still for that long.
    pub(crate) fn lapses(&self) -> usize {
        self.0.values().map(|holds| lapses(holds)).sum()
    }
}

/// How often, of the holds on one order, a living holder's lease ran out before it was done.
pub(crate) fn lapses(holds: &[Hold<'_>]) -> usize {
    let lapsed = |pair: &&[Hold<'_>]| {
        let (before, claimed) = (&pair[0], pair[1].claimed);
        !before.holder_was_killed
            && match before.end {
                End::Done(at) => at > claimed.from,
                End::GivenBack(at) => at > claimed.to,
                End::Unsure => false,
                End::Open => true,
            }
    };
    holds.windows(2).filter(lapsed).count()
}

impl<'a> Hold<'a> {
    fn new(life: &'a str, holder_was_killed: bool, claimed: Span) -> Self {
        Self {
            life,
            holder_was_killed,
            claimed,
            renewed: Vec::new(),
            end: End::Open,
            handled: false,
            handler_failed: false,
            had_its_effect: None,
        }
    }

    fn note(&mut self, line: &Line) {
        match line.deed {
            Deed::Renewed => self.renewed.push(Span::of(line)),
            Deed::Done => self.end = End::Done(line.to),
            Deed::GivingBack | Deed::Failing => self.end = End::GivenBack(line.from),
            Deed::Unsure => self.end = End::Unsure,
            Deed::Handling => self.handled = true,
            Deed::HandlerFailed => self.handler_failed = true,
            Deed::Handled => self.had_its_effect = Some(line.to),
            Deed::Began | Deed::Doomed | Deed::Committed | Deed::Claimed | Deed::Dying => {}
        }
    }

    /// The time up to which nobody else may have it, as of a later claim: a lease from each
    /// renewal that had certainly happened before that.
    fn until(&self, later: Span, lease: Duration) -> Moment {
        match self.end {
            End::GivenBack(at) if at <= later.to => at,
            End::Done(_) | End::GivenBack(_) | End::Unsure | End::Open => {
                let before = self.renewed.iter().filter(|renewed| renewed.to <= later.from);
                let last = before.map(|renewed| renewed.from).max();
                last.unwrap_or(self.claimed.from).later(lease)
            }
        }
    }

    fn window(&self) -> Option<Duration> {
        match (self.had_its_effect, self.end) {
            (Some(effect), End::Done(at)) => Some(at.since(effect)),
            _ => None,
        }
    }

    /// Whether the mark or confirmation is not known to be there.
    pub(crate) fn was_cut_off(&self) -> bool {
        !matches!(self.end, End::Done(_))
    }

    /// Whether the handler ran or began to, and not to its good end.
    pub(crate) fn was_cut_off_in_handler(&self) -> bool {
        self.handled && self.was_cut_off() && (self.holder_was_killed || self.handler_failed)
    }
}
