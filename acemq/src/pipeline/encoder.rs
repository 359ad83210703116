//! A codec that writes one type, whatever codec it is.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;

use crate::{
    codec::{Decode, Encode},
    envelope::Envelope,
    error::Result,
    transport::BoxFuture,
};

/// Writes what a step hands on.
pub(super) trait Encoder<T>: Send + Sync {
    fn content_type(&self) -> &str;

    fn encode<'a>(&'a self, payload: &'a T) -> BoxFuture<'a, Result<Bytes>>;
}

impl<T: Sync, C: Encode<T>> Encoder<T> for C {
    fn content_type(&self) -> &str {
        <Self as Encode<T>>::content_type(self)
    }

    fn encode<'a>(&'a self, payload: &'a T) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(<Self as Encode<T>>::encode(self, payload))
    }
}

/// The codec between two steps: one writes with it and the other reads.
pub(super) struct Shared<C>(pub(super) Arc<C>);

impl<T, C: Decode<T>> Decode<T> for Shared<C> {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        self.0.accepts(content_type)
    }

    fn native_type(&self) -> Option<&str> {
        self.0.native_type()
    }

    fn codec_name(&self) -> Cow<'_, str> {
        self.0.codec_name()
    }

    fn decode(
        &self,
        body: Bytes,
        content_type: Option<&str>,
    ) -> impl Future<Output = Result<T>> + Send {
        self.0.decode(body, content_type)
    }

    fn decode_message(
        &self,
        body: Bytes,
        content_type: Option<&str>,
        envelope: &Envelope,
    ) -> impl Future<Output = Result<T>> + Send {
        self.0.decode_message(body, content_type, envelope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Json;

    #[test]
    fn an_error_calls_a_steps_codec_by_the_codecs_own_name() {
        let shared = Shared(Arc::new(Json));
        assert_eq!(Decode::<String>::codec_name(&shared), "Json");
    }
}
