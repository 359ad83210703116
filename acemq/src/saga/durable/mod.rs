//! Sagas whose state is in a store, and which survive a crash.
//!
//! An instance is a row: where it stands, what it has done, who holds it and until when. Everything
//! that drives it is between two writes of that row: `engine` takes what a claim found to what is
//! written next, `attempt` makes what is between.

mod attempt;
mod builder;
mod context;
mod ended;
mod engine;
mod held;
mod instance;
mod instances;
mod journal;
mod key;
mod lease;
mod memory;
mod reply;
mod saga;
mod signal;
mod status;
mod store;
#[cfg(test)]
mod tests;
mod transaction;
mod work;
mod worker;

pub use self::{
    builder::{DurableSagaBuilder, DurableStepBuilder},
    context::StepContext,
    instance::{SagaInstance, SagaStep, SagaStepStatus, StepAttempts},
    instances::{SagaFilter, SagaInstances, SagaResolution},
    memory::MemorySagaStore,
    reply::ReplyOutcome,
    saga::{DurableSaga, SagaBegun},
    status::SagaStatus,
    store::{
        ClaimedSaga, NewSaga, SagaClaim, SagaNext, SagaQuery, SagaStore, SagaWrite, StoredSaga,
    },
    transaction::{JoinsTransaction, TransactionalSagaStore},
    worker::{SagaWorker, SagaWorkerBuilder, SagaWorkerCounters, SagaWorkerState},
};
