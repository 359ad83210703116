//! One socket for lapin and for channels of our own.
//!
//! lapin's way of carrying messages is dear (measured: with it `send_all` took 1.9 times the processor
//! time of lapin alone, past it 0.7 to 0.8 times), does not tell which publish a return belongs to, and
//! reads headers by recursion until its stack ends. So the channels that carry messages are ours
//! (`publish`, `consume`): lapin opens a channel, whose number is reserved by that, and from then on
//! its frames go past lapin, which speaks the rest of the protocol over a pipe. Both directions are
//! cut at the frames' ends only.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::{Buf as _, BytesMut};
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead as _, AsyncWrite as _, DuplexStream, ReadBuf};

use super::{
    encode::{self, ChannelMethod},
    socket::Socket,
    wire::Line,
};

/// What the pipe to lapin holds, and how much waits for it here at most.
pub(super) const BUFFER: usize = 256 * 1024;
/// Buffers up to this size are filled again and again.
const KEPT: usize = 1024 * 1024;
/// How much is read at once.
const READ: usize = 64 * 1024;

/// How often lapin, which watches over the heartbeats, hears that the broker is alive when all it
/// sends is for us.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
const HEARTBEAT: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, 0xCE];
/// What lapin sends before its first frame.
const PROTOCOL_HEADER: usize = 8;

pub(super) const NOT_AMQP: &str = "the broker sent something that is not AMQP 0-9-1";

/// A channel whose frames go past lapin.
pub(super) trait OwnChannel: Send + Sync {
    /// Appends what is to be written.
    fn take_outgoing(&self, out: &mut BytesMut);

    /// Takes a frame: its type, and what is between its head and its end marker.
    fn incoming(self: Arc<Self>, kind: u8, payload: &[u8]);

    /// The link has ended, for this reason.
    fn end(self: Arc<Self>, reason: &str);
}

/// Moves what a channel has to write to where the switch writes it from.
pub(super) fn hand_over(from: &mut BytesMut, to: &mut BytesMut) {
    let frames = from.split();
    if frames.len() > KEPT {
        *from = BytesMut::new();
    }
    to.unsplit(frames);
}

/// Where channels of our own are connected to the switch.
#[derive(Default)]
pub(super) struct Tap {
    state: Mutex<Channels>,
    /// The switch's.
    waker: AtomicWaker,
}

#[derive(Default)]
struct Channels {
    reserved: HashMap<u16, Reserved>,
    /// Those that have something to write, in the order in which they said so.
    announced: VecDeque<u16>,
    /// Why the link ended.
    ended: Option<String>,
}

/// A number that lapin uses for nothing else.
struct Reserved {
    /// `None` once it is closed.
    channel: Option<Arc<dyn OwnChannel>>,
    /// Whether what it has to write is the last of it.
    leaving: bool,
}

impl Tap {
    /// From now on frames of this number are the channel's.
    pub(super) fn connect(&self, number: u16, channel: Arc<dyn OwnChannel>) {
        let reason = {
            let mut channels = self.lock();
            let Some(reason) = channels.ended.clone() else {
                let reserved = Reserved { channel: Some(channel), leaving: false };
                channels.reserved.insert(number, reserved);
                return;
            };
            reason
        };
        channel.end(&reason);
    }

    /// The channel is closed at the broker, or will be by what it has left to write. The number
    /// stays reserved until lapin gives it up.
    pub(super) fn disconnect(&self, number: u16) {
        {
            let mut channels = self.lock();
            let Some(reserved) = channels.reserved.get_mut(&number) else { return };
            reserved.leaving = true;
            // Whoever has said that there is something to write may still be on the way here.
            channels.announced.push_back(number);
        }
        self.waker.wake();
    }

    /// The channel has something to write.
    pub(super) fn announce(&self, number: u16) {
        self.lock().announced.push_back(number);
        self.waker.wake();
    }

    /// Tells every channel that the link has ended.
    pub(super) fn end(&self, reason: &str) {
        let channels: Vec<_> = {
            let mut channels = self.lock();
            channels.ended.get_or_insert_with(|| reason.to_owned());
            channels.reserved.drain().filter_map(|(_, reserved)| reserved.channel).collect()
        };
        for channel in channels {
            channel.end(reason);
        }
    }

