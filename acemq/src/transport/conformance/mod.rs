//! One suite for every transport.
//!
//! Each behaviour is written once, against the seam, and is a test of its own on the memory
//! transport, on RabbitMQ 3.x and on RabbitMQ 4.x. Where memory and RabbitMQ disagree, memory is
//! wrong.
//!
//! A behaviour takes a [`Bench`], makes names of its own on it, and leaves the cleaning up to it.

mod bench;
mod consuming;
mod dead_letters;
mod declaring;
mod expiry;
mod properties;
mod publishing;
mod routing;

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    sync::Arc,
};

use futures_util::FutureExt as _;

use self::bench::Bench;
#[cfg(feature = "amqp")]
use super::AmqpTransport;
use super::{MemoryTransport, Transport};

/// Makes the tests of a file: each behaviour on each transport.
macro_rules! conformance {
    ($($behaviour:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $behaviour() {
                $crate::transport::conformance::on_memory(super::$behaviour).await;
            })+
        }
        #[cfg(feature = "amqp")]
        mod rabbitmq3 {
            $(#[tokio::test] async fn $behaviour() {
                let url = testkit::amqp_url();
                $crate::transport::conformance::on_rabbitmq(url, super::$behaviour).await;
            })+
        }
        #[cfg(feature = "amqp")]
        mod rabbitmq4 {
            $(#[tokio::test] async fn $behaviour() {
                let url = testkit::amqp4_url();
                $crate::transport::conformance::on_rabbitmq(url, super::$behaviour).await;
            })+
        }
    };
}
use conformance;

async fn on_memory<F>(behaviour: fn(Arc<Bench>) -> F)
where
    F: Future<Output = ()>,
{
    // A broker of its own, which lives as long as its transport.
    let name = testkit::unique("conformance");
    run(Arc::new(MemoryTransport::new(&name).unwrap()), behaviour).await;
}

#[cfg(feature = "amqp")]
async fn on_rabbitmq<F>(url: Option<String>, behaviour: fn(Arc<Bench>) -> F)
where
    F: Future<Output = ()>,
{
    // Where there is none, that has been said in plain sight.
    if let Some(url) = url {
        run(Arc::new(AmqpTransport::new(&url).unwrap()), behaviour).await;
    }
}

/// Runs a behaviour and cleans up after it, also where it failed.
async fn run<F>(transport: Arc<dyn Transport>, behaviour: fn(Arc<Bench>) -> F)
where
    F: Future<Output = ()>,
{
    let bench = Arc::new(Bench::new(transport).await);
    let outcome = AssertUnwindSafe(behaviour(bench.clone())).catch_unwind().await;
    bench.clean_up().await;
    if let Err(failed) = outcome {
        resume_unwind(failed);
    }
}
