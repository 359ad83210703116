//! The first version of the library.
