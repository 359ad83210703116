//! A worker's own book: a line for everything it has done, and for what it is about to do where
//! that cannot be told afterwards.
//!
//! A line is one write to a file opened for appending, made before the worker goes on. What a
//! process has written outlives its kill; only the end of the machine would take it back. A line
//! without its end was cut off and does not count.

use std::{
    fmt,
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
    process,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail};

/// More bytes than a line has.
const LONGEST_LINE: u64 = 4_096;

/// Microseconds since 1970. All workers run on one machine, so that their moments compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    pub(crate) fn later(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }

    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// What a line says was done to the orders it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// A transaction with these orders begins, and is meant to commit.
    Began,
    /// A transaction with these orders begins, and is meant to roll back.
    Doomed,
    /// The transaction has committed. Where this is missing after `Began`, the table decides.
    Committed,
    /// The store handed these out under a lease.
    Claimed,
    /// The lease on these was renewed.
    Renewed,
    /// These are about to be given back.
    GivingBack,
    /// An attempt at these is about to be counted as their own failure.
    Failing,
    /// Marked as published, or confirmed as handled.
    Done,
    /// To mark or confirm these has failed, or nobody knows.
    Unsure,
    /// The handler begins.
    Handling,
    /// The handler has had its effect and is about to say so.
    Handled,
    /// The handler has failed; whether its effect is there, nobody knows.
    HandlerFailed,
    /// The worker is about to end itself at a named point.
    Dying,
}

impl Deed {
    const NAMES: [(Self, &'static str); 13] = [
        (Self::Began, "began"),
        (Self::Doomed, "doomed"),
        (Self::Committed, "committed"),
        (Self::Claimed, "claimed"),
        (Self::Renewed, "renewed"),
        (Self::GivingBack, "giving-back"),
        (Self::Failing, "failing"),
        (Self::Done, "done"),
        (Self::Unsure, "unsure"),
        (Self::Handling, "handling"),
        (Self::Handled, "handled"),
        (Self::HandlerFailed, "handler-failed"),
        (Self::Dying, "dying"),
    ];
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(deed, _)| deed == self).map(|(_, name)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

impl FromStr for Deed {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let deed = Self::NAMES.iter().find(|(_, name)| *name == text).map(|(deed, _)| *deed);
        deed.with_context(|| format!("a ledger names the deed {text:?}, which there is not"))
    }
}

/// One line: when it began and ended, what it was, and the orders it was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) from: Moment,
    pub(crate) to: Moment,
    pub(crate) deed: Deed,
    pub(crate) ids: Vec<String>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.from.0, self.to.0, self.deed)?;
        self.ids.iter().try_for_each(|id| write!(f, " {id}"))
    }
}

impl FromStr for Line {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split(' ');
        let (Some(from), Some(to), Some(deed)) = (words.next(), words.next(), words.next()) else {
            bail!("a line of a ledger has too few words: {text:?}");
        };
        Ok(Self {
            from: Moment(from.parse()?),
            to: Moment(to.parse()?),
            deed: deed.parse()?,
            ids: words.map(str::to_owned).collect(),
        })
    }
}

/// The ledger of the process that writes it.
#[derive(Debug)]
pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::options().append(true).create_new(true).open(path);
        Ok(Self(file.with_context(|| format!("create the ledger {}", path.display()))?))
    }

    /// Notes something that takes no time.
    pub(crate) fn note<S: AsRef<str>>(&self, deed: Deed, ids: impl IntoIterator<Item = S>) {
        self.note_since(Moment::now(), deed, ids);
    }

    /// Notes something that began then and has ended now. A worker that cannot keep its book
    /// ends: nothing it went on to do could be accounted for.
    pub(crate) fn note_since<S: AsRef<str>>(
        &self,
        from: Moment,
        deed: Deed,
        ids: impl IntoIterator<Item = S>,
    ) {
        let ids = ids.into_iter().map(|id| id.as_ref().to_owned()).collect();
        let line = format!("{}\n", Line { from, to: Moment::now(), deed, ids });
        if let Err(error) = (&self.0).write_all(line.as_bytes()) {
            eprintln!("write to the ledger: {error}");
            process::exit(1);
        }
    }
}

/// Reads what a process has written, up to a line that was cut off.
pub(crate) fn read(path: &Path) -> Result<Vec<Line>> {
    // A process that was killed at its start has made none.
    if !path.exists() {
        return Ok(Vec::new());
    }
    let reading = || format!("read the ledger {}", path.display());
    let text = fs::read_to_string(path).with_context(reading)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| line.parse().with_context(reading)).collect()
}

/// The last line that a process has written. Does not read a long ledger from its beginning.
pub(crate) fn last(path: &Path) -> Option<Line> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LONGEST_LINE))).ok()?;
    let mut end = String::new();
    file.read_to_string(&mut end).ok()?;
    let whole = &end[..end.rfind('\n')?];
    whole.lines().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_not_read_and_those_before_it_are() {
        let folder = std::env::temp_dir().join(testkit::unique("ledger"));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("book");
        let ledger = Ledger::create(&path).unwrap();
        ledger.note(Deed::Began, ["a", "b"]);
        ledger.note_since(Moment(7), Deed::HandlerFailed, ["c"]);
        (&ledger.0).write_all(b"12 13 commi").unwrap();

        let (lines, last) = (read(&path).unwrap(), last(&path).unwrap());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].deed, lines[0].ids.len()), (Deed::Began, 2));
        assert_eq!(
            (lines[1].from, lines[1].deed, &*lines[1].ids[0]),
            (Moment(7), Deed::HandlerFailed, "c")
        );
        assert_eq!(last, lines[1]);
    }
}
