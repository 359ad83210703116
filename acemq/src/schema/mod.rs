//! Schemas that have numbers.
//!
//! A [`SchemaRegistry`] gives each schema a small number that never changes, so that a message
//! carries the number and not the schema. The number is the registry's: another registry has
//! another schema under it.

mod memory;
mod once;
mod registered;
mod shared;

use std::future::Future;

pub use self::{
    memory::MemorySchemaRegistry,
    registered::{RegisteredSchema, SchemaFormat, SchemaId},
    shared::SharedSchemaRegistry,
};
use crate::error::Result;

/// Gives schemas numbers, and schemas for numbers.
///
/// Implementors may write the methods as `async fn`. A registry that cannot be asked is an error,
/// and one that is transient where asking again can help; an id or a subject that is not there is
/// an answer. Dropping a future at any await leaves the registry as it was, or with the schema
/// registered.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> acemq::Result<()> {
/// use acemq::{MemorySchemaRegistry, SchemaFormat, SchemaRegistry};
///
/// let registry = MemorySchemaRegistry::new(); // or acemq_sql::PostgresSchemaRegistry
/// let id = registry.register("shop.Order", &SchemaFormat::Avro, r#""string""#).await?;
/// assert_eq!(registry.register("shop.Order", &SchemaFormat::Avro, r#""string""#).await?, id);
///
/// let schema = registry.by_id(id).await?.unwrap();
/// assert_eq!((schema.definition.as_str(), schema.version), (r#""string""#, 1));
/// # Ok(()) }
/// ```
pub trait SchemaRegistry: Send + Sync + 'static {
    /// The id of a schema, which is new only where the definition is: the same text, byte for
    /// byte, has one id however often and by however many processes it is registered, and under
    /// whatever subject.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) where the same text is there in another
    /// format; what [`RegisteredSchema::check`] refuses; what the registry meets.
    fn register(
        &self,
        subject: &str,
        format: &SchemaFormat,
        definition: &str,
    ) -> impl Future<Output = Result<SchemaId>> + Send;

    /// The schema with an id; none where this registry does not have it.
    fn by_id(&self, id: SchemaId) -> impl Future<Output = Result<Option<RegisteredSchema>>> + Send;

    /// All schemas of a subject, the first version first; empty where there are none.
    fn versions(&self, subject: &str)
    -> impl Future<Output = Result<Vec<RegisteredSchema>>> + Send;

    /// The newest schema of a subject. The default is the last of [`versions`](Self::versions).
    fn latest(
        &self,
        subject: &str,
    ) -> impl Future<Output = Result<Option<RegisteredSchema>>> + Send {
        async { Ok(self.versions(subject).await?.pop()) }
    }
}
