//! What a step may be called.

use crate::error::{Error, ErrorKind, Result};

/// A step's name is a routing key, the end of a queue's name and an entry in a list with commas, in
/// every language of the family.
pub(super) fn check(action: &str, step: &str) -> Result<()> {
    let mut letters = step.bytes();
    let begins_well = letters.next().is_some_and(|first| first.is_ascii_alphanumeric());
    if begins_well && letters.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-')) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Config,
        format!(
            "{action}: \"{}\" is no name for a step; use letters, digits, \
             dashes and dots, with a letter or digit first",
            step.escape_debug()
        ),
    ))
}
