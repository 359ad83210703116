//! Avro, with a schema that both sides have, or with one that a registry has.

mod any_value;
mod data;
mod default;
mod definition;
mod frame;
mod layout;
mod misfit;
mod reader;
mod resolve;
mod source;
#[cfg(test)]
mod tests;
mod typed;
mod values;
mod write;

use std::{fmt, sync::Arc, time::Duration};

use apache_avro::{AvroSchema, writer::datum::GenericDatumWriter};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::OnceCell;

use self::{data::Fault, definition::Definition, source::Source};
pub use self::{reader::AvroReader, values::AvroValues};
use super::{Decode, Encode, USUAL_LENGTH};
use crate::{
    error::{Error, ErrorKind, Result},
    patience::patiently,
    schema::{SchemaFormat, SchemaId, SchemaRegistry, SharedSchemaRegistry},
};

/// How long a registry may take for one question; it is asked up to three times.
const REGISTRY_TIMEOUT: Duration = Duration::from_secs(30);

/// Avro, for any type of serde's that fits the schema. Cheap to clone.
///
/// | made with | content type | body | reads |
/// |---|---|---|---|
/// | [`fixed`](Self::fixed) | `avro/binary` | the data alone | that, `avro/*`, `application/avro`, `…+avro` |
/// | [`registered`](Self::registered) | `application/vnd.acemq.avro` | a zero byte, the schema's id in four bytes (big end first), the data | that |
///
/// Neither reads a message without a content type.
///
/// A body is read with the schema that it was **written** with: the fixed one, or the one whose id
/// it carries. With [`reader`](Self::reader) it is resolved onto another one first, by the rules of
/// Avro's specification: by name and alias, with defaults, promotions, unions and enums' defaults.
/// Of a record's name only the last part has to be the same. Where both sides have a logical type
/// it has to be the same one: milliseconds are never read as microseconds. A pair that cannot be
/// resolved is an error that names both schemas.
///
/// A struct's fields are those of its record by their names, in any order: one too many is an error, and
/// so is one that is missing and has no default. A struct in a union has the name of its record too,
/// without the namespace, or says so with `#[serde(rename = "…")]`. Numbers are **written** where
/// nothing of their type is lost: an `int` is an `i32` or less, a `long` any integer, a `double` any
/// float and an `i32` or less; a `u64` that is larger than the largest `long` is an error when it is sent.
/// They are **read** wherever the value fits. Bytes are `#[serde(with = "apache_avro::serde::bytes")]`, decimals
/// and `fixed` are bytes, dates and times are numbers, and an optional field is a union of two with
/// `null`. For maps of whatever fields there is [`values`](Self::values).
///
/// A Rust enum is written as the branch of a union that has its variant's **place**, so a union's
/// branches and the enum's variants have to be in one order. A registry is asked up to three times, for
/// 30 seconds each.
///
/// Nothing that a body claims is believed before it was looked at: lengths have to be there, nesting
/// is at most 128 deep (a record in a union counts for two), and nothing may be left over.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> acemq::Result<()> {
/// use acemq::{Avro, Decode, Encode};
///
/// #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
/// struct Order {
///     id: String,
///     cents: i64,
/// }
///
/// let schema = r#"{"type": "record", "name": "Order", "namespace": "shop", "fields": [
///     {"name": "id", "type": "string"}, {"name": "cents", "type": "long"}]}"#;
/// let avro = Avro::fixed(schema)?;
/// let order = Order { id: "o-1".to_owned(), cents: 4_250 };
/// let body = avro.encode(&order).await?;
/// assert_eq!(body, b"\x06o-1\xb4\x42"[..]);
/// let read: Order = avro.decode(body, Some("avro/binary")).await?;
/// assert_eq!(read, order);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Avro {
    definition: Arc<Definition>,
    form: Form,
}

#[derive(Clone)]
enum Form {
    Fixed(Arc<Source>),
    Registered {
        registry: SharedSchemaRegistry,
        /// The schema's own id, once it is registered.
        id: Arc<OnceCell<SchemaId>>,
        reader: AvroReader,
    },
}

