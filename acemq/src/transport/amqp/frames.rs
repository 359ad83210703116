//! Keeping lapin from writing to a channel that is closed.
//!
//! When the broker closes a channel, lapin confirms that ahead of the publishes which it has
//! queued, and then writes those: to a channel that no longer exists, for which the broker ends
//! the whole connection ("expected 'channel.open'"). So the outgoing frames are watched, and what
//! follows a `channel.close-ok` on its channel is dropped until that is opened again. lapin has
//! given those publishes up already.

use std::collections::HashSet;

/// What is known of the bytes written so far.
#[derive(Debug)]
pub(super) struct Outgoing {
    place: Place,
    /// Channels that are closed at the broker.
    closed: HashSet<u16>,
}

/// Where in the stream of frames the next byte stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    head: Head,
    /// Bytes until the frame ends, once its head is complete.
    rest: usize,
    /// Whether the frame is one to drop.
    dropped: bool,
}

/// The start of a frame, as far as it has been seen.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    bytes: [u8; Head::LENGTH],
    length: usize,
}

impl Head {
    /// Type, channel and size, then class and method.
    const LENGTH: usize = 11;
    /// Type, channel and size.
    const FRAME: usize = 7;
    const METHOD: u8 = 1;
    const CHANNEL: [u8; 2] = 20_u16.to_be_bytes();
    const OPEN: [u8; 2] = 10_u16.to_be_bytes();
    const CLOSE_OK: [u8; 2] = 41_u16.to_be_bytes();

    /// Takes bytes while it needs them; how many it took.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let start = self.length;
        for &byte in bytes {
            if self.is_complete() {
                break;
            }
            self.bytes[self.length] = byte;
            self.length += 1;
        }
        self.length - start
    }

    /// Only a method's head holds more than the frame's own.
    fn is_complete(&self) -> bool {
        let needed = if self.bytes[0] == Self::METHOD { Self::LENGTH } else { Self::FRAME };
        self.length >= needed
    }

    fn channel(&self) -> u16 {
        u16::from_be_bytes([self.bytes[1], self.bytes[2]])
    }

    /// Bytes that follow it, the end marker included.
    fn rest(&self) -> usize {
        let [_, _, _, a, b, c, d, ..] = self.bytes;
        (u32::from_be_bytes([a, b, c, d]) as usize + 1).saturating_sub(self.length - Self::FRAME)
    }

    fn is(&self, method: [u8; 2]) -> bool {
        self.bytes[0] == Self::METHOD
            && self.bytes[7..9] == Self::CHANNEL
            && self.bytes[9..11] == method
    }
}

/// What is to be done with the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Write(usize),
    Drop(usize),
}

impl Default for Outgoing {
    fn default() -> Self {
        // The protocol header comes first, which is no frame.
        let place = Place { head: Head::default(), rest: "AMQP0091".len(), dropped: false };
        Self { place, closed: HashSet::new() }
    }
}

impl Outgoing {
    /// How many of the bytes about to be written are to be written, or dropped, before this is
    /// asked again. `ahead` is what follows `bytes`.
    pub(super) fn next(&self, bytes: &[u8], ahead: &[u8]) -> Next {
        let Place { mut head, rest, dropped } = self.place;
        // The end of the frame in which `bytes` start.
        let mut offset = if head.length == 0 {
            rest
        } else {
            let taken = head.take(bytes);
            if !head.is_complete() { bytes.len() } else { taken + head.rest() }
        };
        if dropped {
            return Next::Drop(offset.min(bytes.len()));
        }
        while offset < bytes.len() && !head.is(Head::CLOSE_OK) {
            head = Head::default();
            head.take(&bytes[offset..]);
            head.take(ahead);
            let length = head.length + head.rest();
            if self.drops(&head) {
                return match offset {
                    0 => Next::Drop(length.min(bytes.len())),
                    _ => Next::Write(offset),
                };
            }
            offset += length;
        }
        Next::Write(offset.min(bytes.len()))
    }

