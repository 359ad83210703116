//! The rows of the report.

mod add;
mod claim;
mod codec;
mod consume;
mod idempotency;
mod memory;
mod ordered;
mod pipeline;
mod publish_pipelined;
mod publish_serial;
mod relay;
mod request;

use anyhow::Result;
use futures_util::future::LocalBoxFuture;

use crate::{
    bench::{Bench, QueueKind},
    pairs::Pair,
};

/// One comparison.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// What acemq does, and against what.
    pub(crate) about: &'static str,
    /// How many messages a reading has unless the caller says otherwise.
    pub(crate) messages: usize,
    pub(crate) measure: Measure,
    pub(crate) run: for<'a> fn(&'a Bench) -> LocalBoxFuture<'a, Result<Vec<Pair>>>,
}

/// What a row's ratio is of, and what it has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Measure {
    /// acemq's time over the reference's: at most this.
    Time { at_most: Option<f64> },
    /// acemq's throughput over the reference's: at least this.
    Throughput { at_least: Option<f64> },
}

use Measure::{Throughput, Time};
use QueueKind::{Classic, Quorum};
use codec::Way::{Decode, Encode};

const SERIAL: Measure = Time { at_most: Some(1.05) };
const REQUEST: Measure = Time { at_most: Some(1.15) };
const MANY: Measure = Throughput { at_least: Some(0.90) };
const CODEC: Measure = Time { at_most: Some(1.05) };
const FOR_INFORMATION: Measure = Throughput { at_least: None };

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "publish/serial/classic",
        about: publish_serial::ABOUT,
        messages: 1_000,
        measure: SERIAL,
        run: |bench| Box::pin(publish_serial::run(bench, Classic)),
    },
    Row {
        name: "publish/serial/quorum",
        about: publish_serial::ABOUT,
        messages: 1_000,
        measure: SERIAL,
        run: |bench| Box::pin(publish_serial::run(bench, Quorum)),
    },
    Row {
        name: "publish/send_all/classic",
        about: publish_pipelined::SEND_ALL,
        messages: 20_000,
        measure: MANY,
        run: |bench| Box::pin(publish_pipelined::send_all(bench, Classic)),
    },
    Row {
        name: "publish/send_all/quorum",
        about: publish_pipelined::SEND_ALL,
        messages: 20_000,
        measure: MANY,
        run: |bench| Box::pin(publish_pipelined::send_all(bench, Quorum)),
    },
    Row {
        name: "publish/tasks/classic",
        about: publish_pipelined::TASKS,
        messages: 20_000,
        measure: MANY,
        run: |bench| Box::pin(publish_pipelined::tasks(bench, Classic)),
    },
    Row {
        name: "publish/tasks/quorum",
        about: publish_pipelined::TASKS,
        messages: 20_000,
        measure: MANY,
        run: |bench| Box::pin(publish_pipelined::tasks(bench, Quorum)),
    },
    Row {
        name: "publish/envelope/classic",
        about: publish_pipelined::ENVELOPE,
        messages: 20_000,
        measure: FOR_INFORMATION,
        run: |bench| Box::pin(publish_pipelined::envelope(bench, Classic)),
    },
    Row {
        name: "publish/envelope/quorum",
        about: publish_pipelined::ENVELOPE,
        messages: 20_000,
        measure: FOR_INFORMATION,
        run: |bench| Box::pin(publish_pipelined::envelope(bench, Quorum)),
    },
    Row {
        name: "consume/classic",
        about: consume::ABOUT,
        messages: 20_000,
        measure: MANY,
        run: |bench| Box::pin(consume::run(bench, Classic, consume::MANY_HANDLERS)),
    },
    Row {
        name: "consume/quorum",
        about: consume::ABOUT,
        messages: 20_000,
        measure: MANY,
        run: |bench| Box::pin(consume::run(bench, Quorum, consume::MANY_HANDLERS)),
    },
    Row {
        name: "consume/in-order/classic",
        about: consume::IN_ORDER,
        messages: 20_000,
        measure: FOR_INFORMATION,
        run: |bench| Box::pin(consume::run(bench, Classic, consume::ONE_HANDLER)),
    },
    Row {
        name: "consume/in-order/quorum",
        about: consume::IN_ORDER,
        messages: 20_000,
        measure: FOR_INFORMATION,
        run: |bench| Box::pin(consume::run(bench, Quorum, consume::ONE_HANDLER)),
    },
    Row {
        name: "consume/by-key/classic",
        about: ordered::ABOUT,
        messages: 20_000,
        measure: FOR_INFORMATION,
        run: |bench| Box::pin(ordered::run(bench, Classic)),
    },
    Row {
        name: "consume/by-key/quorum",
        about: ordered::ABOUT,
        messages: 20_000,
        measure: FOR_INFORMATION,
        run: |bench| Box::pin(ordered::run(bench, Quorum)),
    },
    Row {
        name: "request/serial/classic",
        about: request::ABOUT,
        messages: 1_000,
        measure: REQUEST,
        run: |bench| Box::pin(request::run(bench, Classic)),
    },
    Row {
        name: "request/serial/quorum",
        about: request::ABOUT,
        messages: 1_000,
        measure: REQUEST,
        run: |bench| Box::pin(request::run(bench, Quorum)),
    },
    Row {
        name: "pipeline/3-steps",
        about: pipeline::ABOUT,
        messages: 20_000,
        measure: Throughput { at_least: Some(0.60) },
        run: |bench| Box::pin(pipeline::run(bench)),
    },
    Row {
        name: "relay/one-by-one/postgres/classic",
        about: relay::ONE_BY_ONE,
        messages: 20_000,
        measure: Throughput { at_least: Some(13.0) },
        run: |bench| Box::pin(relay::postgres_one_by_one(bench, Classic)),
    },
    Row {
        name: "relay/one-by-one/postgres/quorum",
        about: relay::ONE_BY_ONE,
        messages: 20_000,
        measure: Throughput { at_least: Some(18.0) },
        run: |bench| Box::pin(relay::postgres_one_by_one(bench, Quorum)),
    },
    Row {
        name: "relay/one-by-one/mariadb",
        about: relay::ONE_BY_ONE,
        messages: 10_000,
        measure: Throughput { at_least: Some(10.0) },
        run: |bench| Box::pin(relay::mariadb_one_by_one(bench, Classic)),
    },
    Row {
        name: "relay/one-by-one/sqlite",
        about: relay::ONE_BY_ONE,
        messages: 10_000,
        measure: Throughput { at_least: Some(13.0) },
        run: |bench| Box::pin(relay::sqlite_one_by_one(bench, Classic)),
    },
    Row {
        name: "relay/raw/classic",
        about: relay::RAW,
        messages: 20_000,
        measure: Throughput { at_least: Some(0.65) },
        run: |bench| Box::pin(relay::against_raw(bench, Classic)),
    },
    Row {
        name: "relay/raw/quorum",
        about: relay::RAW,
        messages: 20_000,
        measure: Throughput { at_least: Some(0.50) },
        run: |bench| Box::pin(relay::against_raw(bench, Quorum)),
    },
    Row {
        name: "relay/by-hand/classic",
        about: relay::BY_HAND,
        messages: 20_000,
        measure: Throughput { at_least: Some(0.90) },
        run: |bench| Box::pin(relay::by_hand(bench, Classic)),
    },
    Row {
        name: "relay/by-hand/quorum",
        about: relay::BY_HAND,
        messages: 20_000,
        measure: Throughput { at_least: Some(0.90) },
        run: |bench| Box::pin(relay::by_hand(bench, Quorum)),
    },
    Row {
        name: "relay/beside-published",
        about: relay::PUBLISHED,
        messages: 20_000,
        measure: Throughput { at_least: Some(0.80) },
        run: |bench| Box::pin(relay::beside_published(bench)),
    },
    Row {
        name: "claim/backlog",
        about: claim::BACKLOG,
        messages: 10_000,
        measure: Time { at_most: Some(1.20) },
        run: |bench| Box::pin(claim::backlog(bench)),
    },
    Row {
        name: "claim/exhausted",
        about: claim::EXHAUSTED,
        messages: 10_000,
        measure: Time { at_most: Some(1.20) },
        run: |bench| Box::pin(claim::exhausted(bench)),
    },
    Row {
        name: "add",
        about: add::ABOUT,
        messages: 2_000,
        measure: Time { at_most: Some(1.05) },
        run: |bench| Box::pin(add::run(bench)),
    },
    Row {
        name: "idempotency/8-tasks",
        about: idempotency::ABOUT,
        messages: 4_000,
        measure: Throughput { at_least: Some(0.90) },
        run: |bench| Box::pin(idempotency::run(bench, idempotency::MANY_TASKS)),
    },
    Row {
        name: "idempotency/1-task",
        about: idempotency::ALONE,
        messages: 1_000,
        measure: Throughput { at_least: Some(0.90) },
        run: |bench| Box::pin(idempotency::run(bench, idempotency::ONE_TASK)),
    },
    Row {
        name: "codec/json/encode",
        about: codec::ENCODE,
        messages: 100_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::json(bench, Encode)),
    },
    Row {
        name: "codec/json/decode",
        about: codec::DECODE,
        messages: 100_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::json(bench, Decode)),
    },
    Row {
        name: "codec/xml/encode",
        about: codec::ENCODE,
        messages: 20_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::xml(bench, Encode)),
    },
    Row {
        name: "codec/xml/decode",
        about: codec::DECODE,
        messages: 20_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::xml(bench, Decode)),
    },
    Row {
        name: "codec/yaml/encode",
        about: codec::ENCODE,
        messages: 5_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::yaml(bench, Encode)),
    },
    Row {
        name: "codec/yaml/decode",
        about: codec::DECODE,
        messages: 5_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::yaml(bench, Decode)),
    },
    Row {
        name: "codec/toml/encode",
        about: codec::ENCODE,
        messages: 10_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::toml(bench, Encode)),
    },
    Row {
        name: "codec/toml/decode",
        about: codec::DECODE,
        messages: 10_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::toml(bench, Decode)),
    },
    Row {
        name: "codec/avro/encode",
        about: codec::ENCODE,
        messages: 20_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::avro(bench, Encode)),
    },
    Row {
        name: "codec/avro/decode",
        about: codec::DECODE,
        messages: 20_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::avro(bench, Decode)),
    },
    Row {
        name: "codec/protobuf/encode",
        about: codec::ENCODE,
        messages: 200_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::protobuf(bench, Encode)),
    },
    Row {
        name: "codec/protobuf/decode",
        about: codec::DECODE,
        messages: 200_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::protobuf(bench, Decode)),
    },
    Row {
        name: "codec/encrypted/encode",
        about: codec::ENCODE,
        messages: 50_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::encrypted(bench, Encode)),
    },
    Row {
        name: "codec/encrypted/decode",
        about: codec::DECODE,
        messages: 50_000,
        measure: CODEC,
        run: |bench| Box::pin(codec::encrypted(bench, Decode)),
    },
    Row {
        name: "memory/publish",
        about: memory::PUBLISH,
        messages: 20_000,
        measure: FOR_INFORMATION,
        run: |bench| Box::pin(memory::publish(bench)),
    },
    Row {
        name: "memory/consume",
        about: memory::CONSUME,
        messages: 20_000,
        measure: FOR_INFORMATION,
        run: |bench| Box::pin(memory::consume(bench)),
    },
];
