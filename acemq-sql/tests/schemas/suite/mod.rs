//! What a schema registry does on every database: the same.

mod reading;
mod registering;
mod tables;
mod trouble;

use acemq::{Result, SchemaFormat, SchemaId, SchemaRegistry};

use super::database::{self, Schemas};

const AVRO: SchemaFormat = SchemaFormat::Avro;

async fn avro(registry: &Schemas, subject: &str, definition: &str) -> Result<u32> {
    registry.register(subject, &AVRO, definition).await.map(SchemaId::get)
}

async fn known(registry: &Schemas, id: u32) -> Option<acemq::RegisteredSchema> {
    registry.by_id(SchemaId::new(id).unwrap()).await.unwrap()
}

async fn versions(registry: &Schemas, subject: &str) -> Vec<(u32, u32)> {
    let versions = registry.versions(subject).await.unwrap();
    versions.iter().map(|schema| (schema.id.get(), schema.version)).collect()
}
