//! What the broker says on a channel of ours (AMQP 0-9-1, 4.2 and the field types of RabbitMQ).

use std::borrow::Cow;

use bytes::Bytes;

use crate::{
    envelope::{HeaderValue, Headers},
    transport::Properties,
};

/// Tables and lists within each other that are read; what is within the last of them stays bytes.
/// A frame has room for 26,000 of them, and who reads them one in another runs out of stack.
const DEEPEST: usize = 64;

/// A method that is meant for somebody who publishes or consumes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Method<'a> {
    SelectOk,
    QosOk,
    ConsumeOk,
    CancelOk {
        consumer_tag: Cow<'a, str>,
    },
    CloseOk,
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
        reason: Cow<'a, str>,
        exchange: Cow<'a, str>,
        routing_key: Cow<'a, str>,
    },
    Deliver {
        tag: u64,
        redelivered: bool,
        exchange: Cow<'a, str>,
        routing_key: Cow<'a, str>,
    },
    /// The broker ends a subscription.
    Cancel,
    /// The broker closes the channel.
    Close {
        code: u16,
        text: Cow<'a, str>,
    },
    Other,
}

/// What a frame holds.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "read and taken apart at once: no box for each")]
pub(super) enum Payload<'a> {
    Method(Method<'a>),
    Content { size: u64, properties: Properties },
    Body(&'a [u8]),
}

/// Reads one frame; `None` if it is not what AMQP 0-9-1 says.
pub(super) fn read(kind: u8, payload: &[u8]) -> Option<Payload<'_>> {
    let mut rest = Reader(payload);
    Some(match kind {
        1 => Payload::Method(rest.method()?),
        2 => {
            // Class and weight.
            rest.take(4)?;
            Payload::Content { size: rest.u64()?, properties: rest.properties()? }
        }
        3 => Payload::Body(payload),
        _ => return None,
    })
}

