//! The schema registry of one process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{RegisteredSchema, SchemaFormat, SchemaId, SchemaRegistry};
use crate::error::{Error, ErrorKind, Result};

/// A schema registry in memory: **for tests**. Cheap to clone; clones are one registry.
///
/// Its ids begin at 1 in every process and are forgotten when that ends, while a message with such
/// an id stays in its queue: another process would read it with another schema, or with none.
/// Making one is logged as a warning that says so. Use `SqlSchemaRegistry` of the crate
/// `acemq-sql` for messages that outlive a test.
#[derive(Clone, Debug)]
pub struct MemorySchemaRegistry(Arc<Mutex<Vec<RegisteredSchema>>>);

impl MemorySchemaRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        tracing::warn!(
            "a schema registry in memory is for tests: its ids end with this process, and messages \
             that carry them cannot be read afterwards"
        );
        Self(Arc::default())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RegisteredSchema>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemorySchemaRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl SchemaRegistry for MemorySchemaRegistry {
    async fn register(
        &self,
        subject: &str,
        format: &SchemaFormat,
        definition: &str,
    ) -> Result<SchemaId> {
        RegisteredSchema::check(subject, format, definition)?;
        let mut schemas = self.lock();
        if let Some(known) = schemas.iter().find(|known| known.definition == definition) {
            if known.format == *format {
                return Ok(known.id);
            }
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "register a schema of subject {subject:?} as {format}: the same text is there \
                     as {}, with id {}",
                    known.format, known.id
                ),
            ));
        }
        let id =
            u32::try_from(schemas.len() + 1).ok().and_then(SchemaId::new).ok_or_else(|| {
                Error::new(ErrorKind::TooLarge, "register a schema: there are no more ids")
            })?;
        let versions = schemas.iter().filter(|schema| schema.subject == subject).count();
        let version = u32::try_from(versions + 1).unwrap_or(u32::MAX);
        schemas.push(RegisteredSchema::new(id, subject, format.clone(), definition, version));
        Ok(id)
    }

    async fn by_id(&self, id: SchemaId) -> Result<Option<RegisteredSchema>> {
        Ok(self.lock().iter().find(|schema| schema.id == id).cloned())
    }

    async fn versions(&self, subject: &str) -> Result<Vec<RegisteredSchema>> {
        let schemas = self.lock();
        Ok(schemas.iter().filter(|schema| schema.subject == subject).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AVRO: SchemaFormat = SchemaFormat::Avro;

    #[tokio::test]
    async fn one_definition_has_one_id_and_a_subject_counts_its_versions() {
        let registry = MemorySchemaRegistry::new();
        let first = registry.register("a", &AVRO, "1").await.unwrap();
        assert_eq!(first.get(), 1);
        assert_eq!(registry.clone().register("a", &AVRO, "1").await.unwrap(), first);
        assert_eq!(registry.register("b", &AVRO, "1").await.unwrap(), first);
        let second = registry.register("a", &AVRO, "2").await.unwrap();
        let other = registry.register("b", &AVRO, "3").await.unwrap();

        let versions = registry.versions("a").await.unwrap();
        assert_eq!(
            versions.iter().map(|it| (it.id, it.version)).collect::<Vec<_>>(),
            [(first, 1), (second, 2)]
        );
        assert_eq!(registry.latest("a").await.unwrap().unwrap().id, second);
        assert_eq!(registry.by_id(other).await.unwrap().unwrap().version, 1);
        assert_eq!(registry.by_id(SchemaId::new(9).unwrap()).await.unwrap(), None);
        assert_eq!(registry.latest("c").await.unwrap(), None);
        assert!(registry.versions("c").await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn the_same_text_in_another_format_is_refused_and_names_both() {
        let registry = MemorySchemaRegistry::new();
        registry.register("a", &AVRO, "{}").await.unwrap();
        let error = registry.register("a", &SchemaFormat::JsonSchema, "{}").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(text.contains("as json-schema") && text.contains("as avro, with id 1"), "{text}");
    }
}
