//! A schema, with what is worked out from it once.

use std::sync::atomic::AtomicBool;

use apache_avro::Schema;
use serde::de::IgnoredAny;

use super::{layout::Layout, misfit};
use crate::error::{Error, ErrorKind, Result};

#[derive(Debug)]
pub(super) struct Definition {
    /// As it was given, which is how it is registered.
    pub(super) text: String,
    pub(super) schema: Schema,
    pub(super) layout: Layout,
    /// Whether apache-avro has refused a payload by itself that was written then: the next one is
    /// likely to be of the same type.
    pub(super) widens: AtomicBool,
}

impl Definition {
    /// # Errors
    /// [`ErrorKind::Config`] for text that is no Avro schema.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let fault =
            |fault: String| Error::new(ErrorKind::Config, format!("read an Avro schema: {fault}"));
        let schema = Schema::parse_str(text).map_err(|cause| fault(why(text, &cause)))?;
        let layout = Layout::of(&schema)
            .ok_or_else(|| fault("it names a type that it does not define".to_owned()))?;
        Ok(Self { text: text.to_owned(), schema, layout, widens: AtomicBool::new(false) })
    }

    /// The schema of a Rust type.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] where the type says what is no Avro schema.
    pub(super) fn of<T: apache_avro::AvroSchema>() -> Result<Self> {
        let text = serde_json::to_string(&T::get_schema()).map_err(|cause| {
            Error::new(ErrorKind::Config, "write the Avro schema of a type").with_source(cause)
        })?;
        Self::parse(&text)
    }

    /// What people call it: the full name of its record.
    pub(super) fn name(&self) -> &str {
        self.layout.name(super::layout::ROOT)
    }
}

/// Why a text is no schema, and where, if that can be told.
fn why(text: &str, cause: &apache_avro::Error) -> String {
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(place) => format!(
            "it is not JSON: {place}; give the schema's own text, in which the name of a type \
             stands in double quotes"
        ),
        Ok(_) => {
            let cause = misfit::shortened(&cause.to_string());
            format!(
                "it is JSON and not a schema: {cause}; put it right as Avro's specification says"
            )
        }
    }
}
