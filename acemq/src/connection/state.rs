//! What a connection is doing, for people and health checks.

use tokio::sync::watch;

/// The state of one of a client's two broker connections.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Not dialled yet (see [`connect_lazy`](crate::connect_lazy)).
    Idle,
    /// Connected, and publishing is not paused.
    Connected,
    /// Connected, and the broker has paused publishing for this reason (a memory or disk alarm).
    Blocked(String),
    /// Lost, and being made again.
    Recovering {
        /// Which attempt at reconnecting is next, counted from 1.
        attempt: u32,
        /// Why it was lost, or why the last attempt failed.
        reason: String,
    },
    /// Closed by [`Client::close`](crate::Client::close).
    Closed,
}

/// Follows the state of a connection. From [`Client::publishing`](crate::Client::publishing) and
/// [`Client::consuming`](crate::Client::consuming).
#[derive(Clone, Debug)]
pub struct StateWatch {
    pub(super) state: watch::Receiver<ConnectionState>,
    pub(super) address: watch::Receiver<Option<String>>,
}

impl StateWatch {
    /// The state now; [`ConnectionState::Closed`] once the client is gone.
    #[must_use]
    pub fn current(&self) -> ConnectionState {
        match self.state.has_changed() {
            Ok(_) => self.state.borrow().clone(),
            Err(_) => ConnectionState::Closed,
        }
    }

    /// Which of the broker's addresses the connection is made to, without its secret; `None` while
    /// there is no connection.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        match self.address.has_changed() {
            Ok(_) => self.address.borrow().clone(),
            Err(_) => None,
        }
    }

    /// Waits for the next change and says what it is; [`ConnectionState::Closed`] once the client
    /// is gone. May be dropped at any await: no change is lost, several may be seen as the last.
    pub async fn changed(&mut self) -> ConnectionState {
        if self.state.changed().await.is_err() {
            return ConnectionState::Closed;
        }
        self.state.borrow_and_update().clone()
    }

    /// Waits until the state is one that `wanted` accepts, or the client is gone.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&ConnectionState) -> bool) {
        // An error means that the client is gone: nothing more will change.
        let _ = self.state.wait_for(|state| wanted(state)).await;
    }
}
