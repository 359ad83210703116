//! A message that is still being described.

use std::{borrow::Cow, time::Duration};

use crate::{
    connection::Client,
    envelope::{Envelope, HeaderValue, check_application_header, strip_reserved},
    error::{Error, ErrorKind, Result},
};

/// The envelope of a message in the making, and the first mistake that was made with it.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Boxed, because a message in the making is moved a few times on its way.
    pub(crate) envelope: Box<Envelope>,
    problem: Option<Error>,
}

impl Draft {
    /// An envelope by the rules of every publish: the origin is this client, first seen now.
    pub(crate) fn new(client: &Client, message_type: &str) -> Self {
        let envelope = Envelope::new(message_type)
            .with_origin(client.origin())
            .with_first_seen(client.clock().now());
        Self { envelope: Box::new(envelope), problem: None }
    }

    pub(crate) fn change(mut self, change: impl FnOnce(Envelope) -> Envelope) -> Self {
        *self.envelope = change(*self.envelope);
        self
    }

    pub(crate) fn header(mut self, name: Cow<'_, str>, value: HeaderValue) -> Self {
        match check_application_header(&name) {
            Ok(()) => {
                self.envelope.headers.insert(name.into_owned(), value);
            }
            Err(error) => self.refuse(error),
        }
        self
    }

    pub(crate) fn headers(mut self, headers: crate::envelope::Headers) -> Self {
        self.envelope.headers.extend(strip_reserved(headers));
        self
    }

    pub(crate) fn version(mut self, version: u32) -> Self {
        if version == 0 {
            self.refuse(Error::new(ErrorKind::Encode, "set the version: it is at least 1"));
        }
        self.envelope.version = version;
        self
    }

    pub(crate) fn id(mut self, id: String) -> Self {
        if id.is_empty() {
            self.refuse(Error::new(
                ErrorKind::Encode,
                "set the message id: it is empty; leave it unset for a random one",
            ));
        }
        self.change(|envelope| envelope.with_id(id))
    }

    pub(crate) fn finish(self) -> Result<Envelope> {
        self.problem.map_or(Ok(*self.envelope), Err)
    }

    pub(crate) fn refuse(&mut self, error: Error) {
        self.problem.get_or_insert(error);
    }
}

/// An expiration as AMQP carries it: whole milliseconds as text.
pub(super) fn expiration(after: Duration) -> Result<String> {
    let millis = after.as_millis();
    if millis == 0 || millis > u128::from(u32::MAX) {
        return Err(Error::new(
            ErrorKind::Encode,
            format!("set the expiration: {after:?} is not from 1 millisecond to about 49 days"),
        ));
    }
    Ok(millis.to_string())
}

/// The options that every message in the making has, whatever becomes of it; the draft is the field
/// that is named.
macro_rules! draft_options {
    ($($draft:ident).+) => {
        /// The message id. Default: a random UUID. It is what duplicates are recognised by: two
        /// different messages under one id are one to an idempotent consumer and to an outbox.
        pub fn id(mut self, id: impl Into<String>) -> Self {
            self.$($draft).+ = self.$($draft).+.id(id.into());
            self
        }

        /// What the message belongs to. Default: its own id.
        pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
            self.$($draft).+ = self.$($draft).+.change(|envelope| envelope.with_correlation_id(id));
            self
        }

        /// The id of the message that caused this one.
        pub fn causation_id(mut self, id: impl Into<String>) -> Self {
            self.$($draft).+ = self.$($draft).+.change(|envelope| envelope.with_causation_id(id));
            self
        }

        /// Caused by that message: carries its correlation on and names its id as the cause.
        pub fn caused_by(self, cause: &$crate::Envelope) -> Self {
            self.correlation_id(cause.correlation_id()).causation_id(cause.id())
        }

        /// The message type. Default: the publisher's, which is its routing key, or the
        /// pipeline's name.
        pub fn message_type(mut self, message_type: impl Into<String>) -> Self {
            self.$($draft).+.envelope.message_type = message_type.into();
            self
        }

        /// The schema version of the message type, from 1.
        pub fn version(mut self, version: u32) -> Self {
            self.$($draft).+ = self.$($draft).+.version(version);
            self
        }

        /// A claim header, which the library carries and does not read.
        pub fn claim(mut self, claim: impl Into<String>) -> Self {
            self.$($draft).+ = self.$($draft).+.change(|envelope| envelope.with_claim(claim));
            self
        }

        /// A header of the application's. A name that begins with `x-acemq-` is an error.
        pub fn header(
            mut self,
            name: impl Into<String>,
            value: impl Into<$crate::HeaderValue>,
        ) -> Self {
            self.$($draft).+ = self.$($draft).+.header(name.into().into(), value.into());
            self
        }

        /// A whole map of headers; reserved names in it are left out.
        pub fn headers(mut self, headers: $crate::Headers) -> Self {
            self.$($draft).+ = self.$($draft).+.headers(headers);
            self
        }
    };
}
pub(crate) use draft_options;
