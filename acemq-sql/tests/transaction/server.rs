//! What needs a server between which and the consumer there is a network.

use std::time::Duration;

use testkit::eventually;

use super::{
    database::Idempotency,
    suite::{SOON, Shop, handle, settled},
};

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_while_the_commit_is_answered_doubles_and_loses_nothing() {
    let Some(shop) = Shop::open().await else { return };
    let (proxy, pool) = shop.database.distant_pool().await;
    let mut proxy = proxy.unwrap();
    let store = Idempotency::new(pool);
    let consumer = shop.consumer().start_in_transaction(store, handle).await.unwrap();
    proxy.delay(Duration::from_millis(400));
    shop.send("o-1").await;
    // Others see it before the consumer hears of it.
    eventually("it is committed", SOON, async || shop.effects().await == 1).await;
    proxy.cut().await;
    eventually("its message goes back", SOON, async || consumer.counters().returned == 1).await;
    proxy.delay(Duration::ZERO);
    proxy.restore().await;
    settled(&consumer, 1).await;
    assert_eq!(consumer.counters().duplicates, 1);
    assert_eq!((shop.effects().await, shop.confirmed().await), (1, 1));
}
