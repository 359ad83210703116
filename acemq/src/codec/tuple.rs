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

            fn encode_onto(
                &self,
                buffer: Vec<u8>,
                payload: &T,
            ) -> impl Future<Output = Result<Vec<u8>>> + Send {
                self.0.encode_onto(buffer, payload)
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
                tuple!(
                    @ask content_type, self,
                    $first: $first.decode(body.clone(), content_type),
                    $($other: $other.decode(body.clone(), content_type)),+
                )
            }

            #[expect(non_snake_case, reason = "named after their types")]
            async fn decode_message(
                &self,
                body: Bytes,
                content_type: Option<&str>,
                envelope: &Envelope,
            ) -> Result<T> {
                let ($first, $($other),+) = self;
                tuple!(
                    @ask content_type, self,
                    $first: $first.decode_message(body.clone(), content_type, envelope),
                    $($other: $other.decode_message(body.clone(), content_type, envelope)),+
                )
            }
        }
    };
    (@ask $content_type:ident, $all:expr, $($codec:ident: $decoding:expr),+) => {{
        let mut failed = None;
        $(
            if $codec.accepts($content_type) {
                match $decoding.await {
                    Ok(payload) => return Ok(payload),
                    // Once its store is back, say, this codec reads it: the next would misread it.
                    Err(error) if error.is_transient() => return Err(error),
                    Err(error) => {
                        failed.get_or_insert(error);
                    }
                }
            }
        )+
        Err(failed.unwrap_or_else(|| no_codec_reads($content_type, &Decode::<T>::codec_name($all))))
    }};
}

tuple! { A B }
tuple! { A B C }
tuple! { A B C D }
tuple! { A B C D E }
tuple! { A B C D E F }
tuple! { A B C D E F G }
tuple! { A B C D E F G H }
