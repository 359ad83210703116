use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use proptest::prelude::*;
use tokio::time::Instant;

use super::{ClaimCheck, ClaimCheckStore, MemoryClaimCheckStore, SharedClaimCheckStore};
use crate::{
    codec::{Decode, Encode, Json, RawBytes, Text},
    error::{Error, ErrorKind, Result},
};

const KEY: &str = "8f14e45f-ceea-467f-9a1e-3f7a1c9a0b52";

fn in_memory() -> (ClaimCheck<RawBytes, MemoryClaimCheckStore>, MemoryClaimCheckStore) {
    let store = MemoryClaimCheckStore::new();
    (ClaimCheck::new(RawBytes::default(), store.clone()), store)
}

fn stands_for(key: impl AsRef<[u8]>) -> Bytes {
    Bytes::from([b"\xac\x01\x01", key.as_ref()].concat())
}

/// A store that answers as it is told, and then no more.
#[derive(Clone, Default)]
struct Scripted {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

enum Answer {
    Key(&'static str),
    Payload(&'static [u8]),
    Fails(ErrorKind),
    Hangs,
}

impl Scripted {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        Self { answers, asked: Arc::default() }
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    async fn answer(&self, question: &str) -> Result<Answer> {
        self.asked.lock().unwrap().push(question.to_owned());
        let answer = self.answers.lock().unwrap().pop_front().unwrap();
        match answer {
            Answer::Fails(kind) => Err(Error::new(kind, "as scripted")),
            Answer::Hangs => std::future::pending().await,
            answer => Ok(answer),
        }
    }
}

impl ClaimCheckStore for Scripted {
    async fn put(&self, _payload: Bytes) -> Result<String> {
        match self.answer("put").await? {
            Answer::Key(key) => Ok(key.to_owned()),
            _ => unreachable!(),
        }
    }

    async fn get(&self, key: &str) -> Result<Bytes> {
        match self.answer(key).await? {
            Answer::Payload(payload) => Ok(Bytes::from_static(payload)),
            _ => unreachable!(),
        }
    }

    async fn delete(&self, _key: &str) -> Result<()> {
        unreachable!("a codec deletes nothing")
    }
}

// promise: CC-1
#[tokio::test]
async fn a_body_goes_to_the_store_from_the_threshold_on() {
    let (codec, store) = in_memory();
    let (below, at) = (vec![7; 65_535], vec![7; 65_536]);

    let inline = codec.encode(&below).await.unwrap();
    assert_eq!((&inline[..3], &inline[3..]), (&b"\xac\x01\x00"[..], &below[..]));
    assert!(store.is_empty());

    let stored = codec.encode(&at).await.unwrap();
    assert_eq!((&stored[..3], stored.len()), (&b"\xac\x01\x01"[..], 39));
    let key = std::str::from_utf8(&stored[3..]).unwrap();
    assert_eq!(store.get(key).await.unwrap(), at);
}

// promise: CC-1
#[tokio::test]
async fn with_a_threshold_of_zero_even_an_empty_body_goes_to_the_store() {
    let (codec, store) = in_memory();
    let codec = codec.threshold(0);
    for payload in [&b""[..], b"0"] {
        let body = codec.encode(payload).await.unwrap();
        assert_eq!(body.len(), 39);
        assert_eq!(codec.decode(body, None).await.unwrap(), payload);
    }
    assert_eq!(store.len(), 2);
    let (inline, _) = in_memory();
    assert_eq!(inline.encode(&b""[..]).await.unwrap(), &b"\xac\x01\x00"[..]);
}

// promise: CC-2
#[tokio::test]
async fn bodies_in_a_frame_and_those_of_before_are_read() {
    let (codec, store) = in_memory();
    let key = store.put(Bytes::from_static(b"large")).await.unwrap();
    for (body, payload) in [
        (stands_for(key), &b"large"[..]),
        (Bytes::from_static(b"\xac\x01\x00small"), b"small"),
        (Bytes::from_static(b"\xac\x01\x00"), b""),
        (Bytes::from_static(b"\xac\x01\x00\xac\x01\x01x"), b"\xac\x01\x01x"),
        (Bytes::from_static(b"{\"from\":\"before\"}"), b"{\"from\":\"before\"}"),
        (Bytes::new(), b""),
        (Bytes::from_static(b"\xac"), b"\xac"),
        (Bytes::from_static(b"\xac\x01"), b"\xac\x01"),
        (Bytes::from_static(b"\xac\x01\x02x"), b"\xac\x01\x02x"),
        (Bytes::from_static(b"\xac\x02\x01x"), b"\xac\x02\x01x"),
        (Bytes::from_static(b"\x01\xac\x01x"), b"\x01\xac\x01x"),
    ] {
        assert_eq!(codec.decode(body.clone(), None).await.unwrap(), payload, "{body:?}");
    }
}

// promise: CC-3
#[test]
fn the_key_of_a_body_is_told_without_a_store() {
    assert_eq!(ClaimCheck::key_of(&stands_for(KEY)), Some(KEY));
    assert_eq!(ClaimCheck::key_of(&stands_for("../etc/passwd")), Some("../etc/passwd"));
    for without in [&b"\xac\x01\x00{}"[..], b"{}", b"", b"\xac\x01", b"\xac\x01\x01\xff"] {
        assert_eq!(ClaimCheck::key_of(without), None, "{without:?}");
    }
}

// promise: CC-4
#[tokio::test]
async fn a_key_that_the_store_has_lost_is_beyond_help_and_the_reason_says_so() {
    let (codec, _) = in_memory();
    let error = codec.decode(stands_for(KEY), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!error.is_transient());
    let text = error.to_string();
    assert!(text.contains(KEY) && text.contains("no longer holds"), "{text}");
    assert!(text.contains("deleted or has expired"), "{text}");
}

// promise: CC-5
#[tokio::test]
async fn the_threshold_can_change_with_messages_in_flight() {
    let (codec, _) = in_memory();
    let payload = Bytes::from(vec![7; 1_000]);
    let mut bodies = Vec::new();
    for threshold in [0, 1_000, 1_001, usize::MAX] {
        bodies.push(codec.clone().threshold(threshold).encode(&payload).await.unwrap());
    }
    assert_eq!(bodies.iter().map(Bytes::len).collect::<Vec<_>>(), [39, 39, 1_003, 1_003]);
    for threshold in [0, 500, usize::MAX] {
        for body in &bodies {
            let read = codec.clone().threshold(threshold).decode(body.clone(), None).await;
            assert_eq!(read.unwrap(), payload);
        }
    }
}

#[tokio::test]
async fn the_content_type_is_the_wrapped_codecs() {
    let codec = ClaimCheck::new(Json, MemoryClaimCheckStore::new());
    assert_eq!(Encode::<str>::content_type(&codec), "application/json");
    assert!(Decode::<String>::accepts(&codec, None));
    assert!(!Decode::<String>::accepts(&codec, Some("text/plain")));
    let error = Decode::<u8>::decode(&codec, Bytes::from_static(b"\xac\x01\x00{"), None).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Decode);
    let text = ClaimCheck::new(Text, MemoryClaimCheckStore::new()).threshold(1);
    let body = text.encode("Ana Söderström").await.unwrap();
    assert_eq!(text.decode(body, Some("text/plain")).await.unwrap(), "Ana Söderström");
}

#[tokio::test]
async fn an_inline_payload_is_read_without_a_copy() {
    let (codec, _) = in_memory();
    let body = codec.encode(&vec![7; 10_000]).await.unwrap();
    let payload = codec.decode(body.clone(), None).await.unwrap();
    assert_eq!(payload.as_ptr(), body[3..].as_ptr());
}

#[tokio::test]
async fn a_key_that_is_none_is_refused_before_the_store_is_asked() {
    let store = Scripted::default();
    let codec = ClaimCheck::new(RawBytes::default(), store.clone());
    let long = "k".repeat(129);
    for key in [
        "",
        ".",
        "..",
        "../up",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "C:a",
        "a\n",
        "a\0",
        "a b",
        ".hidden",
        "-flag",
        "%2e%2e",
        "ключ",
        &long,
    ] {
        let error = codec.decode(stands_for(key), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode, "{key:?}");
        assert!(!error.to_string().contains('\n') && error.to_string().len() < 400, "{error}");
    }
    let error = codec.decode(stands_for(b"\xff\xfe"), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert_eq!(store.asked(), 0);
}

#[tokio::test]
async fn a_store_that_gives_no_key_fails_the_send() {
    for key in ["", "a/b", "trailing\n"] {
        let store = Scripted::new([Answer::Key(key)]);
        let codec = ClaimCheck::new(RawBytes::default(), store.clone()).threshold(0);
        let error = codec.encode(&b"payload"[..]).await.unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Encode, false), "{error}");
        assert_eq!(store.asked(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_moment_is_asked_again() {
    let store = Scripted::new([
        Answer::Fails(ErrorKind::Store),
        Answer::Hangs,
        Answer::Key(KEY),
        Answer::Hangs,
        Answer::Fails(ErrorKind::Lost),
        Answer::Payload(b"payload"),
    ]);
    let codec = ClaimCheck::new(RawBytes::default(), store.clone()).threshold(0);
    let body = codec.encode(&b"payload"[..]).await.unwrap();
    assert_eq!(codec.decode(body, None).await.unwrap(), &b"payload"[..]);
    assert_eq!(store.asked(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_is_a_transient_error_in_bounded_time() {
    let script = || [Answer::Hangs, Answer::Hangs, Answer::Hangs];
    let store = Scripted::new(script().into_iter().chain(script()));
    let codec = ClaimCheck::new(RawBytes::default(), store.clone())
        .threshold(0)
        .timeout(Duration::from_secs(7));
    let started = Instant::now();
    let sent = codec.encode(&b"payload"[..]).await.unwrap_err();
    let read = codec.decode(stands_for(KEY), None).await.unwrap_err();
    for error in [sent, read] {
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Timeout, true), "{error}");
    }
    let took = started.elapsed();
    assert!(took >= Duration::from_secs(42) && took < Duration::from_secs(44), "{took:?}");
}

#[tokio::test]
async fn what_will_not_get_better_is_not_tried_again() {
    for kind in [ErrorKind::Refused, ErrorKind::TooLarge] {
        let store = Scripted::new([Answer::Fails(kind)]);
        let codec = ClaimCheck::new(RawBytes::default(), store.clone()).threshold(0);
        let error = codec.encode(&b"payload"[..]).await.unwrap_err();
        assert_eq!((error.kind(), store.asked()), (kind, 1));
    }
}

#[tokio::test]
async fn only_what_is_wrong_with_the_object_itself_parks_its_message() {
    for (kind, read_as) in [
        (ErrorKind::NotFound, ErrorKind::NotFound),
        (ErrorKind::TooLarge, ErrorKind::TooLarge),
        (ErrorKind::Decode, ErrorKind::Decode),
        // These are about who asks.
        (ErrorKind::Refused, ErrorKind::Store),
        (ErrorKind::Authentication, ErrorKind::Store),
        (ErrorKind::Config, ErrorKind::Store),
    ] {
        let codec = ClaimCheck::new(RawBytes::default(), Scripted::new([Answer::Fails(kind)]));
        let error = codec.decode(stands_for(KEY), None).await.unwrap_err();
        assert_eq!(error.kind(), read_as);
        assert_eq!(error.is_transient(), read_as == ErrorKind::Store);
        assert!(error.to_string().contains(KEY) || kind == read_as, "{error}");
    }
}

#[tokio::test]
async fn a_store_chosen_at_run_time_serves_as_well() {
    let store = SharedClaimCheckStore::new(MemoryClaimCheckStore::new());
    let codec = ClaimCheck::new(Text, store.clone()).threshold(0);
    let body = codec.encode("payload").await.unwrap();
    assert_eq!(codec.decode(body.clone(), None).await.unwrap(), "payload");
    store.delete(ClaimCheck::key_of(&body).unwrap()).await.unwrap();
    assert!(codec.decode(body, None).await.is_err());
}

#[cfg(feature = "encryption")]
#[tokio::test]
async fn around_encryption_the_store_holds_what_is_encrypted_and_inside_of_it_the_payload() {
    use crate::{Encrypted, Keyring};

    let keys = Keyring::new("2026-01", [7; 32]).unwrap();
    let secret = "not for everybody";
    let (store, encrypted) = (MemoryClaimCheckStore::new(), Encrypted::new(Text, keys.clone()));
    let around = ClaimCheck::new(encrypted, store.clone()).threshold(0);
    let body = around.encode(secret).await.unwrap();
    let stored = store.get(ClaimCheck::key_of(&body).unwrap()).await.unwrap();
    assert!(!stored.windows(secret.len()).any(|part| part == secret.as_bytes()));
    let content_type = Some("application/vnd.acemq.encrypted");
    assert!(Decode::<String>::accepts(&around, content_type));
    assert_eq!(around.decode(body, content_type).await.unwrap(), secret);

    let inside = ClaimCheck::new(Text, store.clone()).threshold(0);
    let around = Encrypted::new(inside.clone(), keys);
    let body = around.encode(secret).await.unwrap();
    assert_eq!(ClaimCheck::key_of(&body), None);
    assert_eq!(Decode::<String>::decode(&around, body, content_type).await.unwrap(), secret);
    assert_eq!(store.len(), 2);
}

#[tokio::test]
async fn a_codec_that_reads_by_the_envelope_may_be_inside() {
    let by_type = crate::ByType::new(Json).read("order.placed", |order: String| order);
    let codec = ClaimCheck::new(by_type, MemoryClaimCheckStore::new());
    let body = Bytes::from_static(b"\xac\x01\x00\"o-1\"");
    let envelope = crate::Envelope::new("order.placed");
    assert_eq!(codec.decode_message(body, None, &envelope).await.unwrap(), "o-1");
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        prefix in prop::sample::select(vec![&b""[..], b"\xac", b"\xac\x01", b"\xac\x01\x00", b"\xac\x01\x01"]),
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let (codec, _) = in_memory();
        let body = Bytes::from([prefix, &rest[..]].concat());
        let _ = ClaimCheck::key_of(&body);
        match run(codec.decode(body.clone(), None)) {
            Ok(payload) => prop_assert!(body.ends_with(&payload)),
            Err(error) => {
                prop_assert!(body.starts_with(b"\xac\x01\x01"));
                prop_assert!(!error.is_transient());
            }
        }
    }

    #[test]
    fn what_was_encoded_comes_back(
        payload in prop::collection::vec(any::<u8>(), 0..200),
        threshold in 0..250_usize,
    ) {
        let (codec, store) = in_memory();
        let codec = codec.threshold(threshold);
        let body = run(codec.encode(&payload)).unwrap();
        prop_assert_eq!(store.len(), usize::from(payload.len() >= threshold));
        prop_assert_eq!(ClaimCheck::key_of(&body).is_some(), payload.len() >= threshold);
        prop_assert_eq!(run(codec.decode(body, None)).unwrap(), payload);
    }
}