    /// Appends what the channels have to write.
    fn take_outgoing(&self, out: &mut BytesMut) {
        loop {
            let channel = {
                let mut channels = self.lock();
                let Some(number) = channels.announced.pop_front() else { return };
                channels.reserved.get_mut(&number).and_then(|reserved| match reserved.leaving {
                    true => reserved.channel.take(),
                    false => reserved.channel.clone(),
                })
            };
            if let Some(channel) = channel {
                channel.take_outgoing(out);
            }
        }
    }

    /// Whose frames of that number are.
    fn owner(&self, number: u16) -> Owner {
        match self.lock().reserved.get(&number) {
            None => Owner::Lapin,
            Some(Reserved { leaving: true, .. }) => Owner::Ours(None),
            Some(Reserved { channel, .. }) => Owner::Ours(channel.clone()),
        }
    }

    /// lapin gives a number up.
    fn release(&self, number: u16) {
        self.lock().reserved.remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, Channels> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who gets a frame.
#[derive(Clone, Default)]
enum Owner {
    #[default]
    Lapin,
    /// Nobody, if the channel has ended.
    Ours(Option<Arc<dyn OwnChannel>>),
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").finish_non_exhaustive()
    }
}

/// Carries bytes until either side has ended; tells the line of an error.
pub(super) async fn run(socket: Socket, lapin: DuplexStream, tap: Arc<Tap>, line: Line) {
    let mut switch = Switch {
        socket,
        lapin,
        tap,
        from_lapin: BytesMut::new(),
        greeted: false,
        lapin_ended: false,
        closed: HashSet::new(),
        to_socket: BytesMut::new(),
        flushed: true,
        broken: None,
        read: vec![0; READ],
        incoming: Incoming::default(),
        to_lapin: BytesMut::new(),
        answers: BytesMut::new(),
        socket_ended: false,
        sign_of_life: Instant::now(),
        ended: false,
    };
    let ended = std::future::poll_fn(|context| switch.poll(context)).await;
    switch.ended = true;
    // Then lapin finds the pipe closed, and the broker the socket.
    if let Err(error) = ended {
        line.fail(error);
    }
}

struct Switch {
    socket: Socket,
    lapin: DuplexStream,
    tap: Arc<Tap>,
    from_lapin: BytesMut,
    greeted: bool,
    lapin_ended: bool,
    /// Channels of lapin's that are closed at the broker.
    closed: HashSet<u16>,
    /// Whole frames.
    to_socket: BytesMut,
    flushed: bool,
    /// Why nothing more can be written.
    broken: Option<io::Error>,
    read: Vec<u8>,
    incoming: Incoming,
    to_lapin: BytesMut,
    /// Frames of our own for lapin.
    answers: BytesMut,
    socket_ended: bool,
    sign_of_life: Instant,
    ended: bool,
}

impl Drop for Switch {
    /// With the link or with the runtime: there may be nobody left who would tell the channels.
    fn drop(&mut self) {
        if !self.ended {
            self.tap.end("the connection was dropped");
        }
    }
}

impl Switch {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tap.waker.register(context.waker());
        loop {
            let taken = self.take_from_lapin(context)?;
            let written = self.write_unless_broken(context);
            let moved = taken | written | self.read(context)? | self.give_to_lapin(context)?;
            let done =
                (self.lapin_ended && !moved) || (self.socket_ended && self.to_lapin.is_empty());
            if done || !moved {
                return match self.broken.take() {
                    Some(error) => Poll::Ready(Err(error)),
                    None if done => Poll::Ready(Ok(())),
                    None => Poll::Pending,
                };
            }
        }
    }

    /// A peer that takes nothing more may have said why before, and confirmed what it took: that is
    /// read first.
    fn write_unless_broken(&mut self, context: &mut Context<'_>) -> bool {
        if self.broken.is_some() {
            return false;
        }
        self.write(context).unwrap_or_else(|error| {
            self.broken = Some(error);
            true
        })
    }

