//! Bodies with something around them, known by their first bytes to those who cannot read them
//! for it.

#[cfg(feature = "encryption")]
use crate::error::Error;

/// What a body with a claim check begins with, before the byte that says where its payload is.
pub(crate) const CLAIM_CHECK: [u8; 2] = [0xAC, 0x01];
/// What an encrypted body begins with, before the length of its key's id.
pub(crate) const ENCRYPTED: [u8; 2] = [0xAE, 0x01];

/// The nonce and the tag of an encrypted body.
const SEALED: usize = 12 + 16;

const CLAIM_CHECK_HINT: &str = "it begins with the frame of a claim check: read it with \
    `ClaimCheck` around this codec, and with the store that its publisher has";
const ENCRYPTED_HINT: &str = "it begins with the frame of an encrypted body: read it with \
    `Encrypted` around this codec, and with the keys that its publisher has";

/// What is around a body that could not be read, and what takes it off. Asked once reading has
/// failed: a body of another kind may begin so by chance, and then it is read.
pub(crate) fn hint(body: &[u8]) -> Option<&'static str> {
    match body {
        [first, second, 0 | 1, ..] if [*first, *second] == CLAIM_CHECK => Some(CLAIM_CHECK_HINT),
        [first, second, id, rest @ ..]
            if [*first, *second] == ENCRYPTED
                && *id > 0
                && rest.len() >= usize::from(*id) + SEALED =>
        {
            Some(ENCRYPTED_HINT)
        }
        _ => None,
    }
}

/// The hint in an error, for those who conceal the rest of it.
#[cfg(feature = "encryption")]
pub(crate) fn hint_of(error: &Error) -> Option<&'static str> {
    let text = error.to_string();
    [CLAIM_CHECK_HINT, ENCRYPTED_HINT].into_iter().find(|hint| text.ends_with(hint))
}
