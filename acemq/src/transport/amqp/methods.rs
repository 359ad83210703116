//! What the broker says on the publishing channel.

/// A method or the head of a content, as far as publishing is concerned.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    OpenOk,
    SelectOk,
    Ack {
        tag: u64,
        multiple: bool,
    },
    Nack {
        tag: u64,
        multiple: bool,
    },
    Return {
        code: u16,
        reason: &'a str,
        exchange: &'a str,
        routing_key: &'a str,
    },
    /// The properties of a returned message, of which only the id is of interest.
    Returned {
        message_id: &'a str,
    },
    Close {
        code: u16,
        text: &'a str,
    },
    /// A returned body, or something that is not meant for a publisher.
    Other,
}

const METHOD: u8 = 1;
const HEADER: u8 = 2;

/// Reads one frame; `None` if it is not what AMQP 0-9-1 says.
pub(super) fn read(kind: u8, payload: &[u8]) -> Option<Said<'_>> {
    let mut rest = Reader(payload);
    match kind {
        METHOD => method(&mut rest),
        HEADER => Some(Said::Returned { message_id: message_id(&mut rest)? }),
        _ => Some(Said::Other),
    }
}

fn method<'a>(rest: &mut Reader<'a>) -> Option<Said<'a>> {
    Some(match (rest.u16()?, rest.u16()?) {
        (20, 11) => Said::OpenOk,
        (20, 40) => Said::Close { code: rest.u16()?, text: rest.short()? },
        (85, 11) => Said::SelectOk,
        (60, 50) => Said::Return {
            code: rest.u16()?,
            reason: rest.short()?,
            exchange: rest.short()?,
            routing_key: rest.short()?,
        },
        (60, 80) => Said::Ack { tag: rest.u64()?, multiple: rest.u8()? & 1 == 1 },
        (60, 120) => Said::Nack { tag: rest.u64()?, multiple: rest.u8()? & 1 == 1 },
        _ => Said::Other,
    })
}

/// The message id in a content header; empty where there is none.
fn message_id<'a>(rest: &mut Reader<'a>) -> Option<&'a str> {
    // Class, weight and the size of the body.
    rest.take(12)?;
    let flags = rest.u16()?;
    let has = |bit: u16| flags & (1 << bit) != 0;
    // In the order of the flags: content type and encoding, headers, delivery mode, priority,
    // correlation id, reply-to, expiration, message id.
    for bit in [15, 14] {
        if has(bit) {
            rest.short()?;
        }
    }
    if has(13) {
        let length = rest.u32()?;
        rest.take(length as usize)?;
    }
    for bit in [12, 11] {
        if has(bit) {
            rest.u8()?;
        }
    }
    for bit in [10, 9, 8] {
        if has(bit) {
            rest.short()?;
        }
    }
    if has(7) { rest.short() } else { Some("") }
}

/// Bytes that are read from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A short string; one that is not UTF-8 reads as empty.
    fn short(&mut self) -> Option<&'a str> {
        let length = self.u8()?;
        Some(std::str::from_utf8(self.take(length.into())?).unwrap_or_default())
    }
}