    /// Notes that these bytes, of those that [`Self::next`] was asked about, were written or
    /// dropped.
    pub(super) fn passed(&mut self, mut bytes: &[u8], dropped: bool) {
        while !bytes.is_empty() {
            let place = &mut self.place;
            if place.rest > 0 {
                let length = place.rest.min(bytes.len());
                place.rest -= length;
                bytes = &bytes[length..];
                if place.rest == 0 {
                    place.dropped = false;
                }
                continue;
            }
            let taken = place.head.take(bytes);
            bytes = &bytes[taken..];
            place.dropped = dropped;
            if place.head.is_complete() {
                let head = std::mem::take(&mut place.head);
                place.rest = head.rest();
                if head.is(Head::CLOSE_OK) {
                    self.closed.insert(head.channel());
                } else if head.is(Head::OPEN) {
                    self.closed.remove(&head.channel());
                }
            }
        }
    }

    fn drops(&self, head: &Head) -> bool {
        head.is_complete() && self.closed.contains(&head.channel()) && !head.is(Head::OPEN)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend(channel.to_be_bytes());
        bytes.extend((payload.len() as u32).to_be_bytes());
        bytes.extend(payload);
        bytes.push(0xCE);
        bytes
    }

    fn open(channel: u16) -> Vec<u8> {
        frame(1, channel, &[0, 20, 0, 10, 0])
    }

    fn close_ok(channel: u16) -> Vec<u8> {
        frame(1, channel, &[0, 20, 0, 41])
    }

    fn publish(channel: u16, body: &[u8]) -> Vec<Vec<u8>> {
        vec![
            frame(1, channel, &[0, 60, 0, 40, 0, 0, 0, 0, 0]),
            frame(2, channel, &[0; 14]),
            frame(3, channel, body),
        ]
    }

    /// Writes `bytes` as lapin does, from a ring whose end is at `wrap`, to a socket that takes
    /// at most so many bytes at a time; what the socket was given.
    fn written(bytes: &[u8], wrap: usize, most: usize) -> Vec<u8> {
        let mut outgoing = Outgoing::default();
        let mut out = Vec::new();
        let mut position = 0;
        while position < bytes.len() {
            let end = if position < wrap { wrap.min(bytes.len()) } else { bytes.len() };
            let (here, ahead) = (&bytes[position..end], &bytes[end..]);
            let (length, dropped) = match outgoing.next(here, ahead) {
                Next::Write(length) => (length.min(most), false),
                Next::Drop(length) => (length, true),
            };
            assert!(length > 0, "stands still at {position}");
            if !dropped {
                out.extend(&here[..length]);
            }
            outgoing.passed(&here[..length], dropped);
            position += length;
        }
        out
    }

    fn all(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = b"AMQP\x00\x00\x09\x01".to_vec();
        bytes.extend(frames.iter().flatten());
        bytes
    }

    #[test]
    fn what_follows_a_close_ok_is_dropped_until_the_channel_is_opened_again() {
        let mut frames = vec![open(1), open(2)];
        frames.extend(publish(1, b"before"));
        frames.push(close_ok(1));
        let mut kept = frames.clone();
        frames.extend(publish(1, b"after"));
        let rest = [
            publish(2, b"another channel's"),
            vec![frame(8, 0, b""), open(1)],
            publish(1, b"again"),
        ];
        frames.extend(rest.iter().flatten().cloned());
        kept.extend(rest.iter().flatten().cloned());
        let (bytes, kept) = (all(&frames), all(&kept));
        for wrap in 1..bytes.len() {
            assert_eq!(written(&bytes, wrap, usize::MAX), kept, "wrap at {wrap}");
        }
    }

    proptest! {
        #[test]
        fn nothing_else_is_changed_however_it_is_cut(
            bodies in prop::collection::vec((1_u16..4, prop::collection::vec(any::<u8>(), 0..40)), 0..20),
            wrap in 1_usize..2000,
            most in 1_usize..50,
        ) {
            let frames: Vec<_> =
                bodies.iter().flat_map(|(channel, body)| publish(*channel, body)).collect();
            let bytes = all(&frames);
            prop_assert_eq!(written(&bytes, wrap, most), bytes);
        }
    }
}
