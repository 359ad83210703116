//! Keeping lapin from what nobody survives reading.
//!
//! A header table may hold lists within lists, five bytes a level, so that a frame has room for
//! 26,000 of them, and the broker passes them on. lapin reads them by recursion, and runs out of its
//! thread's stack: the process aborts, whoever is in it, and again with every redelivery. So the
//! incoming headers are watched, and what is nested too deeply is given to lapin as bytes, which
//! are written the same way but for the letter of their type.

/// The levels that are read; what is within the last of them stays bytes.
const DEEPEST: usize = 64;

/// Where in the stream of frames the next byte stands.
#[derive(Debug)]
pub(super) struct Incoming {
    step: Step,
    /// The bytes of this step, as far as they have come.
    bytes: [u8; Step::LONGEST],
    length: usize,
    /// Bytes to pass over before that.
    skip: usize,
    /// How much of a content header is left.
    left: usize,
    /// The tables and lists around this place: what is left in the header at each one's end.
    within: Vec<(Kind, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Table,
    List,
}

/// What is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Type, channel and size.
    Frame,
    /// Class, weight, size of the body, and which properties follow.
    Content,
    /// The length of one of so many short texts before the headers.
    Text(u32),
    /// The length of a table or list.
    Open(Kind),
    /// The length of a name in a table.
    Name,
    /// The type of a value.
    Type,
    /// The length of a long text or of bytes.
    Long,
}

impl Step {
    const LONGEST: usize = 14;

    fn length(self) -> usize {
        match self {
            Self::Frame => 7,
            Self::Content => Self::LONGEST,
            Self::Text(_) | Self::Name | Self::Type => 1,
            Self::Open(_) | Self::Long => 4,
        }
    }
}

impl Default for Incoming {
    fn default() -> Self {
        Self {
            step: Step::Frame,
            bytes: [0; Step::LONGEST],
            length: 0,
            skip: 0,
            left: 0,
            within: Vec::new(),
        }
    }
}

impl Incoming {
    /// Looks at bytes that have come, in their order, and changes what is nested too deeply.
    pub(super) fn pass(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let length = self.skip.min(bytes.len());
                self.skip -= length;
                bytes = &mut bytes[length..];
                continue;
            }
            let length = (self.step.length() - self.length).min(bytes.len());
            let (now, rest) = bytes.split_at_mut(length);
            self.bytes[self.length..self.length + length].copy_from_slice(now);
            self.length += length;
            if self.length == self.step.length() {
                self.length = 0;
                // The one step that changes something is one byte long.
                self.take(&mut now[length - 1]);
            }
            bytes = rest;
        }
    }

    fn take(&mut self, last: &mut u8) {
        let [a, b, c, d, ..] = self.bytes;
        let long = u32::from_be_bytes([a, b, c, d]) as usize;
        match self.step {
            Step::Frame => {
                const CONTENT_HEADER: u8 = 2;
                let [_, _, _, e, f, g, h, ..] = self.bytes;
                self.left = u32::from_be_bytes([e, f, g, h]) as usize;
                if a == CONTENT_HEADER { self.next(Step::Content) } else { self.end() }
            }
            Step::Content => {
                self.left -= Step::LONGEST;
                let flags = self.bytes[12];
                let texts = (flags & 0b1100_0000).count_ones();
                match flags & 0b0010_0000 {
                    0 => self.end(),
                    _ if texts > 0 => self.next(Step::Text(texts)),
                    _ => self.next(Step::Open(Kind::Table)),
                }
            }
            Step::Text(texts) => {
                self.left -= 1;
                self.over(a.into());
                match texts {
                    0 | 1 => self.next(Step::Open(Kind::Table)),
                    more => self.next(Step::Text(more - 1)),
                }
            }
            Step::Open(kind) => {
                self.left -= 4;
                match self.left.checked_sub(long) {
                    Some(end) => {
                        self.within.push((kind, end));
                        self.item();
                    }
                    None => self.end(),
                }
            }
            Step::Name => {
                self.left -= 1;
                self.over(a.into());
                self.next(Step::Type);
            }
            Step::Type => {
                self.left -= 1;
                let kind = match a {
                    b'A' => Some(Kind::List),
                    b'F' => Some(Kind::Table),
                    _ => None,
                };
                match (kind, plain_length(a)) {
                    (Some(_), _) if self.within.len() >= DEEPEST => {
                        *last = b'x';
                        self.next(Step::Long);
                    }
                    (Some(kind), _) => self.next(Step::Open(kind)),
                    (None, Some(length)) => {
                        self.over(length);
                        self.item();
                    }
                    (None, None) if matches!(a, b'S' | b'x') => self.next(Step::Long),
                    // Unknown to lapin as well.
                    (None, None) => self.end(),
                }
            }
            Step::Long => {
                self.left -= 4;
                self.over(long);
                self.item();
            }
        }
    }

    /// Goes on to an item of the innermost table or list that is not at its end.
    fn item(&mut self) {
        while let Some((kind, end)) = self.within.last() {
            if self.left > *end {
                return match kind {
                    Kind::Table => self.next(Step::Name),
                    Kind::List => self.next(Step::Type),
                };
            }
            self.within.pop();
        }
        self.end();
    }

    /// Passes over bytes of a content header.
    fn over(&mut self, length: usize) {
        let length = length.min(self.left);
        self.left -= length;
        self.skip += length;
    }

    /// A step within a content header, if that is long enough; lapin refuses one that is not.
    fn next(&mut self, step: Step) {
        if step.length() > self.left { self.end() } else { self.step = step }
    }

    /// Goes on to the next frame.
    fn end(&mut self) {
        self.skip = self.skip.saturating_add(std::mem::take(&mut self.left)).saturating_add(1);
        self.within.clear();
        self.step = Step::Frame;
    }
}

