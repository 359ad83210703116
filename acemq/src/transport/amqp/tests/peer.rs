//! A broker of which the test writes every word.

use bytes::BufMut as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::*;

/// Class and method.
type Name = (u16, u16);

const START: Name = (10, 10);
const TUNE: Name = (10, 30);
const OPEN_CONNECTION: Name = (10, 40);
const OPEN: Name = (20, 10);
pub(super) const CLOSE: Name = (20, 40);
pub(super) const CLOSE_OK: Name = (20, 41);
pub(super) const DECLARE: Name = (40, 10);
pub(super) const DECLARE_OK: Name = (40, 11);
pub(super) const QOS: Name = (60, 10);
pub(super) const CONSUME: Name = (60, 20);
pub(super) const CANCEL: Name = (60, 30);
pub(super) const CANCEL_OK: Name = (60, 31);
pub(super) const PUBLISH: Name = (60, 40);
pub(super) const ACK: Name = (60, 80);
const SELECT: Name = (85, 10);

const METHOD: u8 = 1;

pub(super) struct Peer {
    pub(super) socket: TcpStream,
}

#[derive(Debug)]
pub(super) struct Frame {
    kind: u8,
    pub(super) channel: u16,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    fn name(&self) -> Option<Name> {
        match self.payload[..] {
            [a, b, c, d, ..] if self.kind == METHOD => {
                Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
            }
            _ => None,
        }
    }
}

impl Peer {
    /// A link to a peer, and the peer. Where it publishes its channel has the number 1.
    pub(super) async fn dialled(publishes: bool) -> (Arc<dyn Link>, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("amqp://{}", listener.local_addr().unwrap());
        let transport = AmqpTransport::new(&url).unwrap();
        let greet = async {
            let mut peer = Self { socket: listener.accept().await.unwrap().0 };
            peer.greet().await;
            if publishes {
                peer.open_again().await;
            }
            peer
        };
        let (link, peer) =
            tokio::join!(transport.dial(DialOptions { publishes, ..options() }), greet);
        (link.unwrap(), peer)
    }

    async fn greet(&mut self) {
        let mut header = [0; 8];
        self.socket.read_exact(&mut header).await.unwrap();
        let mut start = vec![0, 9, 0, 0, 0, 0];
        for text in ["PLAIN", "en_US"] {
            start.put_u32(text.len() as u32);
            start.put_slice(text.as_bytes());
        }
        self.say(&method(0, START, &start)).await;
        self.hear((10, 11)).await;
        let mut tune = Vec::new();
        tune.put_u16(2047);
        tune.put_u32(131_072);
        tune.put_u16(0);
        self.say(&method(0, TUNE, &tune)).await;
        self.hear((10, 31)).await;
        self.answer(OPEN_CONNECTION, &[0]).await;
    }

    /// Opens the next channel that is asked for; gives its number.
    pub(super) async fn open_channel(&mut self) -> u16 {
        self.answer(OPEN, &[0; 4]).await.channel
    }

    /// Opens the publishing channel.
    pub(super) async fn open_again(&mut self) {
        assert_eq!(self.open_channel().await, 1);
        self.answer(SELECT, &[]).await;
    }

    /// Hears a method and says that it is done, which has the next number.
    pub(super) async fn answer(&mut self, (class, name): Name, arguments: &[u8]) -> Frame {
        let asked = self.hear((class, name)).await;
        self.say(&method(asked.channel, (class, name + 1), arguments)).await;
        asked
    }

    /// The next method, which has to be this one. Channels that close meanwhile do so.
    pub(super) async fn hear(&mut self, name: Name) -> Frame {
        loop {
            let frame = tokio::time::timeout(BOUND, self.frame()).await.expect("a frame in time");
            match frame.name() {
                Some(CLOSE) if name != CLOSE => {
                    self.say(&method(frame.channel, CLOSE_OK, &[])).await;
                }
                Some(heard) => {
                    assert_eq!(heard, name);
                    return frame;
                }
                // A heartbeat or content.
                None => {}
            }
        }
    }

    async fn frame(&mut self) -> Frame {
        let kind = self.socket.read_u8().await.unwrap();
        let channel = self.socket.read_u16().await.unwrap();
        let length = self.socket.read_u32().await.unwrap();
        let mut payload = vec![0; length as usize];
        self.socket.read_exact(&mut payload).await.unwrap();
        assert_eq!(self.socket.read_u8().await.unwrap(), 0xCE);
        Frame { kind, channel, payload }
    }

    pub(super) async fn say(&mut self, frames: &[u8]) {
        self.socket.write_all(frames).await.unwrap();
    }
}

pub(super) fn method(channel: u16, (class, name): Name, arguments: &[u8]) -> Vec<u8> {
    let mut frame = vec![METHOD];
    frame.put_u16(channel);
    frame.put_u32(4 + arguments.len() as u32);
    frame.put_u16(class);
    frame.put_u16(name);
    frame.put_slice(arguments);
    frame.put_u8(0xCE);
    frame
}

/// The peer closes a channel.
pub(super) fn close(channel: u16, code: u16, text: &str) -> Vec<u8> {
    let mut arguments = Vec::new();
    arguments.put_u16(code);
    arguments.put_u8(text.len() as u8);
    arguments.put_slice(text.as_bytes());
    arguments.put_u32(0);
    method(channel, CLOSE, &arguments)
}

/// The peer confirms everything up to this tag.
pub(super) fn ack(tag: u8) -> Vec<u8> {
    method(1, ACK, &[0, 0, 0, 0, 0, 0, 0, tag, 1])
}
