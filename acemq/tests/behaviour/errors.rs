//! What errors say: each cause once, however they are printed. Those of connecting are among the bad
//! input.

use acemq::{
    BoxError, ClaimCheckStore as _, ErrorKind, FileClaimCheckStore, HandlerError, Message,
    OutboxRecord, PublishContext, PublishInterceptor, Queue, StoredRecord, testing::MemoryBroker,
};
use testkit::said_once;

struct Refuses;

impl PublishInterceptor for Refuses {
    fn before_publish(&self, _: &mut PublishContext) -> Result<(), BoxError> {
        Err("not today".into())
    }
}

#[tokio::test]
async fn a_disk_that_refuses_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("no-directory");
    std::fs::write(&file, "").unwrap();
    let error = FileClaimCheckStore::new(&file).put("a payload".into()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    let cause = error.get_ref().unwrap().downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(said_once(&error).matches(&cause.to_string()).count(), 1);
}

#[tokio::test]
async fn an_interceptor_s_words_are_said_once() {
    let mq = acemq::connect(MemoryBroker::new().url()).intercept_publish(Refuses).await.unwrap();
    let error = mq.send_to_queue("orders", &7).await.unwrap_err();
    assert_eq!(said_once(&error).matches("not today").count(), 1);
    assert_eq!(error.get_ref().unwrap().to_string(), "not today");
}

#[tokio::test]
async fn a_batch_says_its_first_failure_once() {
    let mq = acemq::connect(MemoryBroker::new().url()).await.unwrap();
    let publisher = mq.publisher::<u32>("", "nobody");
    let error = publisher.send_all(&[1, 2]).await.unwrap_err();
    let first = error.failed().next().unwrap().1.to_string();
    assert_eq!(said_once(&error).matches(&first).count(), 1);
    assert_eq!(said_once(&acemq::Error::from(error)).matches(&first).count(), 1);
    mq.close().await.unwrap();
}

#[tokio::test]
async fn a_request_s_failure_is_said_once() {
    let mq = acemq::connect(MemoryBroker::new().url()).await.unwrap();
    mq.declare_queue(&Queue::new("prices").dead_letters()).await.unwrap();
    let handler = async |message: Message<u32>| match message.payload() {
        0 => Err(HandlerError::fatal("no such article")),
        _ => Ok("not a number".to_owned()),
    };
    let _responder = mq.consumer::<u32>("prices").respond(handler).await.unwrap();
    let requester = mq.requester().await.unwrap();
    let prices = requester.to::<u32, u32>("", "prices");
    let failed = prices.request(&0).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Responder);
    assert_eq!(said_once(&failed).matches("no such article").count(), 1);
    let unread = prices.request(&1).await.unwrap_err();
    assert_eq!(unread.kind(), ErrorKind::Decode);
    said_once(&unread);
    mq.close().await.unwrap();
}

#[test]
fn headers_of_a_record_that_are_no_json_are_said_once() {
    let stored = StoredRecord {
        id: "id-1".to_owned(),
        exchange_name: String::new(),
        routing_key: "orders".to_owned(),
        body: Vec::new(),
        content_type: "application/json".to_owned(),
        headers: "{\"n\":".to_owned(),
        created_at: std::time::SystemTime::UNIX_EPOCH,
    };
    let error = OutboxRecord::from_stored(stored).unwrap_err();
    assert_eq!(said_once(&error).matches("EOF").count(), 1, "{error}");
}
