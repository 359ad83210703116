//! What the store in object storage promises beside what all do.

use std::{sync::Arc, time::Duration};

use acemq::{
    ClaimCheck, ClaimCheckStore as _, Decode as _, Encode as _, ErrorKind, ObjectClaimCheckStore,
    RawBytes,
    object_store::{
        ClientOptions, ObjectStore, RetryConfig, aws::AmazonS3Builder, local::LocalFileSystem,
        memory::InMemory,
    },
};
use bytes::Bytes;
use testkit::{Proxy, S3Server, eventually};

use super::stores::{Kept, payload};
use crate::consumer::bench::SOON;

pub(super) fn in_object_memory() -> Kept {
    let store = ObjectClaimCheckStore::new(Arc::new(InMemory::new()));
    Kept::new(store.prefix("below/this"), ())
}

pub(super) fn in_object_files() -> Kept {
    let folder = tempfile::tempdir().unwrap();
    let objects = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    Kept::new(ObjectClaimCheckStore::new(Arc::new(objects)), folder)
}

pub(super) async fn in_s3() -> Kept {
    let server = S3Server::start().await;
    let store = ObjectClaimCheckStore::new(bucket(&server.url(), S3Server::SECRET_KEY));
    Kept::new(store, server)
}

fn bucket(url: &str, secret: &str) -> Arc<dyn ObjectStore> {
    bucket_named(S3Server::BUCKET, url, secret)
}

fn bucket_named(name: &str, url: &str, secret: &str) -> Arc<dyn ObjectStore> {
    let bucket = AmazonS3Builder::new()
        .with_endpoint(url.trim_end_matches('/'))
        .with_bucket_name(name)
        .with_region("us-east-1")
        .with_access_key_id(S3Server::ACCESS_KEY)
        .with_secret_access_key(secret)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_allow_http(true)
        // Trying again is the codec's here.
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .build()
        .unwrap();
    Arc::new(bucket)
}

#[tokio::test]
async fn objects_are_named_by_prefix_and_key_and_only_the_key_travels() {
    let server = S3Server::start().await;
    let objects = bucket(&server.url(), S3Server::SECRET_KEY);
    let store = ObjectClaimCheckStore::new(Arc::clone(&objects)).prefix("orders/scans");
    let codec = ClaimCheck::new(RawBytes::default(), store.clone()).threshold(0);
    let body = codec.encode(&payload(9_000_000)).await.unwrap();
    let key = ClaimCheck::key_of(&body).unwrap();

    assert_eq!(body.len(), 39);
    let stored = format!("orders/scans/{key}");
    assert!(server.objects().contains(&stored), "{:?}", server.objects());
    assert!(codec.decode(body.clone(), None).await.unwrap() == payload(9_000_000));
    let elsewhere = ObjectClaimCheckStore::new(objects);
    assert_eq!(elsewhere.get(key).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_is_tried_again_and_then_goes_through() {
    let server = S3Server::start().await;
    let mut proxy = Proxy::in_front_of(&server.url()).await;
    let url = proxy.url_for(&server.url());
    let store = ObjectClaimCheckStore::new(bucket(&url, S3Server::SECRET_KEY));
    let codec = ClaimCheck::new(RawBytes::default(), store).threshold(0);
    let body = codec.encode(&payload(100)).await.unwrap();

    proxy.cut().await;
    for error in [
        codec.encode(&payload(100)).await.unwrap_err(),
        codec.decode(body.clone(), None).await.unwrap_err(),
    ] {
        assert!(error.is_transient(), "{error}");
    }

    let read = async { codec.decode(body.clone(), None).await.unwrap() };
    let (read, ()) = tokio::join!(read, proxy.restore());
    assert_eq!(read, payload(100));
}

#[tokio::test]
async fn a_login_that_is_refused_fails_the_send_and_parks_nothing() {
    let server = S3Server::start().await;
    let wrong = ObjectClaimCheckStore::new(bucket(&server.url(), "wrong-secret"));
    let codec = ClaimCheck::new(RawBytes::default(), wrong.clone()).threshold(0);
    let sent = codec.encode(&payload(10)).await.unwrap_err();
    assert_eq!((sent.kind(), sent.is_transient()), (ErrorKind::Refused, false), "{sent}");

    let body = Bytes::from_static(b"\xac\x01\x018f14e45f-ceea-467f-9a1e-3f7a1c9a0b52");
    let read = codec.decode(body, None).await.unwrap_err();
    assert!(read.is_transient(), "{read}");
    let shown = format!("{sent} {sent:?} {read} {read:?} {wrong:?} {codec:?}");
    assert!(!shown.contains("wrong-secret"), "{shown}");
}

#[tokio::test]
async fn a_bucket_that_is_not_there_parks_nothing() {
    let server = S3Server::start().await;
    let objects = bucket_named("elsewhere", &server.url(), S3Server::SECRET_KEY);
    let codec = ClaimCheck::new(RawBytes::default(), ObjectClaimCheckStore::new(objects));
    let body = Bytes::from_static(b"\xac\x01\x018f14e45f-ceea-467f-9a1e-3f7a1c9a0b52");
    let error = codec.decode(body, None).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("does the bucket exist"), "{error}");
}

#[tokio::test]
async fn a_payload_over_the_limit_is_refused_on_both_ways() {
    let store = ObjectClaimCheckStore::new(Arc::new(InMemory::new()));
    let small = store.clone().largest_object(1_000);
    small.put(payload(1_000)).await.unwrap();
    let key = store.put(payload(1_001)).await.unwrap();
    for error in [small.put(payload(1_001)).await.unwrap_err(), small.get(&key).await.unwrap_err()]
    {
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let text = error.to_string();
        assert!(text.contains("1001") && text.contains("1000"), "{text}");
    }
}

#[tokio::test]
async fn an_upload_in_parts_that_breaks_shows_no_object() {
    let server = S3Server::start().await;
    let mut proxy = Proxy::in_front_of(&server.url()).await;
    let url = proxy.url_for(&server.url());
    let store = ObjectClaimCheckStore::new(bucket(&url, S3Server::SECRET_KEY));
    // Slow enough to be caught in the middle of a part.
    proxy.delay(Duration::from_millis(100));
    let mut put = Box::pin(store.put(payload(64 * 1024 * 1024)));
    let mid_part = eventually("parts are under way", SOON, async || proxy.under_way() > 100_000);
    tokio::select! {
        _ = &mut put => panic!("it was over too soon"),
        () = mid_part => {}
    }
    proxy.cut().await;
    let error = put.await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(server.objects(), Vec::<String>::new());
}
