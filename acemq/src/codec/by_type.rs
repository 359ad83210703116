//! Several types of message on one queue.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use bytes::Bytes;

use super::{Decode, no_codec_reads};
use crate::{
    envelope::Envelope,
    error::{Error, ErrorKind, Result},
    transport::BoxFuture,
};

/// Reads each message as what its type and version say it is, for a consumer whose queue has
/// several: the payload is an enum, or whatever else holds them all.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{ByType, HandlerError, Json, Message, Queue};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Placed { order: String, cents: u64 }
/// /// What version 1 looked like.
/// #[derive(Deserialize)]
/// struct PlacedInEuros { order: String, euros: u64 }
/// #[derive(Deserialize)]
/// struct Cancelled { order: String }
///
/// enum Event { Placed(Placed), Cancelled(Cancelled) }
///
/// async fn handle(message: Message<Event>) -> Result<(), HandlerError> {
///     match message.into_payload() {
///         Event::Placed(placed) => println!("{} for {}", placed.order, placed.cents),
///         Event::Cancelled(cancelled) => println!("{} is off", cancelled.order),
///     }
///     Ok(())
/// }
///
/// let events = ByType::new(Json)
///     .read("order.placed", Event::Placed)
///     .read_version("order.placed", 1, |old: PlacedInEuros| {
///         Event::Placed(Placed { order: old.order, cents: old.euros * 100 })
///     })
///     .read("order.cancelled", Event::Cancelled);
///
/// let mq = acemq::connect("memory://by-type-example").await?;
/// mq.declare_queue(&Queue::new("orders")).await?;
/// let consumer = mq.consumer::<Event>("orders").codec(events).start(handle).await?;
/// # mq.close().await?;
/// # drop(consumer);
/// # Ok(())
/// # }
/// ```
///
/// Type and version are the publisher's [`message_type`](crate::Publisher::message_type) and
/// [`version`](crate::Publisher::version). A message of a type that is not named here is parked,
/// unless [`otherwise`](Self::otherwise) says what it is.
pub struct ByType<T, C> {
    codec: C,
    types: HashMap<String, Readers<T, C>>,
    otherwise: Option<Box<Otherwise<T>>>,
    native_type: Option<String>,
}

type Reader<T, C> =
    dyn for<'a> Fn(&'a C, Bytes, Option<&'a str>) -> BoxFuture<'a, Result<T>> + Send + Sync;
type Otherwise<T> = dyn Fn(&Envelope, Bytes) -> T + Send + Sync;

struct Readers<T, C> {
    versions: BTreeMap<u32, Box<Reader<T, C>>>,
    others: Option<Box<Reader<T, C>>>,
}

impl<T, C> ByType<T, C> {
    /// Reads bodies with that codec.
    pub fn new(codec: C) -> Self {
        Self { codec, types: HashMap::new(), otherwise: None, native_type: None }
    }

    /// Messages of that type are a `P`, whatever version is not [read](Self::read_version) apart,
    /// newer ones included. Naming a type again replaces what was said before.
    #[must_use]
    pub fn read<P>(
        mut self,
        message_type: impl Into<String>,
        into: impl Fn(P) -> T + Send + Sync + 'static,
    ) -> Self
    where
        T: 'static,
        C: Decode<P>,
        P: Send + 'static,
    {
        self.native_type = native_type::<P, C>(&self.codec);
        self.readers(message_type.into()).others = Some(reader(into));
        self
    }

    /// Messages of that type in that version are a `P`.
    #[must_use]
    pub fn read_version<P>(
        mut self,
        message_type: impl Into<String>,
        version: u32,
        into: impl Fn(P) -> T + Send + Sync + 'static,
    ) -> Self
    where
        T: 'static,
        C: Decode<P>,
        P: Send + 'static,
    {
        self.native_type = native_type::<P, C>(&self.codec);
        self.readers(message_type.into()).versions.insert(version, reader(into));
        self
    }

    /// What a message is whose type or version is not named here: made of its envelope and its
    /// body as it came. Without it, such messages are parked.
    #[must_use]
    pub fn otherwise(
        mut self,
        into: impl Fn(&Envelope, Bytes) -> T + Send + Sync + 'static,
    ) -> Self {
        self.otherwise = Some(Box::new(into));
        self
    }

    fn readers(&mut self, message_type: String) -> &mut Readers<T, C> {
        self.types
            .entry(message_type)
            .or_insert_with(|| Readers { versions: BTreeMap::new(), others: None })
    }

    fn reader(&self, envelope: &Envelope) -> Option<&Reader<T, C>> {
        let readers = self.types.get(envelope.message_type())?;
        readers.versions.get(&envelope.version()).or(readers.others.as_ref()).map(|it| &**it)
    }

    fn unknown(&self, envelope: &Envelope) -> Error {
        let mut known: Vec<_> = self.types.keys().map(String::as_str).collect();
        known.sort_unstable();
        let text = format!(
            "no type is named for messages of type '{}' in version {}; known are: {}",
            envelope.message_type().escape_debug(),
            envelope.version(),
            known.join(", ")
        );
        Error::new(ErrorKind::Decode, text)
    }
}

fn native_type<P, C: Decode<P>>(codec: &C) -> Option<String> {
    codec.native_type().map(str::to_owned)
}

fn reader<T, C, P>(into: impl Fn(P) -> T + Send + Sync + 'static) -> Box<Reader<T, C>>
where
    T: 'static,
    C: Decode<P>,
    P: Send + 'static,
{
    let into = Arc::new(into);
    Box::new(move |codec, body, content_type| {
        let into = Arc::clone(&into);
        Box::pin(async move {
            if !codec.accepts(content_type) {
                return Err(no_codec_reads(content_type, &codec.codec_name()));
            }
            Ok(into(codec.decode(body, content_type).await?))
        })
    })
}

impl<T: Send + 'static, C: Send + Sync + 'static> Decode<T> for ByType<T, C> {
    /// Every one: which a codec reads depends on the message's type.
    fn accepts(&self, _content_type: Option<&str>) -> bool {
        true
    }

    fn native_type(&self) -> Option<&str> {
        self.native_type.as_deref()
    }

    async fn decode(&self, _body: Bytes, _content_type: Option<&str>) -> Result<T> {
        let text = "read the body by its message's type: it is not known here; the codec around \
                    `ByType` has to hand on `decode_message`";
        Err(Error::new(ErrorKind::Decode, text))
    }

    async fn decode_message(
        &self,
        body: Bytes,
        content_type: Option<&str>,
        envelope: &Envelope,
    ) -> Result<T> {
        match (self.reader(envelope), &self.otherwise) {
            (Some(read), _) => read(&self.codec, body, content_type).await,
            (None, Some(otherwise)) => Ok(otherwise(envelope, body)),
            (None, None) => Err(self.unknown(envelope)),
        }
    }
}

impl<T, C: fmt::Debug> fmt::Debug for ByType<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByType")
            .field("codec", &self.codec)
            .field("types", &self.types.keys())
            .finish_non_exhaustive()
    }
}
