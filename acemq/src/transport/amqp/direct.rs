//! Direct reply-to: replies that come on the channel that the requests went out on, without a queue.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::sync::oneshot;

use super::{assembly::Assembly, decode::Method, publish::Publisher};
use crate::transport::{ConsumeEnd, ConsumeEvent, Delivery, Properties, ReplyStream};

/// The publishing channel's side: what comes in goes to the inbox.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) tag: String,
    arriving: Assembly,
    inbox: Arc<Inbox>,
    begun: Option<oneshot::Sender<()>>,
}

/// Replies that have come and were not taken.
#[derive(Debug, Default)]
struct Inbox(Mutex<Arrived>);

#[derive(Debug, Default)]
struct Arrived {
    replies: VecDeque<Delivery>,
    end: Option<ConsumeEnd>,
    reader: Option<Waker>,
}

impl Listener {
    /// A listener, its reading end, and what completes when the broker has consented.
    pub(super) fn new(publisher: &Arc<Publisher>) -> (Self, DirectReplies, oneshot::Receiver<()>) {
        let (begun, has_begun) = oneshot::channel();
        let (tag, inbox) = (format!("acemq-{}", uuid::Uuid::new_v4()), Arc::default());
        let replies = DirectReplies {
            publisher: Arc::clone(publisher),
            tag: tag.clone(),
            inbox: Arc::clone(&inbox),
        };
        let listener = Self { tag, arriving: Assembly::default(), inbox, begun: Some(begun) };
        (listener, replies, has_begun)
    }

    pub(super) fn begun(&mut self) {
        if let Some(begun) = self.begun.take() {
            // Whoever asked may have gone.
            let _ = begun.send(());
        }
    }

    pub(super) fn begin(&mut self, method: Method<'_>) {
        self.arriving.begin(method);
    }

    pub(super) fn properties(&mut self, size: u64, properties: Properties) {
        let whole = self.arriving.properties(size, properties);
        self.inbox.take(whole);
    }

    pub(super) fn body(&mut self, part: &[u8]) {
        let whole = self.arriving.body(part);
        self.inbox.take(whole);
    }

    /// No more replies come.
    pub(super) fn end(self, end: ConsumeEnd) {
        let mut arrived = self.inbox.lock();
        arrived.end = Some(end);
        arrived.wake();
    }
}

impl Inbox {
    fn take(&self, reply: Option<Delivery>) {
        if let Some(reply) = reply {
            let mut arrived = self.lock();
            arrived.replies.push_back(reply);
            arrived.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arrived {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The reading end. Dropping it ends the listening.
pub(super) struct DirectReplies {
    publisher: Arc<Publisher>,
    tag: String,
    inbox: Arc<Inbox>,
}

impl ReplyStream for DirectReplies {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<ConsumeEvent> {
        let mut arrived = self.inbox.lock();
        if let Some(reply) = arrived.replies.pop_front() {
            return Poll::Ready(ConsumeEvent::Delivery(reply));
        }
        if let Some(end) = &arrived.end {
            return Poll::Ready(ConsumeEvent::Ended(end.clone()));
        }
        arrived.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for DirectReplies {
    fn drop(&mut self) {
        self.publisher.stop_listening(&self.tag);
    }
}

impl fmt::Debug for DirectReplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectReplies").field("tag", &self.tag).finish_non_exhaustive()
    }
}
