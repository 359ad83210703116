//! Answers that never change, asked for once.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::{FutureExt, Shared, WeakShared};

use crate::{
    error::{Error, Result},
    transport::BoxFuture,
};

/// What was answered is kept for good; "not there" and failures are not kept. Whoever asks while
/// the same is being asked gets the same answer, a failure included.
pub(super) struct Once<K, V>(Mutex<HashMap<K, State<V>>>);

type Question<V> = BoxFuture<'static, Result<Option<V>, Arc<Error>>>;

enum State<V> {
    Known(V),
    /// Ends with the last of those who wait for it.
    Asked(WeakShared<Question<V>>),
}

impl<K: Eq + Hash + Clone, V: Clone + Send + 'static> Once<K, V> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    pub(super) async fn get<F>(&self, key: K, ask: impl FnOnce() -> F) -> Result<Option<V>>
    where
        F: Future<Output = Result<Option<V>>> + Send + 'static,
    {
        let question = match self.known_or_asked(&key, ask) {
            Ok(known) => return Ok(Some(known)),
            Err(question) => question,
        };
        let waiting = Waiting { all: self, key, question };
        match waiting.question.clone().await {
            Ok(Some(value)) => {
                self.lock().insert(waiting.key.clone(), State::Known(value.clone()));
                Ok(Some(value))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error.again()),
        }
    }

    fn known_or_asked<F>(&self, key: &K, ask: impl FnOnce() -> F) -> Result<V, Shared<Question<V>>>
    where
        F: Future<Output = Result<Option<V>>> + Send + 'static,
    {
        let mut all = self.lock();
        match all.get(key) {
            Some(State::Known(value)) => return Ok(value.clone()),
            Some(State::Asked(question)) => {
                if let Some(question) = question.upgrade() {
                    return Err(question);
                }
            }
            None => {}
        }
        let question: Question<V> = Box::pin(ask().map(|answer| answer.map_err(Arc::new)));
        let question = question.shared();
        if let Some(asked) = question.downgrade() {
            all.insert(key.clone(), State::Asked(asked));
        }
        Err(question)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, State<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who waits for an answer. Whatever ends the waiting, a question without an answer is
/// not kept: a flood of unknown keys would fill the memory.
struct Waiting<'a, K: Eq + Hash + Clone, V: Clone + Send + 'static> {
    all: &'a Once<K, V>,
    key: K,
    question: Shared<Question<V>>,
}

impl<K: Eq + Hash + Clone, V: Clone + Send + 'static> Drop for Waiting<'_, K, V> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        // Others that wait for it would miss those who ask from now on, and they it: no harm, the
        // answers are the same.
        if matches!(all.get(&self.key), Some(State::Asked(_))) {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;
    use crate::error::ErrorKind;

    #[tokio::test]
    async fn an_answer_is_kept_and_a_missing_one_and_a_failure_are_asked_for_again() {
        let once = Once::new();
        let failure = || Error::new(ErrorKind::Store, "away");
        let failed = once.get(1, || async move { Err::<Option<u8>, _>(failure()) }).await;
        assert!(failed.unwrap_err().is_transient());
        assert_eq!(once.get(1, || async { Ok(None) }).await.unwrap(), None);
        assert!(once.lock().is_empty());
        assert_eq!(once.get(1, || async { Ok(Some(7)) }).await.unwrap(), Some(7));
        let kept = once.get(1, || async { Ok(Some(8)) }).await.unwrap();
        assert_eq!(kept, Some(7));
    }

    #[tokio::test]
    async fn whoever_waited_for_a_failure_is_told_all_of_it_once() {
        let once = Once::new();
        let failure = || Error::new(ErrorKind::Store, "away").with_source("pulled out");
        let failed = once.get(1, || async move { Err::<Option<u8>, _>(failure()) }).await;
        let error = failed.unwrap_err();
        let cause = std::error::Error::source(&error).unwrap();
        assert_eq!((error.to_string(), cause.to_string()), ("away".into(), "pulled out".into()));
    }

    #[tokio::test]
    async fn whoever_asks_meanwhile_gets_the_same_answer() {
        let once = Arc::new(Once::<u8, u32>::new());
        let (asked, answer) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (once, asked, answer) =
                (Arc::clone(&once), Arc::clone(&asked), Arc::clone(&answer));
            waiting.spawn(async move {
                let ask = || async move {
                    answer.notified().await;
                    Ok(Some(asked.fetch_add(1, Ordering::Relaxed)))
                };
                once.get(1, ask).await.unwrap()
            });
        }
        tokio::task::yield_now().await;
        answer.notify_one();
        assert_eq!(waiting.join_all().await, [Some(0); 20]);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_question_that_nobody_waits_for_any_more_ends_and_is_asked_anew() {
        let once = Once::new();
        let forever = once.get(1, std::future::pending);
        assert_eq!(forever.now_or_never().map(Result::unwrap), None);
        assert!(once.lock().is_empty());
        assert_eq!(once.get(1, || async { Ok(Some(7)) }).await.unwrap(), Some(7));
    }
}
