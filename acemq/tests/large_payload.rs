//! How much memory a large payload takes. In a test crate of its own, because the peak that is
//! read is that of the whole process.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "what goes wrong here is a failure of the test")]

use std::time::Duration;

use acemq::{
    ClaimCheck, FileClaimCheckStore, HandlerError, Json, Message, Queue, testing::MemoryBroker,
};
use testkit::eventually;

const PAYLOAD: usize = 100 * 1024 * 1024;
/// The payload and its JSON, or the JSON and the payload, and the rest of the process.
const AT_MOST: u64 = 250_000_000;

/// The most memory that this process has had at once, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

async fn check(message: Message<String>) -> Result<(), HandlerError> {
    let payload = message.payload();
    if payload.len() == PAYLOAD && payload.bytes().all(|byte| byte == b'x') {
        return Ok(());
    }
    Err(HandlerError::fatal("this is not what was sent"))
}

#[tokio::test]
async fn a_payload_of_100_mb_takes_less_than_250_mb_to_send_and_to_receive() {
    let broker = MemoryBroker::new();
    let folder = tempfile::tempdir().unwrap();
    let mq = acemq::connect(broker.url()).await.unwrap();
    mq.declare_queue(&Queue::new("scans").dead_letters()).await.unwrap();
    let codec = ClaimCheck::new(Json, FileClaimCheckStore::new(folder.path()));

    let before = peak();
    let payload = "x".repeat(PAYLOAD);
    mq.publisher::<String>("", "scans").codec(codec.clone()).send(&payload).await.unwrap();
    drop(payload);
    let sent = peak();
    let consumer = mq.consumer::<String>("scans").codec(codec).start(check).await.unwrap();
    eventually("it is handled", Duration::from_secs(60), async || {
        let counters = consumer.counters();
        counters.acknowledged + counters.rejected + counters.parked > 0
    })
    .await;
    let received = peak();

    println!("peak before {before}, after sending {sent}, after receiving {received} bytes");
    assert_eq!(consumer.counters().acknowledged, 1, "{:?}", broker.queue("scans.parked"));
    assert!(sent > before + PAYLOAD as u64, "{before}, {sent}: nothing was measured");
    assert!(received < AT_MOST, "{received}");
    mq.close().await.unwrap();
}
