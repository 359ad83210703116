//! What the driver did and when, to be read beside the ledgers.

use std::{
    fmt::Display,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::ledger::Moment;

const LEDGER: &str = "ledger";

/// The folder of a run's evidence, and the driver's own diary in it.
pub(crate) struct Diary {
    folder: PathBuf,
    file: File,
}

impl Diary {
    pub(crate) fn open(folder: PathBuf) -> Result<Self> {
        let making = || format!("make the run's folder {}", folder.display());
        std::fs::create_dir_all(&folder).with_context(making)?;
        let file = File::options().append(true).create_new(true).open(folder.join("run.log"));
        let file = file.with_context(making).context("a folder holds one run")?;
        Ok(Self { folder, file })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Notes something, at the same kind of moment as the ledgers.
    pub(crate) fn note(&self, what: impl Display) -> Result<()> {
        let line = format!("{} {what}\n", Moment::now().0);
        (&self.file).write_all(line.as_bytes()).context("write to the run's diary")
    }

    /// Where a worker's ledger is.
    pub(crate) fn ledger_of(&self, life: &str) -> PathBuf {
        self.folder.join(format!("{life}.{LEDGER}"))
    }

    /// The ledgers of all workers so far.
    pub(crate) fn ledgers(&self) -> Result<Vec<PathBuf>> {
        let files = std::fs::read_dir(&self.folder)?.map(|entry| Ok(entry?.path()));
        let is_ledger = |path: &PathBuf| path.extension().is_some_and(|ending| ending == LEDGER);
        files.filter(|path| path.as_ref().map_or(true, is_ledger)).collect()
    }

    /// Writes a list to a file of the folder, a line for each.
    pub(crate) fn keep<T: Display>(
        &self,
        name: &str,
        lines: impl IntoIterator<Item = T>,
    ) -> Result<()> {
        let text: String = lines.into_iter().map(|line| format!("{line}\n")).collect();
        let path = self.folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }
}
