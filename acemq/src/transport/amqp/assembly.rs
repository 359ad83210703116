//! Deliveries, which come in parts.

use bytes::Bytes;

use super::decode::Method;
use crate::transport::{Delivery, Properties};

/// How much room is made for a body before its first byte has come.
const ROOM: u64 = 1024 * 1024;

/// A delivery that has not come whole, if there is one.
#[derive(Debug, Default)]
pub(super) struct Assembly(Option<Partial>);

#[derive(Debug)]
struct Partial {
    delivery: Delivery,
    body: Vec<u8>,
    /// `None` until the properties have come.
    size: Option<u64>,
}

impl Assembly {
    /// A delivery begins.
    pub(super) fn begin(&mut self, method: Method<'_>) {
        if let Method::Deliver { tag, redelivered, exchange, routing_key } = method {
            self.0 = Some(Partial {
                delivery: Delivery {
                    tag,
                    redelivered,
                    exchange: exchange.into_owned(),
                    routing_key: routing_key.into_owned(),
                    properties: Properties::default(),
                    body: Bytes::new(),
                },
                body: Vec::new(),
                size: None,
            });
        }
    }

    /// Its properties have come, and the size of its body.
    pub(super) fn properties(&mut self, size: u64, properties: Properties) -> Option<Delivery> {
        if let Some(partial) = &mut self.0 {
            partial.size = Some(size);
            partial.delivery.properties = properties;
        }
        self.body(&[])
    }

    /// A part of its body has come; gives it once it is whole.
    pub(super) fn body(&mut self, part: &[u8]) -> Option<Delivery> {
        let partial = self.0.as_mut()?;
        let size = partial.size?;
        let whole = partial.body.is_empty() && part.len() as u64 == size;
        if whole {
            partial.delivery.body = Bytes::copy_from_slice(part);
        } else {
            if partial.body.is_empty() {
                partial.body.reserve(size.min(ROOM) as usize);
            }
            partial.body.extend_from_slice(part);
            if (partial.body.len() as u64) < size {
                return None;
            }
            partial.delivery.body = std::mem::take(&mut partial.body).into();
        }
        self.0.take().map(|partial| partial.delivery)
    }

    /// The rest of it will not come.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}
