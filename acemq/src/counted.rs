//! Numbers of things in words.

use std::fmt::Display;

/// So many of something whose plural takes an `s`: `1 byte`, `2 bytes`.
pub(crate) fn counted(count: impl Display, one: &str) -> String {
    let count = count.to_string();
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {one}{ending}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_no_plural() {
        let said: Vec<_> = [0_u64, 1, 2, 11, 101].map(|count| counted(count, "byte")).into();
        assert_eq!(said, ["0 bytes", "1 byte", "2 bytes", "11 bytes", "101 bytes"]);
    }
}
