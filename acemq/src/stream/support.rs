//! Which brokers have streams.

use crate::{
    connection::Client,
    error::{Error, ErrorKind, Result},
    transport::{Link, Streams},
};

/// Refuses what a broker is known not to have.
pub(crate) fn require_streams(
    client: &Client,
    link: &dyn Link,
    needed: Streams,
    doing: &str,
    stream: &str,
) -> Result<()> {
    if link.limits().streams >= needed {
        return Ok(());
    }
    let why = match (client.transport_name(), needed) {
        ("memory", _) => "the memory transport has no streams; use RabbitMQ, from 3.9 on",
        (_, Streams::Filtered) => {
            "this broker does not filter streams, which RabbitMQ does from 3.13 on; leave the filter \
             out, and look at the messages in the handler"
        }
        (_, Streams::Known | Streams::Unknown) => {
            "this broker has no streams, which RabbitMQ has from 3.9 on"
        }
    };
    Err(Error::new(ErrorKind::Unsupported, format!("{doing} stream {stream:?}: {why}"))
        .with_queue(stream))
}
