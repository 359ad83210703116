//! What a codec costs over the crate underneath, for bodies of about a KiB.

use std::{hint::black_box, sync::Arc};

use acemq::{Avro, Decode, Encode, Encrypted, Json, Keyring, Protobuf, Toml, Xml, Yaml};
use anyhow::{Result, ensure};
use apache_avro::{Schema, reader::datum::GenericDatumReader, writer::datum::GenericDatumWriter};
use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand,
};
use bytes::Bytes;
use prost::Message as _;
use serde::{Deserialize, Serialize};

use crate::{
    bench::Bench,
    pairs::{Pair, alternate, timed},
};

pub(super) const ENCODE: &str = "a codec writes a payload of about a KiB, against the crate it is \
    made of";
pub(super) const DECODE: &str = "a codec reads a body of about a KiB, against the crate it is made \
    of";

#[derive(Clone, PartialEq, Serialize, Deserialize, prost::Message)]
struct Order {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    customer: String,
    #[prost(double, tag = "3")]
    weight: f64,
    #[prost(bool, tag = "4")]
    paid: bool,
    #[prost(message, repeated, tag = "5")]
    lines: Vec<Line>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize, prost::Message)]
struct Line {
    #[prost(string, tag = "1")]
    article: String,
    #[prost(int64, tag = "2")]
    quantity: i64,
    #[prost(int64, tag = "3")]
    cents: i64,
    #[prost(string, tag = "4")]
    note: String,
}

const SCHEMA: &str = r#"{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "string"}, {"name": "customer", "type": "string"},
    {"name": "weight", "type": "double"}, {"name": "paid", "type": "boolean"},
    {"name": "lines", "type": {"type": "array", "items":
        {"type": "record", "name": "Line", "fields": [
            {"name": "article", "type": "string"}, {"name": "quantity", "type": "long"},
            {"name": "cents", "type": "long"}, {"name": "note", "type": "string"}]}}}]}"#;

fn order() -> Order {
    let line = |n: i64| Line {
        article: format!("A-{:05}", n * 7_919),
        quantity: n,
        cents: 199 * n,
        note: "wrapped, with a card, and delivered before noon".to_owned(),
    };
    Order {
        id: "0190f3c2-7a5b-7c3e-9d41-3c1f2b7e8a90".to_owned(),
        customer: "Ana Söderström, Vasagatan 12, Göteborg".to_owned(),
        weight: 12.75,
        paid: true,
        lines: (1..=9).map(line).collect(),
    }
}

/// The crate's side of a format.
trait Crate: Send + Sync + 'static {
    fn write(&self, order: &Order) -> Result<Vec<u8>>;
    fn read(&self, body: &[u8]) -> Result<Order>;
}

struct Plain {
    write: fn(&Order) -> Result<Vec<u8>>,
    read: fn(&[u8]) -> Result<Order>,
}

impl Crate for Plain {
    fn write(&self, order: &Order) -> Result<Vec<u8>> {
        (self.write)(order)
    }

    fn read(&self, body: &[u8]) -> Result<Order> {
        (self.read)(body)
    }
}

struct AvroCrate(Schema);

impl Crate for AvroCrate {
    fn write(&self, order: &Order) -> Result<Vec<u8>> {
        Ok(GenericDatumWriter::builder(&self.0).build()?.write_ser_to_vec(order)?)
    }

    fn read(&self, mut body: &[u8]) -> Result<Order> {
        Ok(GenericDatumReader::builder(&self.0).build()?.read_deser(&mut body)?)
    }
}

/// JSON, sealed without a frame.
struct Aead(LessSafeKey);

impl Aead {
    fn new(key: [u8; 32]) -> Result<Self> {
        Ok(Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key)?)))
    }
}

impl Crate for Aead {
    fn write(&self, order: &Order) -> Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce)?;
        let mut body = serde_json::to_vec(order)?;
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        self.0.seal_in_place_append_tag(nonce_used, Aad::from(b"2026-01"), &mut body)?;
        body.extend(nonce);
        Ok(body)
    }

    fn read(&self, body: &[u8]) -> Result<Order> {
        let (sealed, nonce) = body.split_at(body.len() - NONCE_LEN);
        let mut plain = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce.try_into()?);
        let plain = self.0.open_in_place(nonce, Aad::from(b"2026-01"), &mut plain)?;
        Ok(serde_json::from_slice(plain)?)
    }
}

