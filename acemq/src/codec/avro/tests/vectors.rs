use base64::{Engine, prelude::BASE64_STANDARD};

use super::*;
use crate::schema::RegisteredSchema;

/// A registry that has one schema under any id.
struct Only(String);

impl SchemaRegistry for Only {
    async fn register(&self, _: &str, _: &SchemaFormat, definition: &str) -> Result<SchemaId> {
        panic!("nobody registers {definition}")
    }

    async fn by_id(&self, id: SchemaId) -> Result<Option<RegisteredSchema>> {
        Ok(Some(RegisteredSchema::new(id, "s", SchemaFormat::Avro, self.0.clone(), 1)))
    }

    async fn versions(&self, _: &str) -> Result<Vec<RegisteredSchema>> {
        Ok(Vec::new())
    }
}

// promise: SR-3
#[tokio::test]
async fn what_the_familys_libraries_wrote_is_read_and_written_byte_for_byte() {
    let text = include_str!("../../../../tests/vectors/avro.json");
    let vectors: Json = serde_json::from_str(text).unwrap();
    let mut seen = 0;
    for vector in vectors["bodies"].as_array().unwrap() {
        let name = &vector["name"];
        let body = Bytes::from(BASE64_STANDARD.decode(vector["body"].as_str().unwrap()).unwrap());
        let schema = vector["schema"].to_string();
        let value = match vector["id"].as_u64() {
            Some(id) => {
                let reader = AvroReader::new(Only(schema.clone()));
                if let Some(onto) = vector.get("reader") {
                    let resolving = reader.clone().reader(&onto.to_string()).unwrap();
                    let value =
                        as_json(&resolving.values(), body.clone(), REGISTERED).await.unwrap();
                    assert_eq!(value, vector["resolved"], "{name}");
                }
                assert_eq!(body[..5], frame::of_schema(id.try_into().unwrap()), "{name}");
                as_json(&reader.values(), body.clone(), REGISTERED).await.unwrap()
            }
            None => read_json(&schema, body.clone()).await.unwrap(),
        };
        assert_eq!(value, vector["value"], "{name}");
        let data = if vector["id"].is_u64() { body.slice(5..) } else { body };
        assert_eq!(write_json(&schema, value).await, data, "{name}");
        seen += 1;
    }
    assert_eq!(seen, 6);
}
