//! A format that is chosen by its name.

use std::{borrow::Cow, fmt, str::FromStr};

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Decode, Encode, Json, RawBytes, Text, json, leaf, not_utf8, raw, unreadable, unwritable,
};
#[cfg(feature = "toml")]
use super::{Toml, toml};
#[cfg(feature = "xml")]
use super::{Xml, xml};
#[cfg(feature = "yaml")]
use super::{Yaml, yaml};
use crate::error::{Error, ErrorKind, Result};

/// A format that a program chooses while it runs, by a name in its configuration: a codec for
/// every payload that serde can write and read.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::Format;
///
/// let format: Format = "json".parse()?; // or bytes, string, text, toml, xml, yaml
/// let mq = acemq::connect("memory://format-example").await?;
/// let names = mq.publisher::<String>("", "names").codec(format);
/// # drop(names);
/// # mq.close().await
/// # }
/// ```
///
/// `text` takes a payload that is text, a number or an enum without anything in its variant, and
/// `bytes` one that is a byte string or a list of bytes; others are an error when they are sent.
/// Names are read in any letter case; `string` is `text`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// `bytes`: as [`RawBytes`].
    Bytes,
    /// `json`: as [`Json`].
    Json,
    /// `text`: as [`Text`].
    Text,
    /// `toml`: as [`Toml`].
    #[cfg(feature = "toml")]
    Toml,
    /// `xml`: as [`Xml`], with the payload's name for the root.
    #[cfg(feature = "xml")]
    Xml,
    /// `yaml`: as [`Yaml`].
    #[cfg(feature = "yaml")]
    Yaml,
}

impl Format {
    const ALL: &[Self] = &[
        Self::Json,
        Self::Text,
        Self::Bytes,
        #[cfg(feature = "toml")]
        Self::Toml,
        #[cfg(feature = "xml")]
        Self::Xml,
        #[cfg(feature = "yaml")]
        Self::Yaml,
    ];

    /// The format of messages with that content type.
    pub(super) fn of(content_type: Option<&str>) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.reads(content_type))
    }

    fn reads(self, content_type: Option<&str>) -> bool {
        match self {
            Self::Bytes => RawBytes::default().accepts(content_type),
            Self::Json => Decode::<()>::accepts(&Json, content_type),
            Self::Text => Text.accepts(content_type),
            #[cfg(feature = "toml")]
            Self::Toml => Decode::<()>::accepts(&Toml, content_type),
            #[cfg(feature = "xml")]
            Self::Xml => Decode::<()>::accepts(&Xml::new(), content_type),
            #[cfg(feature = "yaml")]
            Self::Yaml => Decode::<()>::accepts(&Yaml, content_type),
        }
    }

    pub(super) fn read<T: DeserializeOwned>(self, body: &[u8]) -> Result<T> {
        match self {
            Self::Bytes => raw::value(body).map_err(|cause| unreadable("bytes", body, cause)),
            Self::Json => json::from_slice(body),
            Self::Text => {
                let text = std::str::from_utf8(body)
                    .map_err(|cause| unreadable("text", body, not_utf8(cause)))?;
                leaf::value(text).map_err(|cause| unreadable("text", body, cause))
            }
            #[cfg(feature = "toml")]
            Self::Toml => toml::from_slice(body),
            #[cfg(feature = "xml")]
            Self::Xml => xml::from_slice(body),
            #[cfg(feature = "yaml")]
            Self::Yaml => yaml::from_slice(body),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Json => "json",
            Self::Text => "text",
            #[cfg(feature = "toml")]
            Self::Toml => "toml",
            #[cfg(feature = "xml")]
            Self::Xml => "xml",
            #[cfg(feature = "yaml")]
            Self::Yaml => "yaml",
        }
    }
}

impl<T: Serialize + Sync + ?Sized> Encode<T> for Format {
    fn content_type(&self) -> &str {
        match self {
            Self::Bytes => "application/octet-stream",
            Self::Json => Encode::<T>::content_type(&Json),
            Self::Text => Encode::<str>::content_type(&Text),
            #[cfg(feature = "toml")]
            Self::Toml => Encode::<T>::content_type(&Toml),
            #[cfg(feature = "xml")]
            Self::Xml => "application/xml",
            #[cfg(feature = "yaml")]
            Self::Yaml => Encode::<T>::content_type(&Yaml),
        }
    }

    async fn encode(&self, payload: &T) -> Result<Bytes> {
        match self {
            Self::Bytes => {
                raw::bytes(payload).map(Bytes::from).map_err(|cause| unwritable("bytes", cause))
            }
            Self::Json => Json.encode(payload).await,
            Self::Text => leaf::text(payload)
                .map(Bytes::from)
                .ok_or_else(|| unwritable("text", "it is neither text nor a number")),
            #[cfg(feature = "toml")]
            Self::Toml => Toml.encode(payload).await,
            #[cfg(feature = "xml")]
            Self::Xml => Xml::new().encode(payload).await,
            #[cfg(feature = "yaml")]
            Self::Yaml => Yaml.encode(payload).await,
        }
    }
}

impl<T: DeserializeOwned + Send> Decode<T> for Format {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        self.reads(content_type)
    }

    fn native_type(&self) -> Option<&str> {
        Some(Encode::<str>::content_type(self))
    }

    fn codec_name(&self) -> Cow<'_, str> {
        format!("Format::{self:?}").into()
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<T> {
        self.read(&body)
    }
}

/// Its name: `bytes`, `json`, `text`, `toml`, `xml`, `yaml`.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// From its name.
///
/// [`ErrorKind::Config`] for a name that is none, or whose feature is not enabled.
impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = |format: &Self| {
            name.eq_ignore_ascii_case(format.name())
                || (*format == Self::Text && name.eq_ignore_ascii_case("string"))
        };
        Self::ALL.iter().copied().find(known).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|format| format.name()).collect();
            Error::new(
                ErrorKind::Config,
                format!(
                    "choose the format '{name}': it is none of {}; toml, xml and yaml are features \
                     of acemq",
                    names.join(", ")
                ),
            )
        })
    }
}
