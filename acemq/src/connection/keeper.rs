//! Keeps one broker connection alive.
//!
//! A [`LinkKeeper`] owns the task that watches a link, dials again with backoff when it ends, and
//! brings exclusive queues back before anybody gets the new link.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::state::{ConnectionState, StateWatch};
use crate::{
    backoff::Backoff,
    error::{Error, ErrorKind, Result},
    transport::{BindingSpec, DialOptions, Link, LinkState, QueueSpec, Transport},
};

/// The pauses between attempts at reconnecting: doubling between these, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A connection that lasted this long was a good one: the next attempt is made at once.
const STABLE: Duration = Duration::from_secs(5);

/// What a connection owns on the broker, declared again on every new link.
#[derive(Debug, Default)]
pub(super) struct OwnedTopology {
    queues: Vec<QueueSpec>,
    bindings: Vec<BindingSpec>,
}

#[derive(Debug)]
pub(super) struct LinkKeeper {
    shared: Arc<Shared>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    transport: Arc<dyn Transport>,
    options: DialOptions,
    link: watch::Sender<Option<Arc<dyn Link>>>,
    state: watch::Sender<ConnectionState>,
    /// The live link's; apart from it, since whoever watches must not keep a link.
    address: watch::Sender<Option<String>>,
    owned: Mutex<OwnedTopology>,
    closing: CancellationToken,
}

impl LinkKeeper {
    pub(super) fn new(transport: Arc<dyn Transport>, options: DialOptions) -> Self {
        Self {
            shared: Arc::new(Shared {
                transport,
                options,
                link: watch::Sender::new(None),
                state: watch::Sender::new(ConnectionState::Idle),
                address: watch::Sender::new(None),
                owned: Mutex::default(),
                closing: CancellationToken::new(),
            }),
            task: Mutex::new(None),
        }
    }

    /// Dials once, so that the caller gets the error of a connection that cannot be made.
    pub(super) async fn connect(&self) -> Result<()> {
        let link = self.shared.dial().await?;
        tracing::info!(
            connection = %self.shared.options.connection_name, address = link.address(), "connected"
        );
        self.start(Some(link));
        Ok(())
    }

    pub(super) fn watch(&self) -> StateWatch {
        StateWatch {
            state: self.shared.state.subscribe(),
            address: self.shared.address.subscribe(),
        }
    }

    /// The live link, if there is one.
    pub(super) fn current(&self) -> Option<Arc<dyn Link>> {
        self.shared.link.borrow().clone()
    }

    /// The live link, waited for until `deadline`; the connection is begun if it was not.
    pub(super) async fn link(&self, deadline: Instant) -> Result<Arc<dyn Link>> {
        if let Some(link) = self.current() {
            return Ok(link);
        }
        self.start(None);
        let mut links = self.shared.link.subscribe();
        let wait = links.wait_for(Option::is_some);
        tokio::select! {
            biased;
            () = self.shared.closing.cancelled() => Err(closed()),
            found = tokio::time::timeout_at(deadline, wait) => match found {
                Ok(Ok(link)) => link.clone().ok_or_else(closed),
                Ok(Err(_)) => Err(closed()),
                Err(_) => Err(self.not_connected()),
            },
        }
    }

    /// Waits until `old` is no longer the live link, or until `deadline`.
    pub(super) async fn wait_past(&self, old: &Arc<dyn Link>, deadline: Instant) {
        let mut links = self.shared.link.subscribe();
        let past = links.wait_for(|link| link.as_ref().is_none_or(|link| !Arc::ptr_eq(link, old)));
        // Past the deadline the caller finds the same link and reports what happens on it.
        let _ = tokio::time::timeout_at(deadline, past).await;
    }

    /// Declares a queue of the connection's own again, with its bindings; any other is left alone.
    pub(super) async fn restore(&self, link: &dyn Link, name: &str) -> Result<()> {
        self.shared.restore(link, name).await
    }

    /// Remembers a queue that the broker deletes by itself, so that it comes back.
    pub(super) fn own_queue(&self, queue: QueueSpec) {
        let mut owned = self.owned();
        owned.queues.retain(|known| known.name != queue.name);
        owned.queues.push(queue);
    }

    /// Remembers a binding if it is of such a queue.
    pub(super) fn own_binding(&self, binding: &BindingSpec) {
        let mut owned = self.owned();
        if owned.queues.iter().any(|queue| queue.name == binding.queue)
            && !owned.bindings.contains(binding)
        {
            owned.bindings.push(binding.clone());
        }
    }

    pub(super) fn disown_binding(&self, binding: &BindingSpec) {
        self.owned().bindings.retain(|known| known != binding);
    }

    pub(super) fn disown_queue(&self, name: &str) {
        let mut owned = self.owned();
        owned.queues.retain(|queue| queue.name != name);
        owned.bindings.retain(|binding| binding.queue != name);
    }

