//! A schema as a registry knows it.

use std::{fmt, num::NonZeroU32};

use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind, Result};

/// The longest subject and format in characters: the columns of the family's table.
const MAX_SUBJECT: usize = 255;
const MAX_FORMAT: usize = 32;

/// The number of a schema: 1, 2, 3 …
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchemaId(NonZeroU32);

impl SchemaId {
    /// An id from its number; none for 0, which is no schema's.
    #[must_use]
    pub fn new(id: u32) -> Option<Self> {
        NonZeroU32::new(id).map(Self)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The language that a schema is written in.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SchemaFormat {
    /// `avro`.
    Avro,
    /// `protobuf`.
    Protobuf,
    /// `json-schema`.
    JsonSchema,
    /// Any other, at most 32 characters.
    Other(String),
}

impl SchemaFormat {
    /// The format's name in a registry.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Avro => "avro",
            Self::Protobuf => "protobuf",
            Self::JsonSchema => "json-schema",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for SchemaFormat {
    fn from(name: &str) -> Self {
        match name {
            "avro" => Self::Avro,
            "protobuf" => Self::Protobuf,
            "json-schema" => Self::JsonSchema,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for SchemaFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A schema that has an id.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredSchema {
    /// Its number, which never changes.
    pub id: SchemaId,
    /// What it describes: for Avro the full name of the record.
    pub subject: String,
    /// The language of the definition.
    pub format: SchemaFormat,
    /// The schema's text, as it was registered.
    pub definition: String,
    /// Which schema of its subject it is, from 1.
    pub version: u32,
}

impl RegisteredSchema {
    /// A schema as a registry of your own hands it out.
    #[must_use]
    pub fn new(
        id: SchemaId,
        subject: impl Into<String>,
        format: SchemaFormat,
        definition: impl Into<String>,
        version: u32,
    ) -> Self {
        Self { id, subject: subject.into(), format, definition: definition.into(), version }
    }

    /// What tells one definition from another, in the whole family: the SHA-256 of its bytes in
    /// lower-case hexadecimal. White space counts.
    #[must_use]
    pub fn fingerprint(definition: &str) -> String {
        Sha256::digest(definition.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether a schema can be registered; a registry asks this first, so that all of them refuse
    /// the same.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an empty subject, format or definition; [`ErrorKind::TooLarge`]
    /// for a subject of more than 255 characters or a format of more than 32;
    /// [`ErrorKind::Encode`] for U+0000, which no text column holds.
    pub fn check(subject: &str, format: &SchemaFormat, definition: &str) -> Result<()> {
        let format = format.as_str();
        let parts = [
            ("subject", subject, MAX_SUBJECT),
            ("format", format, MAX_FORMAT),
            ("definition", definition, usize::MAX),
        ];
        for (part, text, most) in parts {
            let (kind, fault) = if text.is_empty() {
                (ErrorKind::Config, "is empty".to_owned())
            } else if text.contains('\0') {
                (ErrorKind::Encode, "holds U+0000, which no text column can".to_owned())
            } else if text.chars().count() > most {
                (ErrorKind::TooLarge, format!("has more than {most} characters"))
            } else {
                continue;
            };
            let message = format!("register a schema of subject {subject:?}: its {part} {fault}");
            return Err(Error::new(kind, message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_that_of_the_exact_bytes() {
        assert_eq!(
            RegisteredSchema::fingerprint("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_ne!(RegisteredSchema::fingerprint("abc "), RegisteredSchema::fingerprint("abc"));
    }

    #[test]
    fn what_no_table_could_hold_is_refused() {
        let check = |subject: &str, format: &str, definition: &str| {
            RegisteredSchema::check(subject, &format.into(), definition).map_err(|it| it.kind())
        };
        assert_eq!(check(&"ü".repeat(255), &"f".repeat(32), "d"), Ok(()));
        assert_eq!(check("", "avro", "d"), Err(ErrorKind::Config));
        assert_eq!(check("s", "", "d"), Err(ErrorKind::Config));
        assert_eq!(check("s", "avro", ""), Err(ErrorKind::Config));
        assert_eq!(check(&"s".repeat(256), "avro", "d"), Err(ErrorKind::TooLarge));
        assert_eq!(check("s", &"f".repeat(33), "d"), Err(ErrorKind::TooLarge));
        assert_eq!(check("s", "avro", "d\0"), Err(ErrorKind::Encode));
    }

    #[test]
    fn formats_have_the_familys_names() {
        for format in [SchemaFormat::Avro, SchemaFormat::Protobuf, SchemaFormat::JsonSchema] {
            assert_eq!(SchemaFormat::from(format.as_str()), format);
        }
        assert_eq!(SchemaFormat::from("thrift"), SchemaFormat::Other("thrift".to_owned()));
        assert_eq!(SchemaId::new(0), None);
    }
}
