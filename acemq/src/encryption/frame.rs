//! The frame around an encrypted body.
//!
//! ```text
//! AE 01 | length of the key id, 1 byte | key id, UTF-8 | nonce, 12 bytes | ciphertext | tag, 16 bytes
//! ```
//!
//! What stands before the nonce is authenticated with the body.

use aws_lc_rs::aead::NONCE_LEN;

use super::keyring::TAG_LEN;
use crate::{
    codec::framed::{self, ENCRYPTED},
    error::{Error, ErrorKind, Result},
};

const MAGIC: u8 = ENCRYPTED[0];
const VERSION: u8 = ENCRYPTED[1];
/// Before the key id.
const PREFIX: usize = 3;

/// A frame taken apart.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) key_id: &'a str,
    /// What is authenticated beside the body.
    pub(super) head: &'a [u8],
    pub(super) nonce: [u8; NONCE_LEN],
    /// How far in the ciphertext begins; the tag is at its end.
    pub(super) sealed_from: usize,
}

/// The bytes before the nonce, for an id that a keyring has checked.
pub(super) fn head(key_id: &str) -> Vec<u8> {
    let mut head = Vec::with_capacity(PREFIX + key_id.len());
    // An id is at most 255 bytes long.
    head.extend([MAGIC, VERSION, u8::try_from(key_id.len()).unwrap_or(u8::MAX)]);
    head.extend_from_slice(key_id.as_bytes());
    head
}

pub(super) fn read(body: &[u8]) -> Result<Frame<'_>> {
    let (key_id, id_end) = read_key_id(body)?;
    let sealed_from = id_end + NONCE_LEN;
    let nonce = body.get(id_end..sealed_from).and_then(|nonce| nonce.try_into().ok());
    match nonce {
        Some(nonce) if body.len() >= sealed_from + TAG_LEN => {
            Ok(Frame { key_id, head: &body[..id_end], nonce, sealed_from })
        }
        _ => Err(refused("it ends before its tag; it was cut short")),
    }
}

/// The key id, and where it ends.
pub(super) fn read_key_id(body: &[u8]) -> Result<(&str, usize)> {
    let [magic, version, length, ..] = *body else {
        return Err(refused("it is too short to be an encrypted frame"));
    };
    if magic != MAGIC {
        return Err(refused(
            framed::hint(body).unwrap_or(
                "it does not begin as an encrypted frame does; was it encrypted at all?",
            ),
        ));
    }
    if version != VERSION {
        return Err(refused(&format!(
            "its frame has version {version}, and this library reads version {VERSION}; update it"
        )));
    }
    if length == 0 {
        return Err(refused("its key id is empty"));
    }
    let end = PREFIX + usize::from(length);
    let id = body.get(PREFIX..end).ok_or_else(|| refused("it ends within its key id"))?;
    let id = std::str::from_utf8(id).map_err(|_| refused("its key id is not valid UTF-8"))?;
    Ok((id, end))
}

pub(super) fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Decode, format!("decrypt the body: {what}"))
}
