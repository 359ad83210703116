//! Several codecs as one.

use bytes::Bytes;

use super::{Decode, Encode, no_codec_reads};
use crate::{envelope::Envelope, error::Result};

// What these do is said at the traits.
macro_rules! tuple {
    ($first:ident $($other:ident)+) => {
        #[diagnostic::do_not_recommend]
        impl<T: ?Sized, $first: Encode<T>, $($other: Send + Sync + 'static),+> Encode<T>
            for ($first, $($other),+)
        {
            fn content_type(&self) -> &str {
                self.0.content_type()
            }

            fn encode(&self, payload: &T) -> impl Future<Output = Result<Bytes>> + Send {
                self.0.encode(payload)
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T: Send, $first: Decode<T>, $($other: Decode<T>),+> Decode<T>
            for ($first, $($other),+)
        {
            fn accepts(&self, content_type: Option<&str>) -> bool {
                #[expect(non_snake_case, reason = "named after their types")]
                let ($first, $($other),+) = self;
                $first.accepts(content_type) $(|| $other.accepts(content_type))+
            }

            fn native_type(&self) -> Option<&str> {
                self.0.native_type()
            }

            #[expect(non_snake_case, reason = "named after their types")]
            async fn decode(&self, body: Bytes, content_type: Option<&str>) -> Result<T> {
                let ($first, $($other),+) = self;
                let mut failed = None;
                tuple!(@ask decode(body, content_type) failed: $first $($other)+);
                Err(failed.unwrap_or_else(|| no_codec_reads(content_type)))
            }

            #[expect(non_snake_case, reason = "named after their types")]
            async fn decode_message(
                &self,
                body: Bytes,
                content_type: Option<&str>,
                envelope: &Envelope,
            ) -> Result<T> {
                let ($first, $($other),+) = self;
                let mut failed = None;
                tuple!(
                    @ask decode_message(body, content_type, envelope) failed: $first $($other)+
                );
                Err(failed.unwrap_or_else(|| no_codec_reads(content_type)))
            }
        }
    };
    (
        @ask $decode:ident($body:ident, $content_type:ident $(, $envelope:ident)?)
        $failed:ident: $($codec:ident)+
    ) => {
        tuple!(@each [$decode $body $content_type [$(, $envelope)?]] $failed: $($codec)+)
    };
    (@each $call:tt $failed:ident: $($codec:ident)+) => {
        $(tuple!(@one $call $failed: $codec);)+
    };
    (@one [$decode:ident $body:ident $content_type:ident [$($envelope:tt)*]] $failed:ident: $codec:ident) => {
        if $codec.accepts($content_type) {
            match $codec.$decode($body.clone(), $content_type $($envelope)*).await {
                Ok(payload) => return Ok(payload),
                // Once its store is back, say, this codec reads it: the next one would misread it.
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    $failed.get_or_insert(error);
                }
            }
        }
    };
}

tuple! { A B }
tuple! { A B C }
tuple! { A B C D }
tuple! { A B C D E }
tuple! { A B C D E F }
tuple! { A B C D E F G }
tuple! { A B C D E F G H }
