//! What the store of durable sagas does on every database: the same.

mod beginning;
mod claiming;
mod killing;
mod messages;
mod tables;
mod transactions;
mod trouble;

use std::time::Duration;

use acemq::{
    ClaimedSaga, DurableSaga, HandlerError, NewSaga, Saga, SagaInstance, SagaInstances, SagaStatus,
    SagaStore, StepContext,
};
use testkit::eventually;

use super::database::{self, Database, Db, Outbox, Pool, Sagas};

pub(super) const SOON: Duration = Duration::from_secs(30);
pub(super) const LEASE: Duration = Duration::from_secs(60);

pub(super) type Numbers = DurableSaga<u32, u32, Sagas>;

/// A new instance of saga `s` with steps `x`, as the engine would write it.
pub(super) fn new(id: &str) -> NewSaga {
    NewSaga::new(format!("s/{id}"), "s", "x", "{}")
}

pub(super) async fn insert(store: &Sagas, id: &str, lease: Duration) -> ClaimedSaga {
    store.insert(&new(id), lease).await.unwrap().unwrap()
}

pub(super) async fn add(given: u32, _: StepContext) -> Result<u32, HandlerError> {
    Ok(given + 1)
}

pub(super) async fn nothing(_: u32, _: StepContext) -> Result<(), HandlerError> {
    Ok(())
}

/// Three local steps.
pub(super) fn three_steps(store: Sagas) -> Numbers {
    Saga::durable("order", store)
        .step("pay", add)
        .compensate_with(nothing)
        .step("reserve", add)
        .compensate_with(nothing)
        .step("ship", add)
        .build()
        .unwrap()
}

/// Waits until an instance of saga `order` stands there.
pub(super) async fn until(store: &Sagas, id: &str, status: SagaStatus) -> SagaInstance {
    let instances = SagaInstances::of("order", store);
    let mut found = None;
    eventually(&format!("{id} is {status}"), SOON, async || {
        found = instances.find(id).await.unwrap();
        found.as_ref().is_some_and(|instance| instance.status == status)
    })
    .await;
    found.unwrap()
}

/// Ends the lease, or the wait, of every instance.
pub(super) async fn make_due(database: &Database) {
    let sql = format!("UPDATE acemq_saga SET due_at = {} WHERE due_at IS NOT NULL", database::PAST);
    database.execute(&sql).await;
}