    fn take_from_lapin(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        if self.lapin_ended {
            return Ok(false);
        }
        let mut buffer = ReadBuf::new(&mut self.read);
        let Poll::Ready(read) = Pin::new(&mut self.lapin).poll_read(context, &mut buffer) else {
            return Ok(false);
        };
        read?;
        self.lapin_ended = buffer.filled().is_empty();
        self.from_lapin.extend_from_slice(buffer.filled());
        while let Some(length) = self.frame_from_lapin() {
            let frame = self.from_lapin.split_to(length);
            if self.goes_on(&frame) {
                self.to_socket.unsplit(frame);
            }
        }
        Ok(true)
    }

    /// Whether the broker is to see a frame of lapin's.
    fn goes_on(&mut self, frame: &[u8]) -> bool {
        let Some(number) = channel_of(frame) else { return true };
        let method = ChannelMethod::of(frame);
        if let Owner::Ours(_) = self.tap.owner(number) {
            // For the broker the channel is ours, or closed already.
            if method == Some(ChannelMethod::Close) {
                self.tap.release(number);
                encode::channel_close_ok(&mut self.answers, number);
            }
            return false;
        }
        // lapin confirms the closing of a channel ahead of what it has queued for it, and writes
        // that then; for which the broker would end the connection ("expected 'channel.open'").
        if method == Some(ChannelMethod::Open) {
            self.closed.remove(&number);
        }
        let goes_on = !self.closed.contains(&number);
        if method == Some(ChannelMethod::CloseOk) {
            self.closed.insert(number);
        }
        goes_on
    }

    /// The length of the next thing that lapin has written, if it is whole.
    fn frame_from_lapin(&mut self) -> Option<usize> {
        let length = match self.greeted {
            false => PROTOCOL_HEADER,
            true => frame_length(self.from_lapin.get(..Head::LENGTH)?),
        };
        let is_whole = self.from_lapin.len() >= length;
        self.greeted |= is_whole;
        is_whole.then_some(length)
    }

    fn write(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let mut moved = false;
        loop {
            if self.to_socket.is_empty() {
                // Lets go of the buffer, so that the channel it came from fills it again.
                self.to_socket = BytesMut::new();
                self.tap.take_outgoing(&mut self.to_socket);
            }
            if self.to_socket.is_empty() {
                break;
            }
            match Pin::new(&mut self.socket).poll_write(context, &self.to_socket)? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => self.to_socket.advance(written),
                Poll::Pending => return Ok(moved),
            }
            (moved, self.flushed) = (true, false);
        }
        if !self.flushed {
            self.flushed = Pin::new(&mut self.socket).poll_flush(context)?.is_ready();
        }
        Ok(moved)
    }

    fn read(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        if self.socket_ended || self.to_lapin.len() >= BUFFER {
            return Ok(false);
        }
        let mut buffer = ReadBuf::new(&mut self.read);
        let Poll::Ready(read) = Pin::new(&mut self.socket).poll_read(context, &mut buffer) else {
            return Ok(false);
        };
        read?;
        let read = buffer.filled().len();
        if read == 0 {
            self.socket_ended = true;
            self.incoming.give_up(&mut self.to_lapin);
        }
        let heard = self.incoming.pass(&self.read[..read], &self.tap, &mut self.to_lapin);
        if heard && self.sign_of_life.elapsed() >= SIGN_OF_LIFE {
            self.sign_of_life = Instant::now();
            self.answers.extend_from_slice(&HEARTBEAT);
        }
        Ok(true)
    }

    fn give_to_lapin(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let mut moved = false;
        if self.incoming.is_between_frames_of_lapin() {
            self.to_lapin.unsplit(self.answers.split());
        }
        while !self.to_lapin.is_empty() {
            match Pin::new(&mut self.lapin).poll_write(context, &self.to_lapin)? {
                Poll::Ready(written) => self.to_lapin.advance(written),
                Poll::Pending => break,
            }
            moved = true;
        }
        Ok(moved)
    }
}

