//! A saga whose state is in the process.

use std::{fmt, sync::Arc};

use tokio_util::task::TaskTracker;

use super::{
    path::{Path, Steps},
    running::RunSaga,
    step::StepOptions,
};

/// Steps that are taken one after the other, and of which the finished ones are undone, the last one
/// first, when one fails. It is given an `In` and makes an `Out`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use std::time::Duration;
/// use acemq::{HandlerError, RetryPolicy, Saga};
///
/// #[derive(Clone)]
/// struct Order { id: String }
/// #[derive(Clone)]
/// struct Paid { order: Order, payment: u64 }
///
/// async fn take_payment(order: Order) -> Result<Paid, HandlerError> {
///     Ok(Paid { order, payment: 4_711 }) // what the next step, and the refund, are given
/// }
/// async fn refund(paid: Paid) -> Result<(), HandlerError> {
///     println!("refunding {}", paid.payment);
///     Ok(())
/// }
/// async fn refund_if_charged(order: Order) -> Result<(), HandlerError> {
///     println!("looking for a payment of {}", order.id);
///     Ok(())
/// }
/// async fn book_courier(paid: Paid) -> Result<String, HandlerError> {
///     Err(HandlerError::fatal(format!("no courier is free for {}", paid.order.id)))
/// }
///
/// let booking = Saga::named("place-order")
///     .step("take-payment", take_payment)
///     .retry(RetryPolicy::exponential(3, Duration::from_millis(200), Duration::from_secs(2)))
///     .timeout(Duration::from_secs(5))
///     .compensate_with(refund)
///     .when_in_doubt(refund_if_charged)
///     .step("book-courier", book_courier)
///     .build()?;
///
/// let result = booking.run(Order { id: "o-1".to_owned() }).await;
/// assert_eq!(result.failed_at(), Some("book-courier"));
/// assert_eq!(result.compensated(), ["take-payment"]);
/// assert!(!result.needs_attention());
/// # Ok(()) }
/// ```
///
/// **What goes from step to step** is what each returns; its type is checked. One type for the whole
/// saga does as well, and a step that only acts returns what it was given. A failed attempt leaves
/// nothing in it, since each attempt has a copy of its own. What is large belongs in an
/// [`Arc`].
///
/// **It is no transaction.** The payment is taken and seen before the refund is made. And a run is in
/// memory: a crash leaves it where it was. Where that must not be, let it be
/// [durable](Saga::durable); steps that only go forward survive it as a pipeline
/// ([`Client::pipeline`]), and messages as an outbox ([`OutboxRelay`]).
///
/// Cloning it is cheap.
///
/// [`Client::pipeline`]: crate::Client::pipeline
/// [`OutboxRelay`]: crate::OutboxRelay
pub struct Saga<In, Out = In> {
    name: Arc<str>,
    steps: Arc<[Arc<StepOptions>]>,
    path: Arc<dyn Path<In, Out>>,
    /// Runs that nobody waits for any more, on their way back.
    left: TaskTracker,
}

impl<In, Out> Saga<In, Out> {
    pub(super) fn new(steps: Steps<In, Out>) -> Self {
        let left = TaskTracker::new();
        // It takes tasks all the same; this is what lets `drain` see that there are none.
        left.close();
        let Steps { saga, options, path } = steps;
        Self { name: saga.into(), steps: options.into(), path: path.into(), left }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of its steps, in their order.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|step| &*step.name)
    }

    /// Takes the steps. Whatever goes wrong on the way is in the result.
    ///
    /// # Cancellation
    /// Dropping the future cancels the run, as a handler's timeout, `select!` or a client that hangs
    /// up does. Half a saga is not left behind for that: the step in hand is let to its end, no
    /// other step or retry begins, and what was finished is compensated, in a task of its own, which
    /// ends by itself. If the step in hand was the last one and succeeds, the saga is complete. What
    /// became of it is in the log, and [`drain`](Self::drain) waits for it. To have a run go on
    /// forward instead, give it a task: `tokio::spawn(saga.run(input))`. A future that is dropped
    /// before it was first polled has begun nothing.
    ///
    /// A runtime that ends on the way ends the run where it is; what it has not undone by then is
    /// logged as an error.
    pub fn run(&self, input: In) -> RunSaga<Out>
    where
        In: Send + 'static,
        Out: Send + 'static,
    {
        RunSaga::new(Arc::clone(&self.name), Arc::clone(&self.path), input, self.left.clone())
    }

    /// Waits for the runs of this saga, and of its clones, whose futures were dropped: until each
    /// has been compensated, or is complete. That takes as long as the timeouts and retries of
    /// steps and compensations let it. Call it before the process ends.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing for the runs.
    pub async fn drain(&self) {
        self.left.wait().await;
    }
}

impl<In, Out> Clone for Saga<In, Out> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            steps: Arc::clone(&self.steps),
            path: Arc::clone(&self.path),
            left: self.left.clone(),
        }
    }
}

impl<In, Out> fmt::Debug for Saga<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saga").field("name", &self.name).field("steps", &self.steps).finish()
    }
}
