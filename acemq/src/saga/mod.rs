//! Sagas: work in several steps, of which the finished ones are undone when a later one fails.
//!
//! A saga is no transaction. After the payment was taken the money has moved, and whoever looks
//! sees it; the refund is a new fact and no erasure. So a step has to be one that can be undone by
//! doing something.
//!
//! [`Saga`] lives in the process: the state of a run is in memory, and a crash leaves it where it
//! was. [`DurableSaga`] has its state in a store, and any process goes on with it.

mod attempts;
mod builder;
mod durable;
mod failure;
mod in_process;
mod journal;
mod path;
mod result;
mod running;
mod step;
#[cfg(test)]
mod tests;

pub use self::{
    builder::{SagaBuilder, SagaStepBuilder},
    durable::{
        ClaimedSaga, DurableSaga, DurableSagaBuilder, DurableStepBuilder, JoinsTransaction,
        MemorySagaStore, NewSaga, ReplyOutcome, SagaBegun, SagaClaim, SagaFilter, SagaInstance,
        SagaInstances, SagaNext, SagaQuery, SagaResolution, SagaStatus, SagaStep, SagaStepStatus,
        SagaStore, SagaWorker, SagaWorkerBuilder, SagaWorkerCounters, SagaWorkerState, SagaWrite,
        StepAttempts, StepContext, StoredSaga, TransactionalSagaStore,
    },
    failure::StepFailure,
    in_process::Saga,
    result::SagaResult,
    running::RunSaga,
};
