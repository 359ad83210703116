//! What the store in a directory promises beside what all do.

use std::{fs, path::Path};

use acemq::{ClaimCheckStore as _, ErrorKind, FileClaimCheckStore};
use bytes::Bytes;
use tempfile::{TempDir, tempdir};

use super::stores::payload;

fn in_a_folder() -> (FileClaimCheckStore, TempDir) {
    let folder = tempdir().unwrap();
    (FileClaimCheckStore::new(folder.path()), folder)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn a_payload_is_one_file_named_by_its_key() {
    let (store, folder) = in_a_folder();
    let key = store.put(Bytes::from_static(b"a scan")).await.unwrap();
    assert_eq!(names(folder.path()), [&*key]);
    assert_eq!(fs::read(folder.path().join(&key)).unwrap(), b"a scan");
}

#[tokio::test]
async fn files_of_the_familys_other_languages_are_read() {
    let (store, folder) = in_a_folder();
    for key in ["0d9c7b52-8d42-4c55-9a86-0f8e3a7c2b11", "from.Java_1"] {
        fs::write(folder.path().join(key), key).unwrap();
        assert_eq!(store.get(key).await.unwrap(), key);
    }
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_write_leaves_no_half_a_payload_to_read() {
    let (store, folder) = in_a_folder();
    let key = "0d9c7b52-8d42-4c55-9a86-0f8e3a7c2b11";
    let partial = format!("{key}.partial");
    fs::write(folder.path().join(&partial), "half a sc").unwrap();

    assert_eq!(store.get(key).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.get(&partial).await.unwrap_err().kind(), ErrorKind::Decode);
    assert_eq!(store.delete(&partial).await.unwrap_err().kind(), ErrorKind::Decode);
    assert_eq!(names(folder.path()), [partial]);
}

#[tokio::test]
async fn a_failed_write_leaves_nothing_and_may_pass() {
    let folder = tempdir().unwrap();
    let occupied = folder.path().join("claims");
    fs::write(&occupied, "not a directory").unwrap();
    let store = FileClaimCheckStore::new(&occupied);
    let error = store.put(payload(10)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Store, true), "{error}");
    assert!(error.to_string().contains("claims"), "{error}");
    assert_eq!(names(folder.path()), ["claims"]);

    fs::remove_file(&occupied).unwrap();
    store.put(payload(10)).await.unwrap();
}

#[tokio::test]
async fn a_disk_that_is_not_mounted_is_no_missing_payload() {
    let folder = tempdir().unwrap();
    let store = FileClaimCheckStore::new(folder.path().join("not-mounted"));
    let error = store.get("0d9c7b52-8d42-4c55-9a86-0f8e3a7c2b11").await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("mounted"), "{error}");
}

#[tokio::test]
async fn what_is_no_file_is_no_payload() {
    let (store, folder) = in_a_folder();
    fs::create_dir(folder.path().join("folder")).unwrap();
    assert_eq!(store.get("folder").await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_payload_over_the_limit_is_refused_on_both_ways() {
    let (store, folder) = in_a_folder();
    let small = store.clone().largest_object(1_000);
    small.put(payload(1_000)).await.unwrap();
    let key = store.put(payload(1_001)).await.unwrap();
    for error in [small.put(payload(1_001)).await.unwrap_err(), small.get(&key).await.unwrap_err()]
    {
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let text = error.to_string();
        assert!(text.contains("1001") && text.contains("1000"), "{text}");
    }
    assert_eq!(names(folder.path()).len(), 2);
}
