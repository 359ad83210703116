//! How a body says whether it is the payload or stands for one in a store.
//!
//! The frames are the family's: `AC 01 00` and the payload, or `AC 01 01` and the key in UTF-8.
//! Every other body was written without a claim check.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::codec::framed::CLAIM_CHECK as MARK;

const INLINE: u8 = 0;
const STORED: u8 = 1;
/// How many bytes stand before the payload or the key.
pub(super) const PREFIX: usize = 3;

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// No frame: the payload as it is.
    Absent,
    /// The payload follows the prefix.
    Inline,
    /// The payload is in the store under this key, which anybody may have written.
    Stored(&'a [u8]),
}

impl<'a> Frame<'a> {
    pub(super) fn of(body: &'a [u8]) -> Self {
        match body {
            [first, second, INLINE, ..] if [*first, *second] == MARK => Self::Inline,
            [first, second, STORED, key @ ..] if [*first, *second] == MARK => Self::Stored(key),
            _ => Self::Absent,
        }
    }
}

/// A body that carries its payload.
pub(super) fn inline(payload: &[u8]) -> Bytes {
    framed(INLINE, payload)
}

/// A body that stands for the payload under that key.
pub(super) fn stored(key: &str) -> Bytes {
    framed(STORED, key.as_bytes())
}

fn framed(kind: u8, rest: &[u8]) -> Bytes {
    let mut body = BytesMut::with_capacity(PREFIX + rest.len());
    body.put_slice(&MARK);
    body.put_u8(kind);
    body.put_slice(rest);
    body.freeze()
}