/// What comes from the broker, taken apart.
#[derive(Default)]
struct Incoming {
    head: Head,
    /// What is left of the frame, its end marker included.
    rest: usize,
    owner: Owner,
    /// The beginning of a frame of ours that has not come whole.
    frame: Vec<u8>,
}

/// Type, channel and length of a frame, as far as they have come.
#[derive(Default)]
struct Head {
    bytes: [u8; Self::LENGTH],
    length: usize,
}

impl Head {
    const LENGTH: usize = 7;
}

/// The channel of a frame that starts with this head, if it is a frame.
fn channel_of(head: &[u8]) -> Option<u16> {
    match *head {
        // Methods, content headers, bodies and heartbeats. lapin's first words are none of these.
        [1..=3 | 8, high, low, ..] => Some(u16::from_be_bytes([high, low])),
        _ => None,
    }
}

/// The length of a frame with this head, from its first byte to its last.
fn frame_length(head: &[u8]) -> usize {
    let size = head.iter().skip(3).take(4).fold(0, |size, byte| size << 8 | usize::from(*byte));
    Head::LENGTH + size + 1
}

impl Incoming {
    /// Hands frames of our channels over, and appends everything else to `lapin`. Says whether there
    /// were any of the first.
    fn pass(&mut self, mut bytes: &[u8], tap: &Tap, lapin: &mut BytesMut) -> bool {
        let mut heard = false;
        while !bytes.is_empty() {
            if self.rest == 0 {
                let taken = (Head::LENGTH - self.head.length).min(bytes.len());
                let (start, after) = bytes.split_at(taken);
                self.head.bytes[self.head.length..][..taken].copy_from_slice(start);
                self.head.length += taken;
                bytes = after;
                if self.head.length < Head::LENGTH {
                    break;
                }
                let head = &self.head.bytes;
                self.owner = channel_of(head).map(|number| tap.owner(number)).unwrap_or_default();
                self.rest = frame_length(head) - Head::LENGTH;
                if let Owner::Lapin = self.owner {
                    lapin.extend_from_slice(head);
                }
            }
            let (part, after) = bytes.split_at(self.rest.min(bytes.len()));
            self.rest -= part.len();
            bytes = after;
            match &self.owner {
                Owner::Lapin => lapin.extend_from_slice(part),
                Owner::Ours(channel) => {
                    heard = true;
                    if self.rest > 0 || !self.frame.is_empty() {
                        self.frame.extend_from_slice(part);
                    }
                    if self.rest == 0 {
                        let whole = if self.frame.is_empty() { part } else { &self.frame };
                        if let (Some(channel), Some((_end, payload))) =
                            (channel, whole.split_last())
                        {
                            Arc::clone(channel).incoming(self.head.bytes[0], payload);
                        }
                        self.frame.clear();
                    }
                }
            }
            if self.rest == 0 {
                self.head.length = 0;
                self.owner = Owner::Lapin;
            }
        }
        heard
    }

    /// Whether lapin has been given whole frames only.
    fn is_between_frames_of_lapin(&self) -> bool {
        self.rest == 0 || matches!(self.owner, Owner::Ours(_))
    }