impl Avro {
    /// A schema that both sides have, as JSON; the bodies do not say which.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for text that is no Avro schema.
    pub fn fixed(schema: &str) -> Result<Self> {
        Self::with_fixed(Definition::parse(schema)?)
    }

    /// [`fixed`](Self::fixed) with the schema of a type, which derives
    /// [`AvroSchema`](apache_avro::AvroSchema): that takes the crate `apache-avro` 0.22 with its
    /// feature `derive`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] where the type's attributes make no Avro schema.
    ///
    /// ```
    /// use apache_avro::AvroSchema;
    ///
    /// #[derive(AvroSchema, serde::Serialize, serde::Deserialize)]
    /// #[avro(namespace = "shop")]
    /// struct Order {
    ///     id: String,
    ///     note: Option<String>,
    /// }
    ///
    /// let avro = acemq::Avro::fixed_for::<Order>()?;
    /// # drop(avro);
    /// # acemq::Result::<()>::Ok(())
    /// ```
    pub fn fixed_for<T: AvroSchema>() -> Result<Self> {
        Self::with_fixed(Definition::of::<T>()?)
    }

    /// A schema, as JSON, that goes into a registry; the bodies carry its id. It is registered when
    /// the first message is written, under the full name of its record, character for character as
    /// it is given here: the same text has the same id in every service and language.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for text that is no Avro schema, or one without a name.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> acemq::Result<()> {
    /// use acemq::{Avro, Encode, MemorySchemaRegistry};
    ///
    /// let registry = MemorySchemaRegistry::new(); // or acemq_sql::PostgresSchemaRegistry
    /// let schema = r#"{"type": "enum", "name": "shop.Size", "symbols": ["S", "M", "L"]}"#;
    /// let avro = Avro::registered(schema, registry)?;
    ///
    /// #[derive(serde::Serialize)]
    /// enum Size { S, M, L }
    /// assert_eq!(avro.encode(&Size::M).await?, b"\0\0\0\0\x01\x02"[..]);
    /// # drop((Size::S, Size::L));
    /// # Ok(()) }
    /// ```
    pub fn registered(schema: &str, registry: impl SchemaRegistry) -> Result<Self> {
        Self::with_registered(Definition::parse(schema)?, registry)
    }

    /// [`registered`](Self::registered) with the schema of a type, as
    /// [`fixed_for`](Self::fixed_for) takes it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] where the type's attributes make no Avro schema, or one without a name.
    pub fn registered_for<T: AvroSchema>(registry: impl SchemaRegistry) -> Result<Self> {
        Self::with_registered(Definition::of::<T>()?, registry)
    }

    /// The schema, as JSON, that bodies are resolved onto when they are read; unless set, they are
    /// read as they were written.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for text that is no Avro schema; [`ErrorKind::Decode`] where it cannot
    /// be resolved with the fixed one.
    pub fn reader(self, schema: &str) -> Result<Self> {
        self.read_onto(Definition::parse(schema)?)
    }

    /// [`reader`](Self::reader) with the schema of a type, as [`fixed_for`](Self::fixed_for) takes
    /// it.
    ///
    /// # Errors
    /// As [`reader`](Self::reader).
    pub fn reader_for<T: AvroSchema>(self) -> Result<Self> {
        self.read_onto(Definition::of::<T>()?)
    }

    /// The same for values whose type is not known when the program is built.
    #[must_use]
    pub fn values(self) -> AvroValues<Self> {
        AvroValues::new(self)
    }

    fn with_fixed(definition: Definition) -> Result<Self> {
        let definition = Arc::new(definition);
        let source = Source::new(Arc::clone(&definition), None, None)?;
        Ok(Self { definition, form: Form::Fixed(Arc::new(source)) })
    }

