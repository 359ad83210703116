//! The claim-check store in a directory.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use uuid::Uuid;

use super::{ClaimCheckStore, DEFAULT_LARGEST_OBJECT, buffer, key, too_large};
use crate::{
    counted::counted,
    error::{Error, ErrorKind, Result},
};

/// What the name of a file that is being written ends in.
const PARTIAL: &str = ".partial";

/// Keeps payloads as files in one directory, the way the family's other languages do: on a disk
/// that publishers and consumers share.
///
/// A file is named by its key, a random UUID. It is written under a name that ends in `.partial`
/// and that no key leads to, flushed to the disk and then renamed, so there is no half a payload
/// to read, whatever crashes. A `.partial` file that is older than the longest write is left over
/// from a crash and can be deleted.
///
/// The directory is made when the first payload is put. Its permissions and those of the files are
/// what the process's umask makes them: whoever can read the directory reads the payloads.
///
/// The work is done on tokio's threads for blocking work, and dropping a call does not stop it:
/// what was being put may be there afterwards, with nothing referring to it, and a disk that hangs
/// keeps one thread for each call.
///
/// ```
/// use acemq::{ClaimCheckStore as _, FileClaimCheckStore};
/// use bytes::Bytes;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> acemq::Result<()> {
/// # let directory = std::env::temp_dir().join(format!("acemq-claims-{}", std::process::id()));
/// let store = FileClaimCheckStore::new(&directory); // "/mnt/shared/claims"
/// let key = store.put(Bytes::from_static(b"a scan")).await?;
/// assert_eq!(std::fs::read(directory.join(&key)).unwrap(), b"a scan");
/// assert_eq!(store.get(&key).await?, "a scan");
/// # std::fs::remove_dir_all(&directory).unwrap();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FileClaimCheckStore {
    directory: PathBuf,
    largest_object: u64,
}

impl FileClaimCheckStore {
    /// A store in that directory.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), largest_object: DEFAULT_LARGEST_OBJECT }
    }

    /// How many bytes a payload may have, on the way in and out: 1 GiB unless set. A larger one is
    /// refused, since it has to be in memory as a whole.
    #[must_use]
    pub fn largest_object(mut self, bytes: u64) -> Self {
        self.largest_object = bytes;
        self
    }

    fn path(&self, key: &str) -> Result<PathBuf> {
        key::check(key)?;
        if key.ends_with(PARTIAL) {
            return Err(Error::new(
                ErrorKind::Decode,
                format!("look up a claim check: {key:?} is not a payload but the part of one"),
            ));
        }
        Ok(self.directory.join(key))
    }
}

impl ClaimCheckStore for FileClaimCheckStore {
    async fn put(&self, payload: Bytes) -> Result<String> {
        let action = format!("put a payload into {}", self.directory.display());
        let bytes = payload.len() as u64;
        if bytes > self.largest_object {
            return Err(too_large(&action, bytes, self.largest_object));
        }
        let directory = self.directory.clone();
        let key = Uuid::new_v4().to_string();
        blocking(action, move |action| match write(&directory, &key, &payload) {
            Ok(()) => Ok(key),
            Err(cause) => Err(failed(action, cause)),
        })
        .await
    }

    async fn get(&self, key: &str) -> Result<Bytes> {
        let path = self.path(key)?;
        let largest = self.largest_object;
        let action = format!("read {}", path.display());
        blocking(action, move |action| read(action, &path, largest)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        let action = format!("delete {}", path.display());
        blocking(action, move |action| match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(failed(action, cause)),
            Ok(()) | Err(_) => Ok(()),
        })
        .await
    }
}

/// Runs file work where it blocks nobody.
async fn blocking<T: Send + 'static>(
    action: String,
    work: impl FnOnce(&str) -> Result<T> + Send + 'static,
) -> Result<T> {
    let doing = action.clone();
    match tokio::task::spawn_blocking(move || work(&doing)).await {
        Ok(result) => result,
        Err(cause) => {
            Err(Error::new(ErrorKind::Store, format!("{action}: it was stopped"))
                .with_source(cause))
        }
    }
}

fn failed(action: &str, cause: io::Error) -> Error {
    Error::new(ErrorKind::Store, format!("{action}: {cause}")).with_quoted_source(cause)
}

fn write(directory: &Path, key: &str, payload: &[u8]) -> io::Result<()> {
    let partial = directory.join(format!("{key}{PARTIAL}"));
    let written = create(directory, &partial).and_then(|mut file| {
        file.write_all(payload)?;
        file.sync_all()?;
        fs::rename(&partial, directory.join(key))?;
        // The name is on the disk only when its directory is.
        sync(directory)
    });
    if written.is_err() {
        // Best effort: whoever cleans up knows what it is by its name.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn create(directory: &Path, file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    match options.open(file) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            make(directory)?;
            options.open(file)
        }
        opened => opened,
    }
}

/// Makes a directory that outlives a loss of power, with those above it that are missing.
fn make(directory: &Path) -> io::Result<()> {
    if directory.as_os_str().is_empty() || directory.is_dir() {
        return Ok(());
    }
    let above = directory.parent().unwrap_or_else(|| Path::new(""));
    make(above)?;
    match fs::create_dir(directory) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => Err(cause),
        Ok(()) | Err(_) => sync(above),
    }
}

#[cfg(unix)]
fn sync(directory: &Path) -> io::Result<()> {
    let here = directory.as_os_str().is_empty();
    File::open(if here { Path::new(".") } else { directory })?.sync_all()
}

/// Elsewhere a directory cannot be opened as a file, and the system sees to its entries.
#[cfg(not(unix))]
fn sync(_directory: &Path) -> io::Result<()> {
    Ok(())
}

fn read(action: &str, path: &Path, largest: u64) -> Result<Bytes> {
    let unread = |cause| unread(action, path, cause);
    // Before it is opened, which would wait for the other end of a named pipe.
    let about = fs::metadata(path).map_err(unread)?;
    if !about.is_file() {
        return Err(Error::new(ErrorKind::NotFound, format!("{action}: it is not a file")));
    }
    if about.len() > largest {
        return Err(too_large(action, about.len(), largest));
    }
    let mut payload = buffer(action, about.len())?;
    let file = File::open(path).map_err(unread)?;
    file.take(about.len()).read_to_end(&mut payload).map_err(unread)?;
    if (payload.len() as u64) < about.len() {
        let size = counted(about.len(), "byte");
        let cut = format!("{action}: it ended after {} of {size}", payload.len());
        return Err(Error::new(ErrorKind::Store, cut));
    }
    Ok(payload.into())
}

/// Tells a payload that is gone from one that cannot be read now.
fn unread(action: &str, path: &Path, cause: io::Error) -> Error {
    if cause.kind() != io::ErrorKind::NotFound {
        return failed(action, cause);
    }
    // A disk that is not mounted says nothing about what is on it.
    let (kind, what) = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() && !directory.is_dir() => {
            (ErrorKind::Store, "there is no such directory; is the disk mounted?")
        }
        Some(_) | None => (ErrorKind::NotFound, "it is not there"),
    };
    Error::new(kind, format!("{action}: {what}")).with_source(cause)
}
