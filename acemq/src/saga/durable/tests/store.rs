//! A store that counts what is asked of it, and fails when it is told to.

use super::*;
use crate::consume::CommitError;
use crate::outbox::MemoryOutboxStore;

#[derive(Clone)]
pub(crate) struct Spy {
    pub(crate) inner: MemorySagaStore,
    calls: Arc<Mutex<Vec<&'static str>>>,
    is_down: Arc<Mutex<Down>>,
    fault: Arc<Mutex<Option<Fault>>>,
    /// A commit that was not answered and is still under way.
    under_way: Arc<Mutex<Option<(SagaClaim, SagaWrite)>>>,
}

/// What is refused, of what is asked about which instance, and what is to be written.
type Fault = Box<dyn Fn(&str, &str, Option<&SagaWrite>) -> Option<ErrorKind> + Send>;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Down {
    No,
    /// Everything fails, and nothing is done.
    Yes,
    /// Everything is done, and its answer is lost.
    Deaf,
}

impl Spy {
    pub(crate) fn new() -> Self {
        Self::over(MemorySagaStore::new())
    }

    pub(crate) fn sending(outbox: &MemoryOutboxStore) -> Self {
        Self::over(MemorySagaStore::new().outbox(outbox.clone()))
    }

    fn over(inner: MemorySagaStore) -> Self {
        Self {
            inner,
            calls: Arc::default(),
            is_down: Arc::new(Mutex::new(Down::No)),
            fault: Arc::default(),
            under_way: Arc::default(),
        }
    }

    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn is(&self, down: Down) {
        *self.is_down.lock().unwrap() = down;
    }

    pub(crate) fn refuses(
        &self,
        fault: impl Fn(&str, &str, Option<&SagaWrite>) -> Option<ErrorKind> + Send + 'static,
    ) {
        *self.fault.lock().unwrap() = Some(Box::new(fault));
    }

    pub(crate) fn refuses_nothing(&self) {
        *self.fault.lock().unwrap() = None;
    }

    /// Fails where it is to, and hangs instead of timing out.
    async fn faulty(&self, call: &'static str, key: &str, write: Option<&SagaWrite>) -> Result<()> {
        let fault = self.fault.lock().unwrap().as_ref().and_then(|fault| fault(call, key, write));
        match fault {
            Some(ErrorKind::Timeout) => std::future::pending().await,
            Some(kind) => Err(Error::new(kind, "it is refused")),
            None => Ok(()),
        }
    }

    async fn ask<T>(
        &self,
        call: &'static str,
        question: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.calls.lock().unwrap().push(call);
        let down = *self.is_down.lock().unwrap();
        if down == Down::Yes {
            return Err(Error::new(ErrorKind::Store, "the database is away"));
        }
        let answer = question.await;
        if down == Down::Deaf && call == "write" {
            self.is(Down::No);
            return Err(Error::new(ErrorKind::Store, "the answer was lost"));
        }
        answer
    }
}

impl SagaStore for Spy {
    async fn insert(&self, new: &NewSaga, lease: Duration) -> Result<Option<ClaimedSaga>> {
        self.ask("insert", self.inner.insert(new, lease)).await
    }

    async fn claim_due(
        &self,
        saga: &str,
        steps: &str,
        most: usize,
        lease: Duration,
    ) -> Result<Vec<ClaimedSaga>> {
        self.ask("claim_due", self.inner.claim_due(saga, steps, most, lease)).await
    }

    async fn claim(&self, key: &str, steps: &str, lease: Duration) -> Result<Option<ClaimedSaga>> {
        self.ask("claim", self.inner.claim(key, steps, lease)).await
    }

    async fn write(&self, claim: &SagaClaim, write: &SagaWrite) -> Result<bool> {
        self.faulty("write", claim.key(), Some(write)).await?;
        self.ask("write", self.inner.write(claim, write)).await
    }