    /// Nothing more comes: what looked like the beginning of a frame is all there is.
    fn give_up(&mut self, lapin: &mut BytesMut) {
        if self.rest == 0 {
            lapin.extend_from_slice(&self.head.bytes[..self.head.length]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A channel that keeps what it is given, and always has something to write.
    #[derive(Default)]
    struct Kept(Mutex<Vec<(u8, Vec<u8>)>>);

    impl OwnChannel for Kept {
        fn take_outgoing(&self, out: &mut BytesMut) {
            out.extend_from_slice(b"words");
        }

        fn incoming(self: Arc<Self>, kind: u8, payload: &[u8]) {
            self.0.lock().unwrap().push((kind, payload.to_vec()));
        }

        fn end(self: Arc<Self>, _: &str) {}
    }

    fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[kind], &channel.to_be_bytes()[..], &length, payload, &[0xCE]].concat()
    }

    proptest! {
        #[test]
        fn every_frame_comes_to_its_owner_however_the_stream_is_cut(
            frames in prop::collection::vec(
                (1_u8..4, 0_u16..4, prop::collection::vec(any::<u8>(), 0..40)), 0..20),
            piece in 1_usize..50,
        ) {
            let (tap, ours) = (Tap::default(), Arc::new(Kept::default()));
            tap.connect(2, Arc::clone(&ours) as Arc<dyn OwnChannel>);
            let bytes: Vec<u8> = frames
                .iter()
                .flat_map(|(kind, channel, payload)| frame(*kind, *channel, payload))
                .collect();
            let (mut incoming, mut lapin) = (Incoming::default(), BytesMut::new());
            for piece in bytes.chunks(piece) {
                incoming.pass(piece, &tap, &mut lapin);
            }
            let others: Vec<u8> = frames
                .iter()
                .filter(|(_, channel, _)| *channel != 2)
                .flat_map(|(kind, channel, payload)| frame(*kind, *channel, payload))
                .collect();
            prop_assert_eq!(&lapin[..], &others[..]);
            let expected: Vec<_> = frames
                .into_iter()
                .filter(|(_, channel, _)| *channel == 2)
                .map(|(kind, _, payload)| (kind, payload))
                .collect();
            prop_assert_eq!(&*ours.0.lock().unwrap(), &expected);
            prop_assert!(incoming.is_between_frames_of_lapin());
        }
    }

    #[test]
    fn frames_of_a_channel_that_has_ended_go_nowhere_until_lapin_gives_the_number_up() {
        let (tap, ours) = (Tap::default(), Arc::new(Kept::default()));
        tap.connect(2, Arc::clone(&ours) as Arc<dyn OwnChannel>);
        tap.disconnect(2);
        tap.take_outgoing(&mut BytesMut::new());
        let late = frame(3, 2, b"late");
        let (mut incoming, mut lapin) = (Incoming::default(), BytesMut::new());
        incoming.pass(&late, &tap, &mut lapin);
        assert!(lapin.is_empty());
        assert!(ours.0.lock().unwrap().is_empty());

        tap.release(2);
        incoming.pass(&late, &tap, &mut lapin);
        assert_eq!(lapin, late);
    }

    #[test]
    fn the_last_words_of_a_channel_go_out_also_where_their_announcement_comes_late() {
        let (tap, ours, mut out) = (Tap::default(), Arc::new(Kept::default()), BytesMut::new());
        tap.connect(2, Arc::clone(&ours) as Arc<dyn OwnChannel>);
        tap.disconnect(2);
        tap.announce(2);
        tap.take_outgoing(&mut out);
        assert_eq!(&out[..], b"words");
        assert_eq!(Arc::strong_count(&ours), 1);
    }

    #[test]
    fn memory_is_used_again_and_that_of_large_messages_given_back() {
        let room_after = |size: usize| {
            let (mut from, mut to) = (BytesMut::from(&vec![7; size][..]), BytesMut::new());
            hand_over(&mut from, &mut to);
            assert_eq!(to.len(), size);
            drop(to);
            from.reserve(1);
            from.capacity()
        };
        assert_eq!(room_after(1000), 1000);
        assert!(room_after(2 * KEPT) < 1000);
    }

    #[test]
    fn no_channel_is_kept_once_the_link_has_ended() {
        let (tap, ours) = (Tap::default(), Arc::new(Kept::default()));
        tap.connect(2, Arc::clone(&ours) as Arc<dyn OwnChannel>);
        tap.end("lost");
        tap.connect(3, Arc::clone(&ours) as Arc<dyn OwnChannel>);
        assert_eq!(Arc::strong_count(&ours), 1);
    }

    #[test]
    fn what_is_no_frame_comes_through_whole() {
        let (mut incoming, mut lapin) = (Incoming::default(), BytesMut::new());
        for piece in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"", b"short"] {
            incoming.pass(piece, &Tap::default(), &mut lapin);
        }
        assert!(lapin.starts_with(b"HTTP/1.1 400 Bad Request"));

        let (mut incoming, mut lapin) = (Incoming::default(), BytesMut::new());
        incoming.pass(b"no", &Tap::default(), &mut lapin);
        incoming.give_up(&mut lapin);
        assert_eq!(&lapin[..], b"no");
    }
}
