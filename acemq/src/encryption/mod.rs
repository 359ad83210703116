//! Bodies that only the holders of a key can read.
//!
//! A frame says which key it is sealed with, so that keys can be rotated while messages are under
//! way: the newest key writes, older ones still read.

mod codec;
mod frame;
mod keyring;
#[cfg(test)]
mod tests;

pub use self::{codec::Encrypted, keyring::Keyring};
