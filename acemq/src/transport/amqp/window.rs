//! What is in flight on the publishing channel, by its delivery tags.
//!
//! RabbitMQ sends a return before the confirm of the same publish, and the returns in the order
//! of the publishes. So a return belongs to the first publish in flight that it describes and that
//! has none yet.

use std::collections::VecDeque;

use crate::transport::{Publish, PublishAnswer, PublishFailure};

/// A publish that has its verdict.
pub(super) type Settled = (PublishAnswer, Result<(), PublishFailure>);

#[derive(Debug)]
pub(super) struct Window {
    /// In the order of their tags; without gaps, since whatever is answered out of order leaves an
    /// empty place.
    entries: VecDeque<Entry>,
    /// The tag of the first entry. Tags of a channel count from 1.
    first: u64,
    /// Tags from this one on have not been handed to the socket.
    unwritten: u64,
}

#[derive(Debug)]
struct Entry {
    publish: Option<Publish>,
    returned: Option<Box<PublishFailure>>,
}

impl Default for Window {
    fn default() -> Self {
        Self { entries: VecDeque::new(), first: 1, unwritten: 1 }
    }
}

impl Window {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn push(&mut self, publish: Publish) {
        self.entries.push_back(Entry { publish: Some(publish), returned: None });
    }

    /// Everything so far goes to the socket now.
    pub(super) fn written(&mut self) {
        self.unwritten = self.first + self.entries.len() as u64;
    }

    /// Notes that the broker returned a message.
    pub(super) fn returned(
        &mut self,
        (message_id, exchange, routing_key): (&str, &str, &str),
        failure: PublishFailure,
    ) {
        let describes = |entry: &&mut Entry| {
            entry.returned.is_none()
                && entry.publish.as_ref().is_some_and(|Publish { message, .. }| {
                    message.mandatory
                        && message.routing_key == routing_key
                        && message.exchange == exchange
                        && message.properties.message_id.as_deref().unwrap_or("") == message_id
                })
        };
        if let Some(entry) = self.entries.iter_mut().find(describes) {
            entry.returned = Some(Box::new(failure));
        }
    }

    /// Takes what a confirm answers: that tag, or all up to it.
    pub(super) fn settle(
        &mut self,
        tag: u64,
        multiple: bool,
        acked: bool,
        settled: &mut Vec<Settled>,
    ) {
        // A tag of 0 stands for all there are.
        let tag = if tag == 0 && multiple { u64::MAX } else { tag };
        if multiple {
            while self.first <= tag
                && let Some(entry) = self.entries.pop_front()
            {
                self.first += 1;
                settled.extend(entry.settled(acked));
            }
            return;
        }
        let index = tag.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) else { return };
        settled.extend(
            Entry { publish: entry.publish.take(), returned: entry.returned.take() }.settled(acked),
        );
        while self.entries.front().is_some_and(|entry| entry.publish.is_none()) {
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// Takes what is unanswered, in order; the tags start anew.
    pub(super) fn take(&mut self) -> Vec<Publish> {
        let Self { entries, first, unwritten } = std::mem::take(self);
        (first..)
            .zip(entries)
            .filter_map(|(tag, entry)| {
                let mut publish = entry.publish?;
                publish.written |= tag < unwritten;
                Some(publish)
            })
            .collect()
    }
}

impl Entry {
    fn settled(self, acked: bool) -> Option<Settled> {
        let verdict = match (self.returned, acked) {
            (Some(failure), _) => Err(*failure),
            (None, true) => Ok(()),
            (None, false) => Err(PublishFailure::Rejected),
        };
        Some((self.publish?.answer, verdict))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use tokio::sync::oneshot;

    use super::*;
    use crate::{envelope::Headers, transport::Outgoing};

    type Verdicts = Vec<oneshot::Receiver<Result<(), PublishFailure>>>;

    /// A window of messages with these ids, and where their verdicts come.
    fn window(ids: &[&str]) -> (Window, Verdicts) {
        let mut window = Window::default();
        let verdicts = ids.iter().map(|id| {
            let (sender, verdict) = oneshot::channel();
            let to = (String::new(), "key".to_owned());
            let message =
                Outgoing::new(to, (*id).to_owned(), String::new(), Headers::new(), Bytes::new());
            let answer = PublishAnswer { sender, permit: None };
            window.push(Publish::new(Arc::new(message), answer));
            verdict
        });
        let verdicts = verdicts.collect();
        (window, verdicts)
    }

    fn confirm(window: &mut Window, tag: u64, multiple: bool, acked: bool) {
        let mut settled = Vec::new();
        window.settle(tag, multiple, acked, &mut settled);
        for (answer, verdict) in settled {
            answer.complete(verdict);
        }
    }

    /// `+` confirmed, `-` rejected, `u` unroutable, `.` unanswered.
    fn seen(verdicts: &mut Verdicts) -> String {
        let seen = verdicts.iter_mut().map(|verdict| match verdict.try_recv() {
            Ok(Ok(())) => '+',
            Ok(Err(PublishFailure::Rejected)) => '-',
            Ok(Err(PublishFailure::Unroutable { .. })) => 'u',
            Ok(Err(other)) => panic!("{other:?}"),
            Err(_) => '.',
        });
        seen.collect()
    }

    fn unroutable() -> PublishFailure {
        PublishFailure::Unroutable { code: 312, reason: "NO_ROUTE".to_owned() }
    }

    #[test]
    fn a_confirm_answers_one_or_all_up_to_it() {
        let (mut window, mut verdicts) = window(&["1", "2", "3", "4", "5", "6"]);
        confirm(&mut window, 3, false, true);
        confirm(&mut window, 2, true, true);
        confirm(&mut window, 5, false, false);
        // One that has been answered, and one that was never sent.
        confirm(&mut window, 3, false, true);
        confirm(&mut window, 7, false, true);
        assert_eq!(seen(&mut verdicts), "+++.-.");
    }

    #[test]
    fn a_confirm_of_no_tag_answers_all_there_are() {
        let (mut window, mut verdicts) = window(&["1", "2", "3"]);
        confirm(&mut window, 0, true, true);
        assert!(window.is_empty());
        assert_eq!(seen(&mut verdicts), "+++");
    }

    #[test]
    fn a_return_belongs_to_the_first_message_that_it_describes() {
        let (mut window, mut verdicts) = window(&["a", "b", "a", "b"]);
        window.returned(("b", "", "key"), unroutable());
        window.returned(("b", "", "another key"), unroutable());
        window.returned(("a", "", "key"), unroutable());
        window.returned(("a", "", "key"), unroutable());
        confirm(&mut window, 4, true, true);
        assert_eq!(seen(&mut verdicts), "uuu+");
    }

    #[test]
    fn what_never_went_to_the_socket_was_certainly_not_published() {
        let (mut window, _verdicts) = window(&["1", "2"]);
        window.written();
        let (later, _more) = self::window(&["3"]);
        for publish in { later }.take() {
            window.push(publish);
        }
        let written: Vec<bool> = window.take().iter().map(|publish| publish.written).collect();
        assert_eq!(written, [true, true, false]);
        assert!(window.is_empty());
    }
}
