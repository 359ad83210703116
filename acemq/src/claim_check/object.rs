//! The claim-check store in object storage: S3, Azure, Google and what speaks like them.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::{
    GetOptions, ObjectStore, ObjectStoreExt as _, PutMultipartOptions, PutOptions, path::Path,
};
use uuid::Uuid;

use super::{ClaimCheckStore, DEFAULT_LARGEST_OBJECT, buffer, key, too_large};
use crate::{
    counted::counted,
    error::{Error, ErrorKind, Result},
};

/// A payload of more bytes than that goes up in parts of that many: an HTTP client gives each
/// request a time of its own, which one request for everything may not be able to keep. S3 wants
/// parts of 5 MiB at least.
const PART: usize = 8 * 1024 * 1024;
/// How many parts are under way at once.
const PARTS_AT_ONCE: usize = 4;

/// Keeps payloads in object storage, through the crate `object_store`. Needs the feature
/// `object-store`.
///
/// Bring a store of that crate's, made with the features, login and settings that you need; it is
/// re-exported as [`acemq::object_store`](crate::object_store), and its version is this one's. An
/// object's name is a random UUID, behind a [`prefix`](Self::prefix) where there is one.
///
/// A payload of more than 8 MiB goes up in parts, out of the memory it is in, and shows when all
/// are there. A call that is dropped in the middle can leave parts behind, which cost money and
/// do not show in a listing: give the bucket a rule that ends unfinished uploads after a day,
/// beside the one that expires objects.
///
/// Let the login list the bucket too: without that right, S3 answers for an object which is gone
/// that access is denied, and its message is tried again instead of being parked.
///
/// ```
/// use std::sync::Arc;
/// use acemq::{ClaimCheckStore as _, ObjectClaimCheckStore, object_store::memory::InMemory};
/// use bytes::Bytes;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> acemq::Result<()> {
/// // In a program, with `object_store = { version = "0.14", features = ["aws"] }`:
/// // let bucket = AmazonS3Builder::from_env().with_bucket_name("claims").build()?;
/// let bucket = InMemory::new();
/// let store = ObjectClaimCheckStore::new(Arc::new(bucket)).prefix("orders/scans");
/// let key = store.put(Bytes::from_static(b"a scan")).await?;
/// assert_eq!(store.get(&key).await?, "a scan");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ObjectClaimCheckStore {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    largest_object: u64,
}

