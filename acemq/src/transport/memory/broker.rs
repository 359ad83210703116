//! One broker: its state behind a lock, and the one task that watches deadlines.

use std::{
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::Waker,
};

use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::JoinHandle,
    time::sleep_until,
};

use super::state::{Id, State};
use crate::transport::{LinkState, PublishAnswer, PublishFailure};

pub(super) struct Broker {
    name: String,
    state: Mutex<State>,
    /// Held while a link is told of its state.
    telling: Mutex<()>,
    /// Tells the timer that there is a deadline it has not seen.
    new_deadline: Arc<Notify>,
    timer: Mutex<Option<JoinHandle<()>>>,
}

impl Broker {
    pub(super) fn start(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            state: Mutex::new(State::new()),
            telling: Mutex::default(),
            new_deadline: Arc::default(),
            timer: Mutex::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Does something to the state under the lock, after everything whose time has come, and
    /// then what follows from it outside of the lock.
    pub(super) fn act<R>(self: &Arc<Self>, act: impl FnOnce(&mut State) -> R) -> R {
        let (result, effects) = {
            let mut state = lock(&self.state);
            state.expire_due();
            let result = act(&mut state);
            (result, mem::take(&mut state.effects))
        };
        if effects.new_deadline {
            self.keep_time();
        }
        effects.changed.iter().for_each(|&link| self.tell(link));
        effects.perform();
        result
    }

    /// Tells a link what its state is now. Telling one after the other, each what is so by then,
    /// makes the last thing a link hears the truth.
    fn tell(&self, link: Id) {
        let _in_order = lock(&self.telling);
        let Some((link, now)) = lock(&self.state).link_state(link) else { return };
        announce(&link, now);
    }

    /// Sees to it that the timer runs and looks at the deadlines again.
    ///
    /// A runtime takes its tasks with it when it ends, so the task is started again where a broker
    /// outlives one. Outside of any runtime there is no timer, and what is due happens with the
    /// next thing that anybody does.
    fn keep_time(self: &Arc<Self>) {
        let mut timer = lock(&self.timer);
        if timer.as_ref().is_none_or(JoinHandle::is_finished)
            && let Ok(runtime) = Handle::try_current()
        {
            *timer = Some(
                runtime.spawn(watch_deadlines(Arc::downgrade(self), self.new_deadline.clone())),
            );
        }
        self.new_deadline.notify_one();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(timer) = lock(&self.timer).take() {
            timer.abort();
        }
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("name", &self.name).finish_non_exhaustive()
    }
}

async fn watch_deadlines(broker: Weak<Broker>, new_deadline: Arc<Notify>) {
    loop {
        let Some(next) = broker.upgrade().map(|broker| broker.act(|state| state.next_deadline()))
        else {
            return;
        };
        match next {
            None => new_deadline.notified().await,
            Some(deadline) => tokio::select! {
                () = sleep_until(deadline) => {}
                () = new_deadline.notified() => {}
            },
        }
    }
}

/// What follows from a change, done when the lock is free again: all of it may run or wake code
/// that uses the broker in turn.
#[derive(Default)]
pub(super) struct Effects {
    /// Consumers that have something to take.
    pub(super) wake: Vec<Waker>,
    /// Publishes that waited for the end of a block.
    pub(super) answers: Vec<(PublishAnswer, Result<(), PublishFailure>)>,
    /// Links that are to be told of their state.
    pub(super) changed: Vec<Id>,
    /// Links that ended, and why.
    pub(super) ended: Vec<(watch::Sender<LinkState>, String)>,
    /// Whether there is a deadline that the timer has not seen.
    pub(super) new_deadline: bool,
}

impl Effects {
    fn perform(self) {
        for (link, reason) in self.ended {
            announce(&link, LinkState::Ended(reason));
        }
        for (answer, verdict) in self.answers {
            answer.complete(verdict);
        }
        for waker in self.wake {
            waker.wake();
        }
    }
}

/// Changes a link's state for those who watch it. Its end is the last change.
fn announce(link: &watch::Sender<LinkState>, now: LinkState) {
    link.send_if_modified(|state| {
        let changes = !matches!(state, LinkState::Ended(_)) && *state != now;
        if changes {
            *state = now;
        }
        changes
    });
}

/// A panic of somebody else's inside the lock leaves nothing half done that would not be valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
