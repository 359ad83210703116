//! The ladder by itself, and messages that no scheduler of ours would write.

mod ladder;
mod strangers;
