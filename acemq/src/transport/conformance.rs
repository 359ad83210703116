//! Being written: one suite for every transport.