/// Bytes that are read from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn method(&mut self) -> Option<Method<'a>> {
        Some(match (self.u16()?, self.u16()?) {
            (20, 40) => Method::Close { code: self.u16()?, text: self.short()? },
            (20, 41) => Method::CloseOk,
            (60, 11) => Method::QosOk,
            (60, 21) => Method::ConsumeOk,
            (60, 30) => Method::Cancel,
            (60, 31) => Method::CancelOk { consumer_tag: self.short()? },
            (60, 50) => Method::Return {
                code: self.u16()?,
                reason: self.short()?,
                exchange: self.short()?,
                routing_key: self.short()?,
            },
            (60, 60) => {
                // The consumer's tag: all consumers of a channel of ours are one subscription's.
                self.short()?;
                Method::Deliver {
                    tag: self.u64()?,
                    redelivered: self.u8()? & 1 == 1,
                    exchange: self.short()?,
                    routing_key: self.short()?,
                }
            }
            (60, 80) => Method::Ack { tag: self.u64()?, multiple: self.u8()? & 1 == 1 },
            (60, 120) => Method::Nack { tag: self.u64()?, multiple: self.u8()? & 1 == 1 },
            (85, 11) => Method::SelectOk,
            _ => Method::Other,
        })
    }

    /// The properties in the order of their flags, from the highest bit down.
    fn properties(&mut self) -> Option<Properties> {
        let flags = self.u16()?;
        let has = |bit: u16| flags & (1 << bit) != 0;
        let mut properties = Properties::default();
        macro_rules! read {
            ($($bit:literal $field:ident $read:ident)*) => {$(
                if has($bit) {
                    properties.$field = Some(self.$read()?);
                }
            )*};
        }
        read!(15 content_type text 14 content_encoding text);
        if has(13) {
            properties.headers = self.table(1)?;
        }
        read!(
            12 delivery_mode u8 11 priority u8 10 correlation_id text 9 reply_to text
            8 expiration text 7 message_id text 6 timestamp u64 5 message_type text
            4 user_id text 3 app_id text 2 cluster_id text
        );
        Some(properties)
    }

    fn table(&mut self, depth: usize) -> Option<Headers> {
        let mut items = Self(self.long()?);
        let mut headers = Headers::new();
        while !items.0.is_empty() {
            let name = items.text()?;
            headers.insert(name, items.value(depth)?);
        }
        Some(headers)
    }

    fn value(&mut self, depth: usize) -> Option<HeaderValue> {
        Some(match self.u8()? {
            b'V' => HeaderValue::Null,
            b't' => HeaderValue::Bool(self.u8()? != 0),
            b'b' => HeaderValue::I8(self.array().map(i8::from_be_bytes)?),
            b'B' => HeaderValue::U8(self.u8()?),
            b's' | b'U' => HeaderValue::I16(self.array().map(i16::from_be_bytes)?),
            b'u' => HeaderValue::U16(self.u16()?),
            b'I' => HeaderValue::I32(self.array().map(i32::from_be_bytes)?),
            b'i' => HeaderValue::U32(self.u32()?),
            b'l' | b'L' => HeaderValue::I64(self.array().map(i64::from_be_bytes)?),
            b'f' => HeaderValue::F32(self.array().map(f32::from_be_bytes)?),
            b'd' => HeaderValue::F64(self.array().map(f64::from_be_bytes)?),
            b'D' => HeaderValue::Decimal { scale: self.u8()?, value: self.u32()? },
            b'T' => HeaderValue::Timestamp(self.u64()?),
            b'S' => {
                let text = self.long()?;
                match std::str::from_utf8(text) {
                    Ok(text) => HeaderValue::Text(text.to_owned()),
                    Err(_) => HeaderValue::OpaqueText(Bytes::copy_from_slice(text)),
                }
            }
            b'x' => HeaderValue::Bytes(Bytes::copy_from_slice(self.long()?)),
            b'A' | b'F' if depth >= DEEPEST => {
                HeaderValue::Bytes(Bytes::copy_from_slice(self.long()?))
            }
            b'A' => {
                let mut items = Self(self.long()?);
                let mut list = Vec::new();
                while !items.0.is_empty() {
                    list.push(items.value(depth + 1)?);
                }
                HeaderValue::List(list)
            }
            b'F' => HeaderValue::Table(self.table(depth + 1)?),
            _ => return None,
        })
    }

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

    fn long(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(usize::try_from(length).ok()?)
    }

    fn short(&mut self) -> Option<Cow<'a, str>> {
        let length = self.u8()?;
        Some(String::from_utf8_lossy(self.take(length.into())?))
    }

    fn text(&mut self) -> Option<String> {
        self.short().map(Cow::into_owned)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;
    use crate::transport::{Outgoing, amqp::encode};

    /// The frames that a message is written as.
    fn frames(message: &Outgoing, frame_max: usize) -> Vec<(u8, Vec<u8>)> {
        let mut out = BytesMut::new();
        encode::publish(&mut out, 7, message, frame_max);
        let mut frames = Vec::new();
        while !out.is_empty() {
            let size = u32::from_be_bytes(out[3..7].try_into().unwrap()) as usize;
            let frame = out.split_to(7 + size + 1);
            assert!(frame.len() <= frame_max);
            assert_eq!((frame[1], frame[2], frame[7 + size]), (0, 7, 0xCE));
            frames.push((frame[0], frame[7..7 + size].to_vec()));
        }
        frames
    }

    fn value() -> impl Strategy<Value = HeaderValue> {
        let leaf = prop_oneof![
            Just(HeaderValue::Null),
            any::<bool>().prop_map(HeaderValue::from),
            any::<i8>().prop_map(HeaderValue::from),
            any::<u8>().prop_map(HeaderValue::from),
            any::<i16>().prop_map(HeaderValue::from),
            any::<u16>().prop_map(HeaderValue::from),
            any::<i32>().prop_map(HeaderValue::from),
            any::<u32>().prop_map(HeaderValue::from),
            any::<i64>().prop_map(HeaderValue::from),
            (-1e6_f32..1e6).prop_map(HeaderValue::from),
            (-1e6_f64..1e6).prop_map(HeaderValue::from),
            (any::<u8>(), any::<u32>())
                .prop_map(|(scale, value)| HeaderValue::Decimal { scale, value }),
            any::<String>().prop_map(HeaderValue::from),
            prop::collection::vec(any::<u8>(), 0..20)
                .prop_map(|bytes| HeaderValue::Bytes(bytes.into())),
            any::<u64>().prop_map(HeaderValue::Timestamp),
        ];
        leaf.prop_recursive(3, 20, 4, |value| {
            prop_oneof![
                prop::collection::vec(value.clone(), 0..4).prop_map(HeaderValue::List),
                prop::collection::btree_map("[a-z]{0,9}", value, 0..4).prop_map(HeaderValue::Table),
            ]
        })
    }

    fn text() -> impl Strategy<Value = Option<String>> {
        prop::option::of("[a-zäß😀]{0,30}")
    }

    prop_compose! {
        fn properties()(
            texts in prop::array::uniform10(text()),
            headers in prop::collection::btree_map("[a-z-]{1,9}", value(), 0..5),
            (delivery_mode, priority) in any::<(Option<u8>, Option<u8>)>(),
            timestamp in any::<Option<u64>>(),
        ) -> Properties {
            let [content_type, content_encoding, correlation_id, reply_to, expiration, message_id,
                message_type, user_id, app_id, cluster_id] = texts;
            Properties {
                content_type, content_encoding, headers, delivery_mode, priority, correlation_id,
                reply_to, expiration, message_id, timestamp, message_type, user_id, app_id,
                cluster_id,
            }
        }
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written(
            properties in properties(),
            body in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let mut message =
                Outgoing::new((String::new(), "key".to_owned()), String::new(), String::new(),
                    Headers::new(), body.clone().into());
            message.properties = properties.clone();
            let frames = frames(&message, 4096);
            let size = body.len() as u64;
            prop_assert_eq!(read(frames[1].0, &frames[1].1), Some(Payload::Content { size, properties }));
            let bodies: Vec<u8> = frames[2..].iter().flat_map(|(_, part)| part.clone()).collect();
            prop_assert_eq!(bodies, body);
        }

        #[test]
        fn reading_anything_at_all_never_panics(
            kind in 0_u8..5,
            payload in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = read(kind, &payload);
        }
    }

    #[test]
    fn a_body_is_cut_into_frames_that_fit() {
        let body = Bytes::from((0..1000).map(|n| n as u8).collect::<Vec<u8>>());
        let message = Outgoing::new(
            ("exchange".to_owned(), "key".to_owned()),
            "m-1".to_owned(),
            "text/plain".to_owned(),
            Headers::new(),
            body.clone(),
        );
        let frames = frames(&message, 128);
        let bodies: Vec<&[u8]> =
            frames.iter().filter(|(kind, _)| *kind == 3).map(|(_, part)| &part[..]).collect();
        assert_eq!(bodies.len(), 9);
        assert_eq!(bodies.concat(), body);
    }

    #[test]
    fn what_is_nested_too_deeply_stays_bytes() {
        let nested = |depth: usize| {
            let mut value = Vec::new();
            for level in (0..depth).rev() {
                value.push(b'A');
                value.extend(u32::try_from(5 * level).unwrap().to_be_bytes());
            }
            value
        };
        let mut reader = nested(DEEPEST - 1);
        reader.extend(b"V");
        let mut value = Reader(&reader).value(1).unwrap();
        let mut depth = 0;
        while let HeaderValue::List(mut items) = value {
            depth += 1;
            let Some(item) = items.pop() else { break };
            value = item;
        }
        assert_eq!(depth, DEEPEST - 1);

        let deep = nested(26_000);
        let mut value = Reader(&deep).value(1).unwrap();
        while let HeaderValue::List(mut items) = value {
            value = items.pop().unwrap();
        }
        assert!(matches!(value, HeaderValue::Bytes(_)), "{value:?}");
    }
}
