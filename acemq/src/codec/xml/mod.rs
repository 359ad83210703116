//! XML.

mod document;
mod read;
mod text;
mod write;

use std::{borrow::Cow, fmt};

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use self::document::Document;
use super::{
    Decode, Encode,
    guard::{Guarded, Limits},
    has_suffix, is_type, not_utf8, unreadable, unwritable,
};
use crate::error::Result;

/// How deep elements are read.
const DEPTH: u8 = 128;

/// What is deepest may be a value, which has an element of its own.
#[derive(Clone, Copy)]
struct Form;

impl Limits for Form {
    const DEPTH: u8 = DEPTH - 1;
    const NON_FINITE: bool = true;
    const WIDE_INTEGERS: bool = true;
    const NONE: bool = true;
}

/// XML through serde, as the AceMQ family writes it: writes `application/xml`; reads that,
/// `text/xml` and every `…+xml`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{Encode, Xml};
///
/// #[derive(serde::Serialize)]
/// struct OrderPlaced {
///     order: String,
///     lines: Vec<String>,
///     note: Option<String>,
/// }
///
/// let order = OrderPlaced {
///     order: "o-1".to_owned(),
///     lines: vec!["widget".to_owned(), "gasket".to_owned()],
///     note: None,
/// };
/// let written = Xml::new().encode(&order).await?;
/// assert_eq!(
///     written,
///     "<OrderPlaced><order>o-1</order><lines>widget</lines><lines>gasket</lines><note/></OrderPlaced>"
/// );
/// # Ok(())
/// # }
/// ```
///
/// **Writing.** The root element has the name of the struct or enum, or [`root`](Self::root), or is
/// `message` where the payload has no name: a map, or a struct with flattened fields. A field or key
/// is an element, a list is its element repeated, `None` is `<note/>` and an empty text
/// `<note></note>`. There is no XML declaration. The payload has to be a struct, a map, or an enum
/// whose variant holds something.
///
/// What would be read as something else is an error when it is sent: a list directly in a list, an
/// empty list anywhere but in a struct's field, control characters, keys that are no names of
/// elements, byte strings, `Some(None)`, more than 127 levels.
///
/// **Reading.** Attributes are fields like others; the text beside them is `$text`. Prefixes of
/// namespaces are dropped, and the root's name counts for nothing. Elements of a list may stand apart;
/// a list with none is empty. `<note/>` is `None` for an `Option`, and an empty text for a `String`.
/// A document type definition, whether it declares entities or not, is refused, and so is more than
/// 128 levels of elements.
///
/// XML says of a text not whether it is a number, and of one element not whether it is a list. That is
/// what the fields' types are for. In flattened structs and in enums that are untagged or tagged inside,
/// serde has to know it beforehand: numbers, truth values and lists there are written, but cannot be read
/// back, which is an error then.
#[derive(Clone, Debug, Default)]
pub struct Xml {
    root: Option<Cow<'static, str>>,
}

impl Xml {
    /// XML whose root element is named like the payload's type.
    #[must_use]
    pub const fn new() -> Self {
        Self { root: None }
    }

    /// The name of the root element, whatever the payload's is. One that is no name of an element
    /// is an error when something is sent.
    #[must_use]
    pub fn root(self, name: impl Into<Cow<'static, str>>) -> Self {
        Self { root: Some(name.into()) }
    }
}

impl<T: Serialize + Sync + ?Sized> Encode<T> for Xml {
    fn content_type(&self) -> &str {
        "application/xml"
    }

    async fn encode(&self, payload: &T) -> Result<Bytes> {
        write::document(&Guarded::<_, Form>::new(payload), self.root.as_deref())
            .map(Bytes::from)
            .map_err(|cause| unwritable("XML", cause))
    }
}

impl<T: DeserializeOwned + Send> Decode<T> for Xml {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(|content_type| {
            is_type(content_type, "application/xml")
                || is_type(content_type, "text/xml")
                || has_suffix(content_type, "+xml")
        })
    }

    fn native_type(&self) -> Option<&str> {
        Some("application/xml")
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<T> {
        from_slice(&body)
    }
}

pub(super) fn from_slice<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let text =
        std::str::from_utf8(body).map_err(|cause| unreadable("XML", body, not_utf8(cause)))?;
    // .NET begins its documents so; the reader would drop it and count it for nothing.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Document::parse(text)
        .and_then(|document| read::value(&document))
        .map_err(|cause| unreadable("XML", body, cause))
}

/// Why something cannot be written or read.
#[derive(Debug)]
enum Fault {
    /// A field that is not there, and the type that wants it.
    Missing { of: Option<&'static str>, field: &'static str },
    /// Anything else.
    Other(String),
}

impl Fault {
    fn new(text: impl Into<String>) -> Self {
        Self::Other(text.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { field, .. } => write!(f, "missing field `{field}`"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Fault {}

impl serde::ser::Error for Fault {
    fn custom<M: fmt::Display>(message: M) -> Self {
        Self::Other(message.to_string())
    }
}

impl serde::de::Error for Fault {
    fn custom<M: fmt::Display>(message: M) -> Self {
        Self::Other(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing { of: None, field }
    }
}
