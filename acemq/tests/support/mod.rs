//! What the tests of several areas stand on.

#![allow(dead_code, unused_macros, reason = "each test file uses its own part of this")]

mod broker;
pub(crate) mod stores;
pub(crate) mod wire;

pub(crate) use broker::Broker;
