//! What every claim-check store promises.

use std::any::Any;

use acemq::{
    ClaimCheckStore, ErrorKind, FileClaimCheckStore, MemoryClaimCheckStore, SharedClaimCheckStore,
};
use bytes::Bytes;
use futures_util::future::join_all;

/// A store under test.
pub(super) struct Kept {
    pub(super) store: SharedClaimCheckStore,
    /// What has to live as long as the store: a folder, a server.
    _below: Box<dyn Any + Send>,
}

impl Kept {
    pub(super) fn new(store: impl ClaimCheckStore, below: impl Any + Send) -> Self {
        Self { store: SharedClaimCheckStore::new(store), _below: Box::new(below) }
    }

    fn in_memory() -> Self {
        Self::new(MemoryClaimCheckStore::new(), ())
    }

    fn in_files() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::new(FileClaimCheckStore::new(folder.path().join("made/when/needed")), folder)
    }
}

macro_rules! on_every_store {
    ($($(#[$attribute:meta])* async fn $name:ident($store:ident: SharedClaimCheckStore) $body:block)*) => {$(
        $(#[$attribute])*
        mod $name {
            use super::*;

            async fn behaviour(kept: Kept) {
                let $store = &kept.store;
                $body
            }

            #[tokio::test]
            async fn in_memory() {
                behaviour(Kept::in_memory()).await;
            }

            #[tokio::test]
            async fn in_files() {
                behaviour(Kept::in_files()).await;
            }

            #[cfg(feature = "object-store")]
            #[tokio::test]
            async fn in_object_memory() {
                behaviour(crate::claim_check::objects::in_object_memory()).await;
            }

            #[cfg(feature = "object-store")]
            #[tokio::test]
            async fn in_object_files() {
                behaviour(crate::claim_check::objects::in_object_files()).await;
            }

            #[cfg(feature = "object-store")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_s3() {
                behaviour(crate::claim_check::objects::in_s3().await).await;
            }
        }
    )*};
}

/// Bytes in which a part that is lost, doubled or moved shows.
pub(super) fn payload(bytes: usize) -> Bytes {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

on_every_store! {
    async fn what_was_put_is_got(store: SharedClaimCheckStore) {
        const PART: usize = 8 * 1024 * 1024;
        for bytes in [0, 1, 70_000, PART, 2 * PART + 17] {
            let put = payload(bytes);
            let key = store.put(put.clone()).await.unwrap();
            // No comparison that would print it.
            assert!(store.get(&key).await.unwrap() == put, "{bytes} bytes");
            store.delete(&key).await.unwrap();
        }
    }

    async fn each_payload_has_a_random_uuid_of_its_own_as_its_key(store: SharedClaimCheckStore) {
        let first = store.put(payload(10)).await.unwrap();
        let second = store.put(payload(10)).await.unwrap();
        assert_ne!(first, second);
        for key in [first, second] {
            let id = uuid::Uuid::try_parse(&key).unwrap();
            assert_eq!((id.get_version_num(), id.to_string()), (4, key));
        }
    }

    async fn what_is_not_there_is_told_from_what_cannot_be_read(store: SharedClaimCheckStore) {
        store.put(payload(10)).await.unwrap();
        let kept = store.put(payload(10)).await.unwrap();
        let deleted = store.put(payload(10)).await.unwrap();
        store.delete(&deleted).await.unwrap();
        for key in [&*deleted, "8f14e45f-ceea-467f-9a1e-3f7a1c9a0b52", "Some_other.key-1"] {
            let error = store.get(key).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains(key), "{error}");
            // Deleting what is not there is fine, as often as one likes.
            store.delete(key).await.unwrap();
        }
        assert_eq!(store.get(&kept).await.unwrap(), payload(10));
    }

    async fn what_is_no_key_leads_nowhere(store: SharedClaimCheckStore) {
        store.put(payload(10)).await.unwrap();
        for key in ["", ".", "..", "../secret", "/etc/passwd", "a/b", "key\n", "key\0", "C:\\key"] {
            let read = store.get(key).await.unwrap_err();
            let deleted = store.delete(key).await.unwrap_err();
            for error in [read, deleted] {
                assert_eq!(error.kind(), ErrorKind::Decode, "{key:?}: {error}");
            }
        }
    }

    async fn many_may_put_and_get_at_once(store: SharedClaimCheckStore) {
        let put = |n: usize| async move {
            let key = store.put(payload(10_000 + n)).await.unwrap();
            (n, key)
        };
        let keys = join_all((0..40).map(put)).await;
        let get = |(n, key): (usize, String)| async move {
            assert!(store.get(&key).await.unwrap() == payload(10_000 + n), "{n}");
        };
        join_all(keys.into_iter().map(get)).await;
    }
}