    /// Ends the connection for good and waits until it has ended.
    pub(super) async fn close(&self) {
        self.shared.closing.cancel();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // A task that was aborted or panicked has ended as well.
            let _ = task.await;
        }
        self.shared.set_link(None);
        self.shared.state.send_replace(ConnectionState::Closed);
    }

    fn owned(&self) -> std::sync::MutexGuard<'_, OwnedTopology> {
        self.shared.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to keep the connection, once; a link that is already there is kept from then on.
    fn start(&self, link: Option<Arc<dyn Link>>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.is_some() || self.shared.closing.is_cancelled() {
            return;
        }
        if let Some(link) = &link {
            self.shared.set_link(Some(Arc::clone(link)));
            self.shared.state.send_replace(ConnectionState::Connected);
        }
        let shared = Arc::clone(&self.shared);
        *task = Some(AbortOnDropHandle::new(tokio::spawn(async move { shared.keep(link).await })));
    }

    fn not_connected(&self) -> Error {
        let state = self.shared.state.borrow().clone();
        let reason = match state {
            ConnectionState::Recovering { reason, .. } => format!("{reason}; attempts go on"),
            _ => "connecting takes longer than the caller waits".to_owned(),
        };
        Error::new(ErrorKind::Connect, format!("not connected to the broker ({reason})"))
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client is closed")
}

/// None before the first attempt, then growing.
fn pauses() -> Backoff {
    Backoff::at_once(FIRST_PAUSE, LONGEST_PAUSE)
}

impl Shared {
    async fn keep(&self, first: Option<Arc<dyn Link>>) {
        let mut next = first;
        let mut backoff = pauses();
        loop {
            let link = match next.take() {
                Some(link) => link,
                None => tokio::select! {
                    () = self.closing.cancelled() => return,
                    link = self.dial_until_connected(&mut backoff) => link,
                },
            };
            let connected = Instant::now();
            self.set_link(Some(Arc::clone(&link)));
            tokio::select! {
                () = self.closing.cancelled() => {
                    link.close().await;
                    return;
                }
                reason = self.follow(&*link) => {
                    self.set_link(None);
                    tracing::warn!(
                        connection = %self.options.connection_name, %reason, "connection lost"
                    );
                    self.state.send_replace(ConnectionState::Recovering { attempt: 1, reason });
                }
            }
            if connected.elapsed() >= STABLE {
                backoff = pauses();
            }
        }
    }

    fn set_link(&self, link: Option<Arc<dyn Link>>) {
        self.address.send_replace(link.as_ref().map(|link| link.address().to_owned()));
        self.link.send_replace(link);
    }

    /// Reports what the link does until it ends, and says why it did.
    async fn follow(&self, link: &dyn Link) -> String {
        let mut states = link.state();
        loop {
            let state = states.borrow_and_update().clone();
            match state {
                LinkState::Open => {
                    self.state.send_replace(ConnectionState::Connected);
                }
                LinkState::Blocked(reason) => {
                    tracing::warn!(
                        connection = %self.options.connection_name, %reason,
                        "the broker has blocked this connection; publishing is paused"
                    );
                    self.state.send_replace(ConnectionState::Blocked(reason));
                }
                LinkState::Ended(reason) => return reason,
            }
            if states.changed().await.is_err() {
                return "the transport is gone".to_owned();
            }
        }
    }

    async fn dial_until_connected(&self, backoff: &mut Backoff) -> Arc<dyn Link> {
        let mut attempt = 1_u32;
        loop {
            backoff.pause().await;
            match self.dial().await {
                Ok(link) => {
                    tracing::info!(
                        connection = %self.options.connection_name, address = link.address(),
                        attempt, "connected"
                    );
                    return link;
                }
                Err(error) => {
                    tracing::warn!(
                        connection = %self.options.connection_name, attempt, %error,
                        "connecting failed; trying again"
                    );
                    attempt = attempt.saturating_add(1);
                    let reason = error.to_string();
                    self.state.send_replace(ConnectionState::Recovering { attempt, reason });
                }
            }
        }
    }

    /// A new link on which the connection's own queues exist again.
    async fn dial(&self) -> Result<Arc<dyn Link>> {
        let link = self.transport.dial(self.options.clone()).await?;
        let names: Vec<String> = {
            let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
            // An auto-delete queue comes back with its consumer: without one it would stay.
            let exclusive = owned.queues.iter().filter(|queue| queue.exclusive);
            exclusive.map(|queue| queue.name.clone()).collect()
        };
        for name in &names {
            match self.restore(&*link, name).await {
                // One queue must not keep every consumer away. Its own consumer tries again: the
                // broker may not have seen the end of the last connection yet, whose queue it was.
                Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Conflict) => {
                    tracing::error!(
                        connection = %self.options.connection_name, %error,
                        "a queue of the connection's own did not come back with it"
                    );
                }
                restored => restored?,
            }
        }
        Ok(link)
    }

    /// Declares a queue of the connection's own again, with its bindings; any other is left alone.
    async fn restore(&self, link: &dyn Link, name: &str) -> Result<()> {
        let (queue, bindings) = {
            let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(queue) = owned.queues.iter().find(|queue| queue.name == name) else {
                return Ok(());
            };
            let bindings = owned.bindings.iter().filter(|binding| binding.queue == name);
            (queue.clone(), bindings.cloned().collect::<Vec<_>>())
        };
        link.declare_queue(&queue).await?;
        for binding in &bindings {
            match link.bind_queue(binding).await {
                // One exchange that was deleted must not keep every consumer away.
                Err(error) if error.kind() == ErrorKind::NotFound => tracing::error!(
                    connection = %self.options.connection_name, %error,
                    "a binding of a queue of the connection's own did not come back with it"
                ),
                bound => bound?,
            }
        }
        Ok(())
    }
}