impl ObjectClaimCheckStore {
    /// A store in that bucket, container or directory.
    pub fn new(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, prefix: Path::default(), largest_object: DEFAULT_LARGEST_OBJECT }
    }

    /// What stands before the key in an object's name, with `/` between its parts. Nothing unless
    /// set. It is not part of the key that travels: publisher and consumer need the same.
    #[must_use]
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        self.prefix = Path::from(prefix.as_ref());
        self
    }

    /// How many bytes a payload may have, on the way in and out: 1 GiB unless set. A larger one is
    /// refused, since it has to be in memory as a whole.
    #[must_use]
    pub fn largest_object(mut self, bytes: u64) -> Self {
        self.largest_object = bytes;
        self
    }

    fn path(&self, key: &str) -> Result<Path> {
        key::check(key)?;
        Ok(self.prefix.clone().join(key))
    }

    async fn upload(&self, path: &Path, payload: &Bytes) -> object_store::Result<()> {
        if payload.len() <= PART {
            let options = PutOptions::default();
            self.objects.put_opts(path, payload.clone().into(), options).await?;
            return Ok(());
        }
        let options = PutMultipartOptions::default();
        let mut upload = self.objects.put_multipart_opts(path, options).await?;
        let parts = (0..payload.len()).step_by(PART).map(|start| {
            let end = payload.len().min(start + PART);
            upload.put_part(payload.slice(start..end).into())
        });
        let sent = stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).try_collect::<()>().await;
        let complete = match sent {
            Ok(()) => upload.complete().await.map(drop),
            Err(error) => Err(error),
        };
        if complete.is_err() {
            // Best effort: the bucket's rule ends what is left.
            let _ = upload.abort().await;
        }
        complete
    }

    /// A bucket that is not there, or a proxy before it, says the same of each object as one that
    /// has lost it, and that is no reason to give up a message.
    async fn is_there(&self, action: &str) -> Result<()> {
        match self.objects.list(Some(&self.prefix)).next().await {
            Some(Err(cause)) => {
                let text = format!(
                    "{action}: it is not there, and what it would be in cannot be listed; does the \
                     bucket exist, and may this login list it?"
                );
                Err(Error::new(ErrorKind::Store, text).with_source(cause))
            }
            Some(Ok(_)) | None => Ok(()),
        }
    }

    async fn download(&self, action: &str, path: &Path) -> Result<Bytes> {
        let failed = |cause| failed(action, cause);
        let found = self.objects.get_opts(path, GetOptions::default()).await.map_err(failed)?;
        let size = found.meta.size;
        if size > self.largest_object {
            return Err(too_large(action, size, self.largest_object));
        }
        let mut payload = buffer(action, size)?;
        let mut pieces = found.into_stream();
        while let Some(piece) = pieces.try_next().await.map_err(failed)? {
            if (payload.len() + piece.len()) as u64 > size {
                return Err(torn(action, "it goes on", size));
            }
            payload.extend_from_slice(&piece);
        }
        if (payload.len() as u64) < size {
            return Err(torn(action, "it ended before", size));
        }
        Ok(payload.into())
    }
}

impl fmt::Debug for ObjectClaimCheckStore {
    // The store's own debug form may show its login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectClaimCheckStore")
            .field("objects", &format_args!("{}", self.objects))
            .field("prefix", &self.prefix.as_ref())
            .field("largest_object", &self.largest_object)
            .finish()
    }
}

impl ClaimCheckStore for ObjectClaimCheckStore {
    async fn put(&self, payload: Bytes) -> Result<String> {
        let key = Uuid::new_v4().to_string();
        let path = self.path(&key)?;
        let action = format!("put a payload into {}", self.objects);
        let bytes = payload.len() as u64;
        if bytes > self.largest_object {
            return Err(too_large(&action, bytes, self.largest_object));
        }
        self.upload(&path, &payload).await.map_err(|cause| failed(&action, cause))?;
        Ok(key)
    }

    async fn get(&self, key: &str) -> Result<Bytes> {
        let path = self.path(key)?;
        let action = format!("get {path} from {}", self.objects);
        match self.download(&action, &path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.is_there(&action).await?;
                Err(error)
            }
            got => got,
        }
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        match self.objects.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(cause) => Err(failed(&format!("delete {path} from {}", self.objects), cause)),
        }
    }
}

fn torn(action: &str, what: &str, size: u64) -> Error {
    Error::new(ErrorKind::Store, format!("{action}: {what} its {}", counted(size, "byte")))
}

fn failed(action: &str, cause: object_store::Error) -> Error {
    use object_store::Error as Cause;
    let (kind, what) = match &cause {
        Cause::NotFound { .. } => (ErrorKind::NotFound, "it is not there"),
        Cause::PermissionDenied { .. } => (ErrorKind::Refused, "access was denied"),
        Cause::Unauthenticated { .. } => (ErrorKind::Authentication, "the login was refused"),
        Cause::NotSupported { .. } | Cause::NotImplemented { .. } => {
            (ErrorKind::Unsupported, "this store does not do that")
        }
        Cause::InvalidPath { .. } | Cause::UnknownConfigurationKey { .. } => {
            (ErrorKind::Config, "it is not set up for this")
        }
        _ => (ErrorKind::Store, "it failed"),
    };
    Error::new(kind, format!("{action}: {what}")).with_source(cause)
}
