//! Envelopes with a field of the caller's choice.

use std::time::SystemTime;

use super::{Envelope, HeaderValue, check_application_header};
use crate::error::Result;

/// Each of these returns a new envelope with one field changed.
impl Envelope {
    /// With that id. The correlation follows it if it was the id before.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        let id = id.into();
        if self.correlation_id == self.id {
            self.correlation_id.clone_from(&id);
        }
        self.id = id;
        self
    }

    /// With that schema version; 0 counts as 1, the lowest there is.
    #[must_use]
    pub fn with_version(mut self, version: u32) -> Self {
        self.version = version.max(1);
        self
    }

    /// With that correlation id.
    #[must_use]
    pub fn with_correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = id.into();
        self
    }

    /// Caused by the message of that id.
    #[must_use]
    pub fn with_causation_id(mut self, id: impl Into<String>) -> Self {
        self.causation_id = Some(id.into());
        self
    }

    /// Published by that `client@host`.
    #[must_use]
    pub fn with_origin(mut self, origin: impl Into<String>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// First published at that time.
    #[must_use]
    pub fn with_first_seen(mut self, at: SystemTime) -> Self {
        self.first_seen = Some(at);
        self
    }

    /// With that claim header, which the library carries and does not read.
    #[must_use]
    pub fn with_claim(mut self, claim: impl Into<String>) -> Self {
        self.claim = Some(claim.into());
        self
    }

    /// With a header of the application's.
    ///
    /// # Errors
    /// [`ErrorKind::Encode`](crate::ErrorKind::Encode) for a name that begins with `x-acemq-`.
    pub fn with_header(
        mut self,
        name: impl Into<String>,
        value: impl Into<HeaderValue>,
    ) -> Result<Self> {
        let name = name.into();
        check_application_header(&name)?;
        self.headers.insert(name, value.into());
        Ok(self)
    }
}
