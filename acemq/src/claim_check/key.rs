//! Which texts are keys.

use crate::error::{Error, ErrorKind, Result};

const LONGEST: usize = 128;

/// Whether a text is a key: no path, no empty text, nothing that a file system or a store's
/// address would read in a way of its own.
pub(super) fn is_key(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
}

/// Refuses what is no key.
pub(super) fn check(text: &str) -> Result<()> {
    if is_key(text) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Decode,
        format!(
            "look up a claim check: {} is no key; a key has 1 to {LONGEST} letters, digits, '.', \
             '_' or '-' and begins with a letter or digit",
            shown(text)
        ),
    ))
}

/// A text that may be anything, safe to print: quoted, escaped and cut.
pub(super) fn shown(text: &str) -> String {
    let start: String = text.chars().take(LONGEST).collect();
    let cut = if start.len() < text.len() { "…" } else { "" };
    format!("{start:?}{cut}")
}