/// The length of a value of that type, if all have the same.
fn plain_length(letter: u8) -> Option<usize> {
    Some(match letter {
        b'V' => 0,
        b't' | b'b' | b'B' => 1,
        b's' | b'u' | b'U' => 2,
        b'I' | b'i' | b'f' => 4,
        b'D' => 5,
        b'L' | b'l' | b'd' | b'T' => 8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[kind, 0, 1], &length[..], payload, &[0xCE]].concat()
    }

    fn long(bytes: &[u8]) -> Vec<u8> {
        [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
    }

    /// A content header with two texts and a table: a list `depth` deep and an integer behind it.
    fn header(depth: usize) -> Vec<u8> {
        let mut value = Vec::new();
        for level in (0..depth).rev() {
            value.push(b'A');
            value.extend(u32::try_from(5 * level).unwrap().to_be_bytes());
        }
        let table = [&b"\x01n"[..], &value, b"\x01p", b"I\x00\x00\x00\x07"].concat();
        let head = [0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0b1110_0000, 0];
        frame(2, &[&head[..], b"\x04json", b"\x00", &long(&table)].concat())
    }

    fn passed(bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let mut incoming = Incoming::default();
        bytes.chunks_mut(piece).for_each(|piece| incoming.pass(piece));
        assert_eq!((incoming.step, incoming.skip, incoming.length), (Step::Frame, 0, 0));
        bytes
    }

    #[test]
    fn only_what_is_nested_too_deeply_becomes_bytes() {
        for piece in [1, 3, 7, usize::MAX] {
            let kept = [frame(1, b"method"), header(DEEPEST - 1), frame(3, b"{}")].concat();
            assert_eq!(passed(&kept, piece), kept);

            let deep = [header(10_000), frame(3, b"AAAAAAAA"), header(3)].concat();
            let changed = passed(&deep, piece);
            let different: Vec<usize> =
                (0..deep.len()).filter(|&at| deep[at] != changed[at]).collect();
            assert_eq!(different.len(), 1);
            assert_eq!((deep[different[0]], changed[different[0]]), (b'A', b'x'));
        }
    }

    proptest! {
        #[test]
        fn frames_of_anything_are_kept_apart(
            frames in prop::collection::vec((1_u8..5, prop::collection::vec(any::<u8>(), 0..60)), 0..10),
            piece in 1_usize..50,
        ) {
            let bytes: Vec<u8> =
                frames.iter().flat_map(|(kind, payload)| frame(*kind, payload)).collect();
            prop_assert_eq!(passed(&bytes, piece), bytes);
        }
    }
}
