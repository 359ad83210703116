//! How many partitions there are: a queue of its own says it, which the broker takes with one number
//! only, so that of two processes that begin at the same moment with different ones, one fails.

use super::Partitions;
use crate::{
    error::{Conflict, Error, ErrorKind, Result},
    topology::{DEAD_LETTER_EXCHANGE, Queue},
};

/// The argument that has the number. The broker compares it, and it does nothing where no message ever
/// is; of those that do so it is one that every kind and version of queue knows.
const NUMBER: &str = "x-dead-letter-routing-key";

impl Partitions {
    /// Makes sure, before anything else is declared, that everybody means the same number.
    pub(super) async fn agree_on_the_number(&self) -> Result<()> {
        let mark = format!("{}.partitions", self.name);
        // Another library declares none. And somebody may be about to declare more.
        if !self.exists(&mark).await?
            && let Err(other_number) = self.find().await
            && !self.exists(&mark).await?
        {
            return Err(other_number);
        }
        // A quorum queue as they are, so that it is there whenever they are.
        let queue = Queue::new(&*mark)
            .argument("x-dead-letter-exchange", DEAD_LETTER_EXCHANGE)
            .argument(NUMBER, self.count.to_string());
        let declared = self.client.declare(&queue.into()).await;
        declared.map_err(|error| match error.conflict() {
            Some(conflict) if conflict.argument == NUMBER => {
                let existing = &conflict.existing;
                let there = format!("by the queue {mark:?} there are {existing}");
                self.other_number(&there, &format!("take {existing}"), existing)
            }
            _ => error,
        })
    }

    /// Whether there are any; as many, then, as we think.
    pub(super) async fn find(&self) -> Result<bool> {
        let (first, last) = (self.is_there(0).await?, self.is_there(self.count - 1).await?);
        if first && !last {
            return self.too_many_or_few().await;
        }
        self.find_no_more().await?;
        Ok(first)
    }

    /// Makes sure that there are no more than we think, once all are there. Another library may have
    /// declared more of them meanwhile.
    pub(super) async fn find_no_more(&self) -> Result<()> {
        if self.is_there(self.count).await? {
            self.too_many_or_few().await?;
        }
        Ok(())
    }

    async fn is_there(&self, partition: u32) -> Result<bool> {
        self.exists(&self.queue(partition)).await
    }

    async fn exists(&self, queue: &str) -> Result<bool> {
        Ok(self.client.inspect_queue(queue).await?.is_some())
    }

    async fn too_many_or_few(&self) -> Result<bool> {
        let mut existing = 0;
        while self.is_there(existing).await? {
            existing += 1;
        }
        Err(if existing == 0 {
            // The first of them comes last when they are declared.
            let more = format!("more than {}", self.count);
            let there = format!("there are {more}, of which the first is missing");
            self.other_number(&there, "declare as many as there were to be", &more)
        } else {
            let there = format!("there are {existing}");
            self.other_number(&there, &format!("take {existing}"), &existing.to_string())
        })
    }

    fn other_number(&self, there: &str, advice: &str, existing: &str) -> Error {
        let Self { name, count, .. } = self;
        Error::new(
            ErrorKind::Conflict,
            format!(
                "declare partitions of {name:?}: {count} are asked for, and {there}; another number \
                 would put a key's messages into another queue than the earlier ones; {advice}, or \
                 empty and delete the queues first, \"{name}.partitions\" among them"
            ),
        )
        .with_conflict(Conflict::new("partitions", count.to_string(), existing))
    }
}
