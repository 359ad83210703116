//! What a topology says of itself before it changes anything.

mod planning;
mod retries;