    fn with_registered(definition: Definition, registry: impl SchemaRegistry) -> Result<Self> {
        if definition.schema.name().is_none() {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "use a registered Avro schema: {} has no name to register it under; put it \
                     into a record",
                    definition.name()
                ),
            ));
        }
        let registry = SharedSchemaRegistry::new(registry);
        let reader = AvroReader::sharing(registry.clone());
        let form = Form::Registered { registry, id: Arc::default(), reader };
        Ok(Self { definition: Arc::new(definition), form })
    }

    fn read_onto(self, reader: Definition) -> Result<Self> {
        let onto = Arc::new(reader);
        let Self { definition, form } = self;
        let form = match form {
            Form::Fixed(_) => {
                let source = Source::new(Arc::clone(&definition), Some(onto), None)?;
                Form::Fixed(Arc::new(source))
            }
            Form::Registered { registry, id, reader } => {
                Form::Registered { registry, id, reader: reader.onto(onto) }
            }
        };
        Ok(Self { definition, form })
    }

    fn written_type(&self) -> &'static str {
        match &self.form {
            Form::Fixed(_) => frame::FIXED,
            Form::Registered { .. } => frame::REGISTERED,
        }
    }

    fn reads(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(match &self.form {
            Form::Fixed(_) => frame::is_fixed,
            Form::Registered { .. } => frame::is_registered,
        })
    }

    /// A body with what goes before the data.
    async fn frame(&self) -> Result<Vec<u8>> {
        let mut body = Vec::with_capacity(USUAL_LENGTH);
        let Form::Registered { registry, id, .. } = &self.form else { return Ok(body) };
        let register = || async {
            let Definition { text, .. } = &*self.definition;
            let name = self.definition.name();
            let action = format!("register Avro schema {name}");
            let ask = || registry.register(name, &SchemaFormat::Avro, text);
            patiently(&action, REGISTRY_TIMEOUT, ask).await
        };
        let id = id.get_or_try_init(register).await?;
        body.extend(frame::of_schema(id.get()));
        Ok(body)
    }

    /// Writes a body.
    async fn write(
        &self,
        write: impl FnOnce(&GenericDatumWriter<'_>, &mut Vec<u8>, &Definition) -> Result<(), Fault>,
    ) -> Result<Bytes> {
        let mut body = self.frame().await?;
        let definition = &*self.definition;
        // The setting of the process, which anybody may change, is not asked.
        let writer = GenericDatumWriter::builder(&definition.schema).human_readable(false).build();
        let written = match writer {
            Ok(writer) => write(&writer, &mut body, definition),
            Err(cause) => Err(misfit::refused(&cause)),
        };
        written.map_err(|fault| {
            let doing = format!("write the payload with schema {}", definition.name());
            Error::new(ErrorKind::Encode, format!("{doing}: {fault}"))
        })?;
        Ok(body.into())
    }

    /// How a body is read, and its data.
    async fn source(
        &self,
        body: Bytes,
        content_type: Option<&str>,
    ) -> Result<(Arc<Source>, Bytes)> {
        match &self.form {
            Form::Fixed(source) => {
                frame::check_fixed(&body, content_type)?;
                Ok((Arc::clone(source), body))
            }
            Form::Registered { reader, .. } => reader.source(&body).await,
        }
    }
}

impl<T: Serialize + Sync + ?Sized> Encode<T> for Avro {
    fn content_type(&self) -> &str {
        self.written_type()
    }

    async fn encode(&self, payload: &T) -> Result<Bytes> {
        self.write(|writer, body, with| write::payload(writer, body, payload, with)).await
    }
}

impl<T: DeserializeOwned + Send> Decode<T> for Avro {
    fn native_type(&self) -> Option<&str> {
        Some(self.written_type())
    }

    fn accepts(&self, content_type: Option<&str>) -> bool {
        self.reads(content_type)
    }

    async fn decode(&self, body: Bytes, content_type: Option<&str>) -> Result<T> {
        let (source, data) = self.source(body, content_type).await?;
        source.read(&data)
    }
}

impl fmt::Debug for Avro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Avro")
            .field("schema", &self.definition.name())
            .field("content_type", &self.written_type())
            .finish_non_exhaustive()
    }
}