    async fn renew(&self, claim: &SagaClaim, lease: Duration) -> Result<bool> {
        self.faulty("renew", claim.key(), None).await?;
        let under_way = self.under_way.lock().unwrap().take();
        if let Some((claim, write)) = under_way {
            // It had the row, and whoever renews waits for that.
            let _ = self.inner.write(&claim, &write).await?;
        }
        self.ask("renew", self.inner.renew(claim, lease)).await
    }

    async fn change(&self, read: &StoredSaga, write: &SagaWrite) -> Result<bool> {
        self.ask("change", self.inner.change(read, write)).await
    }

    async fn find(&self, key: &str) -> Result<Option<StoredSaga>> {
        self.ask("find", self.inner.find(key)).await
    }

    async fn list(&self, query: &SagaQuery) -> Result<Vec<StoredSaga>> {
        self.ask("list", self.inner.list(query)).await
    }

    async fn with_other_steps(
        &self,
        saga: &str,
        steps: &str,
        most: usize,
    ) -> Result<Vec<StoredSaga>> {
        self.faulty("with_other_steps", saga, None).await?;
        self.ask("with_other_steps", self.inner.with_other_steps(saga, steps, most)).await
    }

    fn sends(&self) -> bool {
        self.inner.sends()
    }
}

/// Each commit is one whose answer is lost while it is under way.
impl TransactionalSagaStore for Spy {
    type Transaction = ();
    type Hold = ();

    async fn open(&self) -> Result<((), ())> {
        Ok(((), ()))
    }

    async fn commit(
        &self,
        (): (),
        (): (),
        claim: &SagaClaim,
        write: &SagaWrite,
    ) -> Result<bool, CommitError> {
        *self.under_way.lock().unwrap() = Some((claim.clone(), write.clone()));
        Err(CommitError::Unknown(Error::new(ErrorKind::Store, "the answer was lost")))
    }

    async fn roll_back(&self, (): ()) {}

    fn is_conflict(&self, _: &(dyn std::error::Error + 'static)) -> bool {
        false
    }
}

// promise: SG-7
#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_is_a_typed_error_that_says_what_is_known() {
    let (store, trace) = (Spy::new(), Trace::default());
    store.is(Down::Yes);
    let saga = three_steps(store.clone(), &trace);
    let error = saga.run("o-1", &1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("not known whether it was begun"), "{error}");
    assert!(trace.all().is_empty());
    assert_eq!(saga.start("o-1", &1).await.unwrap_err().kind(), ErrorKind::Store);

    // While it runs: the write is tried again for a lease, and what was written last stands.
    store.is(Down::No);
    let cut = {
        let (store, trace) = (store.clone(), trace.clone());
        move |given: u32, step: StepContext| {
            trace.note(format!("{} #{}", step.step(), step.attempt()));
            store.is(Down::Yes);
            std::future::ready(Ok::<_, HandlerError>(given))
        }
    };
    let saga = Saga::durable("cut", store.clone()).step("pay", cut).build().unwrap();
    let error = saga.run("o-1", &1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("a worker goes on from there"), "{error}");
    store.is(Down::No);
    tokio::time::sleep(LEASE).await;
    let instance = saga.instances().find("o-1").await.unwrap().unwrap();
    assert_eq!((instance.status, instance.is_held), (SagaStatus::Running, false));
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_counts_and_runs_nothing_twice() {
    for last in [false, true] {
        let (store, trace) = (Spy::new(), Trace::default());
        let deaf = {
            let (store, trace) = (store.clone(), trace.clone());
            move |given: u32, step: StepContext| {
                trace.note(format!("{} #{}", step.step(), step.attempt()));
                store.is(Down::Deaf);
                std::future::ready(Ok::<_, HandlerError>(given + 1))
            }
        };
        let saga = Saga::durable("order", store.clone()).step("pay", deaf);
        let saga = match last {
            true => saga.build(),
            false => saga.step("ship", noted(&trace)).build(),
        };
        let result = saga.unwrap().run("o-1", &1).await.unwrap();
        assert_eq!(result.output(), Some(if last { &2 } else { &3 }));
        assert_eq!(trace.count("pay"), 1);
    }
}
