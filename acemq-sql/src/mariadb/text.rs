//! Statements as text, values and all.

use crate::statement::{Statement, Value, fill};

/// A statement's text, values and all.
pub(super) fn with_values(statement: &Statement) -> String {
    fill(&statement.sql, |number, sql| match statement.values.get(number.wrapping_sub(1)) {
        Some(Value::Text(text)) => sql.push_str(&literal(text)),
        Some(Value::Integer(integer)) => sql.push_str(&integer.to_string()),
        Some(Value::List(list)) => {
            sql.push_str(&list.iter().map(|text| literal(text)).collect::<Vec<_>>().join(", "));
        }
        // The server says that there is a placeholder too many.
        None => sql.push('?'),
    })
}

/// A statement's text with the placeholders that MariaDB knows.
pub(super) fn with_question_marks(sql: &str) -> String {
    fill(sql, |_, sql| sql.push('?'))
}

/// What a literal has beside its characters, at most.
const LITERAL: usize = "_utf8mb4 x''".len();

/// Text as a literal that means the same in every SQL mode and character set, and cannot end
/// before its end: plain text in quotes, anything else in hexadecimal.
pub(super) fn literal(text: &str) -> String {
    if is_plain(text) {
        return format!("'{text}'");
    }
    let mut literal = String::with_capacity(2 * text.len() + LITERAL);
    literal.push_str("_utf8mb4 x'");
    for byte in text.bytes() {
        for half in [byte >> 4, byte & 0xf] {
            literal.push(char::from(b"0123456789abcdef"[usize::from(half)]));
        }
    }
    literal.push('\'');
    literal
}

/// How many bytes a literal has, at most.
pub(super) fn literal_size(text: &str) -> usize {
    LITERAL + if is_plain(text) { text.len() } else { 2 * text.len() }
}

/// Whether every character stands for itself between quotes, whatever the settings.
fn is_plain(text: &str) -> bool {
    let stands_for_itself = |byte: u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    text.bytes().all(|byte| stands_for_itself(byte) && byte != b'\'' && byte != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_holds_any_text_and_never_ends_early() {
        assert_eq!(literal("order.placed {\"n\": 1}"), "'order.placed {\"n\": 1}'");
        assert_eq!(literal(""), "''");
        for (text, hexadecimal) in
            [("'", "27"), ("\\", "5c"), ("a\0", "6100"), ("ü", "c3bc"), ("\u{1a}", "1a")]
        {
            assert_eq!(literal(text), format!("_utf8mb4 x'{hexadecimal}'"));
            assert_eq!(literal_size(text), literal(text).len());
        }
        assert!(literal_size("plain") >= literal("plain").len());
    }

    #[test]
    fn values_are_put_in_by_number_and_are_not_looked_into() {
        let sql = "a = $2 AND b IN ($1) AND c > $3 OR a = $2".into();
        let statement =
            Statement::new(&sql).list(vec!["x".into(), "$2".into()]).text("$1").integer(-7);
        assert_eq!(with_values(&statement), "a = '$1' AND b IN ('x', '$2') AND c > -7 OR a = '$1'");
        assert_eq!(with_question_marks("($1, $2, 0)"), "(?, ?, 0)");
    }
}
