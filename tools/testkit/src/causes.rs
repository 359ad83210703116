//! What an error says, as whoever prints it with all its causes reads it.

use std::{error::Error, iter::successors};

/// Makes sure that an error and its causes say nothing twice, and gives all that they say.
///
/// # Panics
///
/// When one of them says what one before it has said.
pub fn said_once(error: &(dyn Error + 'static)) -> String {
    let mut said = String::new();
    for cause in successors(Some(error), |&cause| cause.source()) {
        let text = cause.to_string();
        assert!(!said.contains(&text), "{text:?} is said again after {said:?}");
        said = format!("{said}{text}\n");
    }
    said
}
