//! Statements as text, values and all, for the simple query protocol.

use crate::statement::{Statement, Value};

/// A statement's text, values and all.
pub(super) fn with_values(statement: &Statement) -> String {
    let size = statement.sql.len() + statement.values.iter().map(size).sum::<usize>();
    let mut text = String::with_capacity(size);
    let mut parts = statement.sql.split('$');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        let number: usize = number.parse().unwrap_or_default();
        match statement.values.get(number.wrapping_sub(1)) {
            Some(Value::Text(value)) => put(&mut text, value),
            Some(Value::Integer(integer)) => {
                // Apart from a sign or an operator before it.
                text.push_str(&format!("({integer})::bigint"));
            }
            Some(Value::List(list)) => {
                text.push_str("ARRAY[");
                for (place, value) in list.iter().enumerate() {
                    if place > 0 {
                        text.push(',');
                    }
                    put(&mut text, value);
                }
                text.push_str("]::text[]");
            }
            // The server says that there is a placeholder too many.
            None => text.push('$'),
        }
        text.push_str(rest);
    }
    text
}

fn size(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len() + 4,
        Value::Integer(_) => 30,
        Value::List(list) => list.iter().map(|text| text.len() + 5).sum::<usize>() + 15,
    }
}

pub(super) fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 4);
    put(&mut literal, text);
    literal
}

/// Text as a literal that means the same whatever `standard_conforming_strings` says.
fn put(sql: &mut String, text: &str) {
    sql.push_str("E'");
    for part in text.split_inclusive(['\'', '\\']) {
        sql.push_str(part);
        if let Some(last @ ('\'' | '\\')) = part.chars().last() {
            sql.push(last);
        }
    }
    sql.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_put_in_by_number_and_never_end_early() {
        let sql = "a = $2 AND b = ANY($1) AND c > $3 OR a = $2".into();
        let statement = Statement::new(&sql)
            .list(vec!["it's".into(), "$2".into()])
            .text("a\\' OR true --")
            .integer(-7);
        assert_eq!(
            with_values(&statement),
            r"a = E'a\\'' OR true --' AND b = ANY(ARRAY[E'it''s',E'$2']::text[]) \
              AND c > (-7)::bigint OR a = E'a\\'' OR true --'"
                .replace("\\\n              ", "")
        );
        let none = Statement::new(&"b = ANY($1)".into()).list(Vec::new());
        assert_eq!(with_values(&none), "b = ANY(ARRAY[]::text[])");
    }
}
