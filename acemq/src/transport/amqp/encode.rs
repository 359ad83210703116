//! What we say on a channel of ours, as frames (AMQP 0-9-1, 2.3.5 and 4.2).

use bytes::{BufMut as _, BytesMut};

use crate::{
    envelope::{HeaderValue, Headers},
    transport::{DIRECT_REPLY_TO, Outgoing, Properties, STREAM_OFFSET, Subscription},
};

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const END: u8 = 0xCE;
/// Type, channel, length and end marker.
const OVERHEAD: usize = 8;

const CHANNEL: u16 = 20;
const BASIC: u16 = 60;
const CONFIRM: u16 = 85;

/// Writes `basic.publish` and its content. Names and the header table have been checked to fit.
pub(super) fn publish(out: &mut BytesMut, channel: u16, message: &Outgoing, frame_max: usize) {
    out.reserve(256 + message.body.len());
    method(out, channel, (BASIC, 40), |out| {
        out.put_u16(0);
        short(out, &message.exchange);
        short(out, &message.routing_key);
        out.put_u8(message.mandatory.into());
    });
    frame(out, HEADER, channel, |out| {
        out.put_u16(BASIC);
        out.put_u16(0);
        out.put_u64(message.body.len() as u64);
        properties(out, &message.properties);
    });
    for part in message.body.chunks(frame_max - OVERHEAD) {
        frame(out, BODY, channel, |out| out.put_slice(part));
    }
}

pub(super) fn channel_open(out: &mut BytesMut, channel: u16) {
    method(out, channel, (CHANNEL, 10), |out| out.put_u8(0));
}

pub(super) fn channel_close_ok(out: &mut BytesMut, channel: u16) {
    method(out, channel, (CHANNEL, 41), |_| {});
}

pub(super) fn channel_close(out: &mut BytesMut, channel: u16) {
    method(out, channel, (CHANNEL, 40), |out| {
        out.put_u16(200);
        short(out, "OK");
        // No method is to blame.
        out.put_u32(0);
    });
}

pub(super) fn basic_qos(out: &mut BytesMut, channel: u16, prefetch: u16) {
    method(out, channel, (BASIC, 10), |out| {
        out.put_u32(0);
        out.put_u16(prefetch);
        // For each consumer on its own.
        out.put_u8(0);
    });
}

pub(super) fn basic_consume(
    out: &mut BytesMut,
    channel: u16,
    consumer_tag: &str,
    subscription: &Subscription,
) {
    const EXCLUSIVE: u8 = 1 << 2;
    let arguments = &subscription.arguments;
    method(out, channel, (BASIC, 20), |out| {
        out.put_u16(0);
        short(out, &subscription.queue);
        short(out, consumer_tag);
        out.put_u8(if subscription.exclusive { EXCLUSIVE } else { 0 });
        if arguments.contains_key(STREAM_OFFSET) {
            table(out, arguments);
        } else {
            // What a queue takes anyway. A stream knows no such argument and refuses it: otherwise it
            // would take an ordinary consumer, and close the connection when that gives back.
            let mut arguments = arguments.clone();
            arguments.entry("x-priority".to_owned()).or_insert(HeaderValue::I32(0));
            table(out, &arguments);
        }
    });
}

/// Has replies come that are sent to what is published on this channel. They need no acks.
pub(super) fn consume_replies(out: &mut BytesMut, channel: u16, consumer_tag: &str) {
    const NO_ACK: u8 = 1 << 1;
    method(out, channel, (BASIC, 20), |out| {
        out.put_u16(0);
        short(out, DIRECT_REPLY_TO);
        short(out, consumer_tag);
        out.put_u8(NO_ACK);
        table(out, &Headers::new());
    });
}

pub(super) fn basic_cancel(out: &mut BytesMut, channel: u16, consumer_tag: &str) {
    method(out, channel, (BASIC, 30), |out| {
        short(out, consumer_tag);
        out.put_u8(0);
    });
}

pub(super) fn basic_ack(out: &mut BytesMut, channel: u16, tag: u64) {
    method(out, channel, (BASIC, 80), |out| {
        out.put_u64(tag);
        out.put_u8(0);
    });
}

pub(super) fn basic_nack(out: &mut BytesMut, channel: u16, tag: u64, requeue: bool) {
    const REQUEUE: u8 = 1 << 1;
    method(out, channel, (BASIC, 120), |out| {
        out.put_u64(tag);
        out.put_u8(if requeue { REQUEUE } else { 0 });
    });
}

pub(super) fn confirm_select(out: &mut BytesMut, channel: u16) {
    method(out, channel, (CONFIRM, 10), |out| out.put_u8(0));
}

/// A method about a channel itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelMethod {
    Open,
    Close,
    CloseOk,
}

impl ChannelMethod {
    /// What a frame holds, if it is one of these.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        const CLASS: [u8; 2] = CHANNEL.to_be_bytes();
        match (frame.first()?, frame.get(7..11)?) {
            (&METHOD, [high, low, 0, method]) if [*high, *low] == CLASS => match method {
                10 => Some(Self::Open),
                40 => Some(Self::Close),
                41 => Some(Self::CloseOk),
                _ => None,
            },
            _ => None,
        }
    }
}