#[derive(Clone, Copy)]
pub(super) enum Way {
    Encode,
    Decode,
}

pub(super) async fn json(bench: &Bench, way: Way) -> Result<Vec<Pair>> {
    let theirs = Plain {
        write: |order| Ok(serde_json::to_vec(order)?),
        read: |body| Ok(serde_json::from_slice(body)?),
    };
    compare(bench, way, Json, theirs).await
}

pub(super) async fn xml(bench: &Bench, way: Way) -> Result<Vec<Pair>> {
    let theirs = Plain {
        write: |order| Ok(quick_xml::se::to_string(order)?.into()),
        read: |body| Ok(quick_xml::de::from_reader(body)?),
    };
    compare(bench, way, Xml::new(), theirs).await
}

pub(super) async fn yaml(bench: &Bench, way: Way) -> Result<Vec<Pair>> {
    let theirs = Plain {
        write: |order| Ok(serde_saphyr::to_string(order)?.into()),
        read: |body| Ok(serde_saphyr::from_slice(body)?),
    };
    compare(bench, way, Yaml, theirs).await
}

pub(super) async fn toml(bench: &Bench, way: Way) -> Result<Vec<Pair>> {
    let theirs = Plain {
        write: |order| Ok(::toml::to_string(order)?.into()),
        read: |body| Ok(::toml::from_slice(body)?),
    };
    compare(bench, way, Toml, theirs).await
}

pub(super) async fn avro(bench: &Bench, way: Way) -> Result<Vec<Pair>> {
    compare(bench, way, Avro::fixed(SCHEMA)?, AvroCrate(Schema::parse_str(SCHEMA)?)).await
}

pub(super) async fn protobuf(bench: &Bench, way: Way) -> Result<Vec<Pair>> {
    let theirs =
        Plain { write: |order| Ok(order.encode_to_vec()), read: |body| Ok(Order::decode(body)?) };
    compare(bench, way, Protobuf, theirs).await
}

pub(super) async fn encrypted(bench: &Bench, way: Way) -> Result<Vec<Pair>> {
    let key = [7; 32];
    let codec = Encrypted::new(Json, Keyring::new("2026-01", key)?);
    compare(bench, way, codec, Aead::new(key)?).await
}

async fn compare<C>(bench: &Bench, way: Way, codec: C, theirs: impl Crate) -> Result<Vec<Pair>>
where
    C: Encode<Order> + Decode<Order>,
{
    let (codec, theirs, order) = (Arc::new(codec), Arc::new(theirs), Arc::new(order()));
    let content_type = Encode::<Order>::content_type(&*codec).to_owned();
    let ours_body = codec.encode(&order).await?;
    let their_body = Bytes::from(theirs.write(&order)?);
    ensure!(
        codec.decode(ours_body.clone(), Some(&content_type)).await? == *order,
        "read otherwise"
    );
    ensure!(theirs.read(&their_body)? == *order, "the crate read it otherwise");
    let messages = bench.messages;
    alternate(
        bench.rounds,
        async || {
            let (theirs, order, body) =
                (Arc::clone(&theirs), Arc::clone(&order), their_body.clone());
            timed(async move {
                for _ in 0..messages {
                    match way {
                        Way::Encode => drop(black_box(theirs.write(black_box(&order))?)),
                        Way::Decode => drop(black_box(theirs.read(black_box(&body))?)),
                    }
                }
                Ok(())
            })
            .await
        },
        async || {
            let (codec, order, body) = (Arc::clone(&codec), Arc::clone(&order), ours_body.clone());
            let content_type = content_type.clone();
            timed(async move {
                for _ in 0..messages {
                    match way {
                        Way::Encode => drop(black_box(codec.encode(black_box(&order)).await?)),
                        Way::Decode => {
                            let body = black_box(body.clone());
                            let read = codec.decode(body, Some(&content_type)).await?;
                            drop::<Order>(black_box(read));
                        }
                    }
                }
                Ok(())
            })
            .await
        },
    )
    .await
}
