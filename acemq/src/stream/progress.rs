//! How far a reader has come.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::transport::Settler;

/// What was delivered and where it stands. Handlers begin in the order of the offsets and may finish
/// in any.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Everything below this is finished, or was not asked for.
    next: Option<u64>,
    /// The id of the message just before, if it is known.
    last_id: Option<String>,
    /// What was delivered from there on. The first of it is unfinished.
    open: BTreeMap<u64, Entry>,
    /// Which stream of this name it is, counted from the first.
    generation: u64,
}

struct Entry {
    stage: Stage,
    /// How to acknowledge it, while its channel lives.
    receipt: Option<(Arc<dyn Settler>, u64)>,
    id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Running,
    Finished,
}

/// What a delivery is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    /// Nobody has seen it.
    New,
    /// It was finished before: acknowledge it.
    Finished,
    /// Its handler runs since before the channel was lost, and settles it.
    Running,
}

impl Progress {
    /// A reader to which everything from there on belongs; the message just before has this id, if
    /// that is known.
    pub(super) fn at(next: u64, last_id: Option<String>) -> Self {
        Self { next: Some(next), last_id, ..Self::default() }
    }

    /// A reader that has seen nothing of another stream of the same name.
    pub(super) fn begin_anew(&mut self) {
        *self = Self { generation: self.generation + 1, ..Self::default() };
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The offset below which everything is handled, or does not belong to the reader.
    pub(super) fn next(&self) -> Option<u64> {
        self.next
    }

    /// Everything up to it is handled.
    pub(super) fn handled(&self) -> Option<u64> {
        self.next.and_then(|next| next.checked_sub(1))
    }

    /// The first offset that has to come after the channel was lost: the oldest that is unfinished, or
    /// the next. `None` where nothing was handled or is being, and nothing said where to begin.
    pub(super) fn resume(&self) -> Option<u64> {
        self.open.keys().next().copied().or(self.next)
    }

    /// The offset of the newest message before, or at, the one to resume with that was in the stream:
    /// what is there now tells whether it is the same stream.
    pub(super) fn anchor(&self) -> Option<u64> {
        self.handled().or_else(|| self.open.keys().next().copied())
    }

    /// The id of the message at an offset, where it is known.
    pub(super) fn id_at(&self, offset: u64) -> Option<&str> {
        if self.handled() == Some(offset) {
            return self.last_id.as_deref();
        }
        self.open.get(&offset)?.id.as_deref()
    }

    /// Whether a message is another one than was read at its offset.
    pub(super) fn contradicts(&self, offset: u64, id: Option<&str>) -> bool {
        self.id_at(offset).is_some_and(|known| Some(known) != id)
    }

    pub(super) fn deliver(
        &mut self,
        offset: u64,
        receipt: (Arc<dyn Settler>, u64),
        id: Option<&str>,
    ) -> Delivered {
        if self.next.is_some_and(|next| offset < next) {
            return Delivered::Finished;
        }
        match self.open.get_mut(&offset) {
            Some(Entry { stage: Stage::Finished, .. }) => Delivered::Finished,
            Some(entry) => {
                entry.receipt = Some(receipt);
                Delivered::Running
            }
            None => {
                let id = id.map(str::to_owned);
                let entry = Entry { stage: Stage::Waiting, receipt: Some(receipt), id };
                self.open.insert(offset, entry);
                Delivered::New
            }
        }
    }

    pub(super) fn begin(&mut self, offset: u64) {
        if let Some(entry) = self.open.get_mut(&offset) {
            entry.stage = Stage::Running;
        }
    }

    /// Notes that one is finished, and gives what acknowledges it.
    pub(super) fn finish(
        &mut self,
        offset: u64,
        generation: u64,
    ) -> Option<(Arc<dyn Settler>, u64)> {
        if generation != self.generation {
            return None;
        }
        let entry = self.open.get_mut(&offset)?;
        entry.stage = Stage::Finished;
        let receipt = entry.receipt.take();
        while let Some(first) = self.open.first_entry()
            && first.get().stage == Stage::Finished
        {
            let (offset, entry) = first.remove_entry();
            self.next = Some(offset.saturating_add(1));
            self.last_id = entry.id;
        }
        receipt
    }

    /// The channel is gone: what waits comes again, and nothing else can be acknowledged. What is
    /// behind the first that waits comes again with it: no handler has begun there, and to keep what a
    /// filter left out would let it pass for the end of what is finished.
    pub(super) fn lose(&mut self) {
        let waits = self.open.iter().find(|(_, entry)| entry.stage == Stage::Waiting);
        if let Some(first) = waits.map(|(offset, _)| *offset) {
            self.open.split_off(&first);
        }
        for entry in self.open.values_mut() {
            entry.receipt = None;
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stage.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl Settler for Nowhere {
        fn is_open(&self) -> bool {
            true
        }

        fn ack(&self, _: u64) -> bool {
            true
        }

        fn nack(&self, _: u64, _: bool) -> bool {
            true
        }
    }

    fn deliver(progress: &mut Progress, offset: u64, tag: u64) -> Delivered {
        progress.deliver(offset, (Arc::new(Nowhere), tag), Some(&offset.to_string()))
    }

    fn finish(progress: &mut Progress, offset: u64) -> Option<u64> {
        progress.finish(offset, 0).map(|(_, tag)| tag)
    }

    #[test]
    fn what_is_handled_is_the_lowest_offset_behind_which_nothing_is_open() {
        let mut progress = Progress::default();
        for offset in 10..14 {
            assert_eq!(deliver(&mut progress, offset, offset), Delivered::New);
            progress.begin(offset);
        }
        for (finished, handled, resume) in [(12, None, 10), (10, Some(10), 11), (11, Some(12), 13)]
        {
            assert_eq!(finish(&mut progress, finished), Some(finished));
            assert_eq!((progress.handled(), progress.resume()), (handled, Some(resume)));
        }
        assert_eq!(finish(&mut progress, 13), Some(13));
        assert_eq!((progress.handled(), progress.resume()), (Some(13), Some(14)));
        assert_eq!(progress.id_at(13), Some("13"));
    }

    #[test]
    fn a_reader_that_was_told_where_to_begin_resumes_there() {
        for (next, handled) in [(0, None), (1, Some(0)), (u64::MAX, Some(u64::MAX - 1))] {
            let mut progress = Progress::at(next, None);
            assert_eq!((progress.handled(), progress.resume()), (handled, Some(next)));
            assert_eq!(progress.anchor(), handled);
            progress.lose();
            assert_eq!(progress.resume(), Some(next));
        }
    }

    #[test]
    fn another_message_at_an_offset_that_was_read_is_another_stream() {
        let mut progress = Progress::at(5, Some("4".to_owned()));
        assert!(progress.contradicts(4, Some("x")) && progress.contradicts(4, None));
        deliver(&mut progress, 5, 0);
        progress.begin(5);
        progress.lose();
        assert_eq!(progress.anchor(), Some(4));
        assert!(progress.contradicts(5, Some("x")));
        for (offset, id) in [(4, "4"), (5, "5"), (3, "x"), (6, "x")] {
            assert!(!progress.contradicts(offset, Some(id)), "{offset}");
        }

        // Nothing was handled yet: the one that is being handled tells.
        let mut progress = Progress::default();
        assert_eq!(progress.anchor(), None);
        deliver(&mut progress, 7, 0);
        progress.begin(7);
        assert_eq!((progress.anchor(), progress.contradicts(7, Some("x"))), (Some(7), true));
        finish(&mut progress, 7);
        assert_eq!((progress.anchor(), progress.contradicts(7, Some("x"))), (Some(7), true));
        // A checkpoint does not know the ids.
        assert!(!Progress::at(8, None).contradicts(7, Some("x")));
    }

    #[test]
    fn an_offset_that_holds_no_message_is_no_gap() {
        let mut progress = Progress::at(5, None);
        assert_eq!(progress.resume(), Some(5));
        for offset in [6, 9] {
            deliver(&mut progress, offset, 0);
            finish(&mut progress, offset);
        }
        assert_eq!(progress.handled(), Some(9));
    }

    #[test]
    fn after_a_loss_what_ran_on_is_not_begun_again_and_settles_what_came_again() {
        let mut progress = Progress::default();
        for offset in 0..4 {
            deliver(&mut progress, offset, 100 + offset);
        }
        progress.begin(0);
        progress.begin(1);
        finish(&mut progress, 1);
        progress.lose();
        assert_eq!(progress.resume(), Some(0));

        assert_eq!(deliver(&mut progress, 0, 200), Delivered::Running);
        assert_eq!(deliver(&mut progress, 1, 201), Delivered::Finished);
        assert_eq!(deliver(&mut progress, 2, 202), Delivered::New);
        assert_eq!(finish(&mut progress, 0), Some(200));
        assert_eq!(progress.handled(), Some(1));

        // Once more, with nothing that runs.
        progress.lose();
        assert_eq!(progress.resume(), Some(2));
        assert_eq!(deliver(&mut progress, 1, 301), Delivered::Finished);
    }

    #[test]
    fn what_a_filter_left_out_behind_a_waiting_message_does_not_hide_it_after_a_loss() {
        let mut progress = Progress::default();
        for offset in 0..3 {
            deliver(&mut progress, offset, offset);
        }
        progress.begin(0);
        finish(&mut progress, 2);
        progress.lose();
        finish(&mut progress, 0);
        assert_eq!((progress.handled(), progress.resume()), (Some(0), Some(1)));
        assert_eq!(deliver(&mut progress, 1, 101), Delivered::New);
        assert_eq!(deliver(&mut progress, 2, 102), Delivered::New);
    }

    #[test]
    fn a_handler_that_finishes_while_the_channel_is_gone_acknowledges_nothing() {
        let mut progress = Progress::default();
        deliver(&mut progress, 7, 1);
        progress.begin(7);
        progress.lose();
        assert_eq!(finish(&mut progress, 7), None);
        assert_eq!((progress.handled(), progress.resume()), (Some(7), Some(8)));
    }

    #[test]
    fn a_handler_of_another_stream_finishes_nothing_here() {
        let mut progress = Progress::default();
        deliver(&mut progress, 7, 1);
        progress.begin(7);
        progress.begin_anew();
        deliver(&mut progress, 7, 2);
        assert_eq!(finish(&mut progress, 7), None);
        assert_eq!((progress.handled(), progress.resume()), (None, Some(7)));
    }

    #[test]
    fn where_nothing_was_begun_nothing_says_where_to_resume() {
        let mut progress = Progress::default();
        deliver(&mut progress, 7, 1);
        progress.lose();
        assert_eq!(progress.resume(), None);
    }
}
