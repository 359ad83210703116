//! When a failed message is tried again, and where it waits meanwhile.

mod policy;

pub use self::policy::RetryPolicy;
pub(crate) use self::policy::Wait;
