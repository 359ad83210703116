//! Values of any shape.

use apache_avro::types::Value;
use bytes::Bytes;

use super::{
    Avro, AvroReader, Decode, Encode, frame,
    layout::ROOT,
    misfit::{self, Path},
};
use crate::error::Result;

/// Avro for values whose type is not known when the program is built: apache-avro's
/// [`Value`](apache_avro::types::Value). Made by [`Avro::values`] and [`AvroReader::values`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> acemq::Result<()> {
/// use acemq::{Avro, Decode, Encode};
/// use apache_avro::types::Value;
///
/// let schema = r#"{"type": "record", "name": "Order", "fields": [
///     {"name": "id", "type": "string"}]}"#;
/// let avro = Avro::fixed(schema)?.values();
/// let order = Value::Record(vec![("id".to_owned(), Value::String("o-1".to_owned()))]);
/// let body = avro.encode(&order).await?;
/// assert_eq!(avro.decode(body, Some("avro/binary")).await?, order);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct AvroValues<C>(C);

impl<C> AvroValues<C> {
    pub(super) fn new(codec: C) -> Self {
        Self(codec)
    }
}

impl Encode<Value> for AvroValues<Avro> {
    fn content_type(&self) -> &str {
        self.0.written_type()
    }

    async fn encode(&self, payload: &Value) -> Result<Bytes> {
        let write = self.0.write(|writer, body, definition| {
            let written = writer.write_value_ref(body, payload).map(drop);
            written.map_err(|cause| {
                let misfit = misfit::within(payload, &definition.layout, ROOT, Path::Root);
                misfit.unwrap_or_else(|| misfit::refused(&cause))
            })
        });
        write.await
    }
}

impl Decode<Value> for AvroValues<Avro> {
    fn native_type(&self) -> Option<&str> {
        Some(self.0.written_type())
    }

    fn accepts(&self, content_type: Option<&str>) -> bool {
        self.0.reads(content_type)
    }

    async fn decode(&self, body: Bytes, content_type: Option<&str>) -> Result<Value> {
        let (source, data) = self.0.source(body, content_type).await?;
        source.read_value(&data)
    }
}

impl Decode<Value> for AvroValues<AvroReader> {
    fn native_type(&self) -> Option<&str> {
        Some(frame::REGISTERED)
    }

    fn accepts(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(frame::is_registered)
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<Value> {
        let (source, data) = self.0.source(&body).await?;
        source.read_value(&data)
    }
}
