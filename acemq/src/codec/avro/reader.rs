//! Reading with nothing but the registry.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use apache_avro::AvroSchema;
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{
    Decode, REGISTRY_TIMEOUT, definition::Definition, frame, source::Source, values::AvroValues,
};
use crate::{
    error::{Error, ErrorKind, Result},
    patience::patiently,
    schema::{RegisteredSchema, SchemaFormat, SchemaId, SchemaRegistry, SharedSchemaRegistry},
};

/// Reads registered Avro with nothing but the registry: the schema is the one whose id a body
/// carries, looked up once for each id. Cheap to clone; clones share what they have looked up.
///
/// An id that the registry does not have is an error that no retry helps, so that the message is
/// parked; a registry that fails or cannot be reached is a transient one, and the message is tried
/// again.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> acemq::Result<()> {
/// use acemq::{Avro, AvroReader, Decode, Encode, MemorySchemaRegistry};
///
/// let registry = MemorySchemaRegistry::new();
/// let schema = r#"{"type": "record", "name": "shop.Order", "fields": [
///     {"name": "id", "type": "string"}]}"#;
///
/// #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
/// struct Order { id: String }
///
/// let order = Order { id: "o-1".to_owned() };
/// let body = Avro::registered(schema, registry.clone())?.encode(&order).await?;
///
/// let reader = AvroReader::new(registry);
/// let read: Order = reader.decode(body, Some("application/vnd.acemq.avro")).await?;
/// assert_eq!(read, order);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct AvroReader {
    registry: SharedSchemaRegistry,
    /// The schema that bodies are resolved onto.
    onto: Option<Arc<Definition>>,
    sources: Arc<Mutex<HashMap<SchemaId, Arc<Source>>>>,
}

impl AvroReader {
    /// A reader that asks a registry.
    pub fn new(registry: impl SchemaRegistry) -> Self {
        Self::sharing(SharedSchemaRegistry::new(registry))
    }

    pub(super) fn sharing(registry: SharedSchemaRegistry) -> Self {
        Self { registry, onto: None, sources: Arc::default() }
    }

    /// The schema, as JSON, that bodies are resolved onto; unless set, they are read as they were
    /// written.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for text that is no Avro schema.
    pub fn reader(self, schema: &str) -> Result<Self> {
        Ok(self.onto(Arc::new(Definition::parse(schema)?)))
    }

    /// [`reader`](Self::reader) with the schema of a type that derives
    /// [`AvroSchema`](apache_avro::AvroSchema).
    ///
    /// # Errors
    /// [`ErrorKind::Config`] where the type's attributes make no Avro schema.
    pub fn reader_for<T: AvroSchema>(self) -> Result<Self> {
        Ok(self.onto(Arc::new(Definition::of::<T>()?)))
    }

    /// The same for values whose type is not known when the program is built.
    #[must_use]
    pub fn values(self) -> AvroValues<Self> {
        AvroValues::new(self)
    }

    pub(super) fn onto(self, reader: Arc<Definition>) -> Self {
        Self { registry: self.registry, onto: Some(reader), sources: Arc::default() }
    }

    /// How a body is read, and its data.
    pub(super) async fn source(&self, body: &Bytes) -> Result<(Arc<Source>, Bytes)> {
        let (id, data) = frame::split(body)?;
        let Some(id) = SchemaId::new(id) else { return Err(unknown(id)) };
        if let Some(source) = self.lock().get(&id) {
            return Ok((Arc::clone(source), data));
        }
        let action = format!("look up schema {id} of an Avro body");
        let registered = patiently(&action, REGISTRY_TIMEOUT, || self.registry.by_id(id)).await;
        let registered = registered.map_err(|cause| {
            // Whatever is the matter with the registry, the message is not to blame.
            let text =
                format!("read a registered Avro body: the registry did not give schema {id}");
            Error::new(ErrorKind::Store, text).with_source(cause)
        })?;
        let source = self.source_of(&registered.ok_or_else(|| unknown(id.get()))?)?;
        self.lock().insert(id, Arc::clone(&source));
        Ok((source, data))
    }

    fn source_of(&self, schema: &RegisteredSchema) -> Result<Arc<Source>> {
        let RegisteredSchema { id, format, subject, version, definition } = schema;
        let refused = |fault: String| {
            let doing = "read a registered Avro body: its schema";
            let which = format!("{id} (subject {subject:?}, version {version})");
            Error::new(ErrorKind::Decode, format!("{doing}, {which}, {fault}"))
        };
        if *format != SchemaFormat::Avro {
            let fault = format!("is of format {format}; read it with a codec of that format");
            return Err(refused(fault));
        }
        let definition = Definition::parse(definition).map_err(|cause| {
            let fault = "cannot be read; put its definition right in the registry, restart this \
                         consumer and replay the message";
            refused(fault.to_owned()).with_source(cause)
        })?;
        Ok(Arc::new(Source::new(Arc::new(definition), self.onto.clone(), Some(*id))?))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SchemaId, Arc<Source>>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(id: u32) -> Error {
    Error::new(
        ErrorKind::Decode,
        format!(
            "read a registered Avro body: this registry has no schema {id}; it may have been \
             registered in another registry, which this consumer would have to ask"
        ),
    )
}

impl<T: DeserializeOwned + Send> Decode<T> for AvroReader {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(frame::is_registered)
    }

    fn native_type(&self) -> Option<&str> {
        Some(frame::REGISTERED)
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<T> {
        let (source, data) = self.source(&body).await?;
        source.read(&data)
    }
}

impl fmt::Debug for AvroReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AvroReader")
            .field("onto", &self.onto.as_ref().map(|onto| onto.name()))
            .finish_non_exhaustive()
    }
}
