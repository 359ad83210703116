//! What the places of streams' readers are on every database: the same.

mod places;
mod projecting;
mod tables;

use super::database::{self, Checkpoints, Database, Db};
