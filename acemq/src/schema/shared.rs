//! A registry chosen at run time, with a memory.

use std::{fmt, sync::Arc};

use super::{RegisteredSchema, SchemaFormat, SchemaId, SchemaRegistry, once::Once};
use crate::{error::Result, transport::BoxFuture};

/// [`SchemaRegistry`] with boxed futures, method for method.
trait ErasedSchemaRegistry: Send + Sync {
    fn register<'a>(
        &'a self,
        subject: &'a str,
        format: &'a SchemaFormat,
        definition: &'a str,
    ) -> BoxFuture<'a, Result<SchemaId>>;
    fn by_id(&self, id: SchemaId) -> BoxFuture<'_, Result<Option<RegisteredSchema>>>;
    fn versions<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Vec<RegisteredSchema>>>;
    fn latest<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Option<RegisteredSchema>>>;
}

impl<R: SchemaRegistry> ErasedSchemaRegistry for R {
    fn register<'a>(
        &'a self,
        subject: &'a str,
        format: &'a SchemaFormat,
        definition: &'a str,
    ) -> BoxFuture<'a, Result<SchemaId>> {
        Box::pin(SchemaRegistry::register(self, subject, format, definition))
    }

    fn by_id(&self, id: SchemaId) -> BoxFuture<'_, Result<Option<RegisteredSchema>>> {
        Box::pin(SchemaRegistry::by_id(self, id))
    }

    fn versions<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Vec<RegisteredSchema>>> {
        Box::pin(SchemaRegistry::versions(self, subject))
    }

    fn latest<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Option<RegisteredSchema>>> {
        Box::pin(SchemaRegistry::latest(self, subject))
    }
}

/// A schema registry chosen at run time, or shared by several codecs, that remembers its answers.
/// Cheap to clone; clones share what they remember.
///
/// Ids never change, so a schema is registered once and an id is looked up once in a process,
/// however many ask at the same time. That something is not there is never remembered, nor is a
/// failure; and the versions of a subject, which do change, are asked for each time.
///
/// ```
/// use acemq::{MemorySchemaRegistry, SharedSchemaRegistry};
///
/// let registry = SharedSchemaRegistry::new(MemorySchemaRegistry::new());
/// let same = registry.clone();
/// # drop((registry, same));
/// ```
#[derive(Clone)]
pub struct SharedSchemaRegistry(Arc<Memory>);

struct Memory {
    registry: Arc<dyn ErasedSchemaRegistry>,
    ids: Once<(String, SchemaFormat, String), SchemaId>,
    schemas: Once<SchemaId, RegisteredSchema>,
}

impl SharedSchemaRegistry {
    /// Wraps a registry.
    pub fn new(registry: impl SchemaRegistry) -> Self {
        let registry = Arc::new(registry);
        Self(Arc::new(Memory { registry, ids: Once::new(), schemas: Once::new() }))
    }
}

impl fmt::Debug for SharedSchemaRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSchemaRegistry")
    }
}

impl SchemaRegistry for SharedSchemaRegistry {
    async fn register(
        &self,
        subject: &str,
        format: &SchemaFormat,
        definition: &str,
    ) -> Result<SchemaId> {
        let schema = (subject.to_owned(), format.clone(), definition.to_owned());
        let (registry, offered) = (Arc::clone(&self.0.registry), schema.clone());
        let ask = || async move {
            let (subject, format, definition) = offered;
            registry.register(&subject, &format, &definition).await.map(Some)
        };
        match self.0.ids.get(schema, ask).await? {
            Some(id) => Ok(id),
            None => self.0.registry.register(subject, format, definition).await,
        }
    }

    async fn by_id(&self, id: SchemaId) -> Result<Option<RegisteredSchema>> {
        let registry = Arc::clone(&self.0.registry);
        self.0.schemas.get(id, || async move { registry.by_id(id).await }).await
    }

    async fn versions(&self, subject: &str) -> Result<Vec<RegisteredSchema>> {
        self.0.registry.versions(subject).await
    }

    async fn latest(&self, subject: &str) -> Result<Option<RegisteredSchema>> {
        self.0.registry.latest(subject).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    // Without the object-safe twin, whose methods have the same names.
    use super::{
        Arc, RegisteredSchema, SchemaFormat, SchemaId, SchemaRegistry, SharedSchemaRegistry,
    };
    use crate::{error::Result, schema::MemorySchemaRegistry};

    /// Counts what it is asked.
    struct Counting(MemorySchemaRegistry, Arc<AtomicU32>);

    impl Counting {
        fn asked(&self) -> &MemorySchemaRegistry {
            self.1.fetch_add(1, Ordering::Relaxed);
            &self.0
        }
    }

    impl SchemaRegistry for Counting {
        async fn register(
            &self,
            subject: &str,
            format: &SchemaFormat,
            definition: &str,
        ) -> Result<SchemaId> {
            self.asked().register(subject, format, definition).await
        }

        async fn by_id(&self, id: SchemaId) -> Result<Option<RegisteredSchema>> {
            self.asked().by_id(id).await
        }

        async fn versions(&self, subject: &str) -> Result<Vec<RegisteredSchema>> {
            self.asked().versions(subject).await
        }
    }

    #[tokio::test]
    async fn what_never_changes_is_asked_once_and_anything_else_each_time() {
        let count = Arc::new(AtomicU32::new(0));
        let registry = Counting(MemorySchemaRegistry::new(), Arc::clone(&count));
        let shared = SharedSchemaRegistry::new(registry);
        let asked = || count.swap(0, Ordering::Relaxed);
        let register = async |definition: &str| {
            shared.clone().register("s", &SchemaFormat::Avro, definition).await.unwrap()
        };
        let unknown = SchemaId::new(2).unwrap();
        for _ in 0..3 {
            assert_eq!(shared.by_id(unknown).await.unwrap(), None);
        }
        assert_eq!(asked(), 3);
        for _ in 0..3 {
            assert_eq!((register("1").await.get(), register("2").await), (1, unknown));
            assert_eq!(shared.by_id(unknown).await.unwrap().unwrap().definition, "2");
        }
        assert_eq!(asked(), 3);
        for _ in 0..3 {
            assert_eq!(shared.latest("s").await.unwrap().unwrap().version, 2);
            assert_eq!(shared.versions("s").await.unwrap().len(), 2);
        }
        assert_eq!(asked(), 6);
    }
}