fn method(
    out: &mut BytesMut,
    channel: u16,
    (class, method): (u16, u16),
    arguments: impl FnOnce(&mut BytesMut),
) {
    frame(out, METHOD, channel, |out| {
        out.put_u16(class);
        out.put_u16(method);
        arguments(out);
    });
}

fn frame(out: &mut BytesMut, kind: u8, channel: u16, payload: impl FnOnce(&mut BytesMut)) {
    out.put_u8(kind);
    out.put_u16(channel);
    sized(out, payload);
    out.put_u8(END);
}

/// Writes what `content` writes, with its length in front.
fn sized(out: &mut BytesMut, content: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u32(0);
    content(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// The properties in the order of their flags, from the highest bit down.
fn properties(out: &mut BytesMut, properties: &Properties) {
    let start = out.len();
    out.put_u16(0);
    let mut flags = 0_u16;
    text(out, &mut flags, 15, &properties.content_type);
    text(out, &mut flags, 14, &properties.content_encoding);
    if !properties.headers.is_empty() {
        flags |= 1 << 13;
        table(out, &properties.headers);
    }
    if let Some(mode) = properties.delivery_mode {
        flags |= 1 << 12;
        out.put_u8(mode);
    }
    if let Some(priority) = properties.priority {
        flags |= 1 << 11;
        out.put_u8(priority);
    }
    text(out, &mut flags, 10, &properties.correlation_id);
    text(out, &mut flags, 9, &properties.reply_to);
    text(out, &mut flags, 8, &properties.expiration);
    text(out, &mut flags, 7, &properties.message_id);
    if let Some(seconds) = properties.timestamp {
        flags |= 1 << 6;
        out.put_u64(seconds);
    }
    text(out, &mut flags, 5, &properties.message_type);
    text(out, &mut flags, 4, &properties.user_id);
    text(out, &mut flags, 3, &properties.app_id);
    text(out, &mut flags, 2, &properties.cluster_id);
    out[start..start + 2].copy_from_slice(&flags.to_be_bytes());
}

fn text(out: &mut BytesMut, flags: &mut u16, bit: u16, text: &Option<String>) {
    if let Some(text) = text {
        *flags |= 1 << bit;
        short(out, text);
    }
}

/// A short string, whose length fits a byte.
fn short(out: &mut BytesMut, text: &str) {
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    out.put_u8(length);
    out.put_slice(&text.as_bytes()[..length.into()]);
}

fn long(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(bytes.len() as u32);
    out.put_slice(bytes);
}

fn table(out: &mut BytesMut, headers: &Headers) {
    sized(out, |out| {
        for (name, item) in headers {
            short(out, name);
            value(out, item);
        }
    });
}

/// A field, by RabbitMQ's letters. It cannot parse short strings in tables, so text is long.
fn value(out: &mut BytesMut, value: &HeaderValue) {
    match value {
        HeaderValue::Null => out.put_u8(b'V'),
        HeaderValue::Bool(value) => {
            out.put_u8(b't');
            out.put_u8((*value).into());
        }
        HeaderValue::I8(value) => {
            out.put_u8(b'b');
            out.put_i8(*value);
        }
        HeaderValue::U8(value) => {
            out.put_u8(b'B');
            out.put_u8(*value);
        }
        HeaderValue::I16(value) => {
            out.put_u8(b's');
            out.put_i16(*value);
        }
        HeaderValue::U16(value) => {
            out.put_u8(b'u');
            out.put_u16(*value);
        }
        HeaderValue::I32(value) => {
            out.put_u8(b'I');
            out.put_i32(*value);
        }
        HeaderValue::U32(value) => {
            out.put_u8(b'i');
            out.put_u32(*value);
        }
        HeaderValue::I64(value) => {
            out.put_u8(b'l');
            out.put_i64(*value);
        }
        HeaderValue::F32(value) => {
            out.put_u8(b'f');
            out.put_f32(*value);
        }
        HeaderValue::F64(value) => {
            out.put_u8(b'd');
            out.put_f64(*value);
        }
        HeaderValue::Decimal { scale, value } => {
            out.put_u8(b'D');
            out.put_u8(*scale);
            out.put_u32(*value);
        }
        HeaderValue::Text(text) => {
            out.put_u8(b'S');
            long(out, text.as_bytes());
        }
        HeaderValue::OpaqueText(bytes) => {
            out.put_u8(b'S');
            long(out, bytes);
        }
        HeaderValue::Bytes(bytes) => {
            out.put_u8(b'x');
            long(out, bytes);
        }
        HeaderValue::Timestamp(seconds) => {
            out.put_u8(b'T');
            out.put_u64(*seconds);
        }
        HeaderValue::List(items) => {
            out.put_u8(b'A');
            sized(out, |out| items.iter().for_each(|item| self::value(out, item)));
        }
        HeaderValue::Table(headers) => {
            out.put_u8(b'F');
            table(out, headers);
        }
    }
}
