//! Statements as text, values and all, for the simple query protocol.

use crate::statement::{Statement, Value, fill};

/// A statement's text, values and all.
pub(super) fn with_values(statement: &Statement) -> String {
    fill(&statement.sql, |number, sql| match statement.values.get(number.wrapping_sub(1)) {
        Some(Value::Text(text)) => put(sql, text),
        // Apart from a sign or an operator before it.
        Some(Value::Integer(integer)) => sql.push_str(&format!("({integer})::bigint")),
        Some(Value::List(list)) => {
            sql.push_str("ARRAY[");
            for (place, text) in list.iter().enumerate() {
                if place > 0 {
                    sql.push(',');
                }
                put(sql, text);
            }
            sql.push_str("]::text[]");
        }
        // The server says that there is a placeholder too many.
        None => sql.push('$'),
    })
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
