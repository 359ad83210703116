//! Many messages in flight, begun in order.

use std::pin::pin;

use futures_util::{StreamExt, stream::FuturesOrdered};

/// What was begun and is not finished. Messages are handed over one after the other, so that
/// their order stands, while those before them wait for their verdicts together.
pub(crate) struct Flight<F: Future> {
    waiting: FuturesOrdered<F>,
    done: Vec<F::Output>,
}

impl<F: Future> Flight<F> {
    pub(crate) fn new() -> Self {
        Self { waiting: FuturesOrdered::new(), done: Vec::new() }
    }

    /// Runs `begin` to its end, and lets what is in flight go on meanwhile.
    pub(crate) async fn meanwhile<T>(&mut self, begin: impl Future<Output = T>) -> T {
        let mut begin = pin!(begin);
        loop {
            tokio::select! {
                biased;
                begun = &mut begin => return begun,
                Some(done) = self.waiting.next(), if !self.waiting.is_empty() => {
                    self.done.push(done);
                }
            }
        }
    }

    pub(crate) fn push(&mut self, finish: F) {
        self.waiting.push_back(finish);
    }

    /// Waits for everything and gives the results in the order of [`push`](Self::push).
    pub(crate) async fn finish(mut self) -> Vec<F::Output> {
        while let Some(done) = self.waiting.next().await {
            self.done.push(done);
        }
        self.done
    }
}
