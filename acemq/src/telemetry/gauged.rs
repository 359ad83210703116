//! A gauge that is one higher for as long as something lives.

use metrics::Key;

use super::{lower, raise};

#[derive(Debug)]
pub(crate) struct Gauged(Key);

impl Gauged {
    pub(super) fn new(key: &Key) -> Self {
        raise(key);
        Self(key.clone())
    }
}

impl Drop for Gauged {
    fn drop(&mut self) {
        lower(&self.0);
    }
}
