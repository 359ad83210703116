//! A statement on its way to a database.

use std::sync::Arc;

/// A value of a statement.
#[derive(Clone, Debug)]
pub enum Value {
    Text(String),
    Integer(i64),
    List(Vec<String>),
}

/// SQL, with a placeholder `$1`, `$2`, … for each value.
#[derive(Clone, Debug)]
pub struct Statement {
    pub(crate) sql: Arc<str>,
    pub(crate) values: Vec<Value>,
    pub(crate) planned: Planned,
}

/// When a database plans a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planned {
    /// Once: the connection keeps it prepared. Not where the best plan depends on the values or on
    /// how full the table is: a plan made while it was empty would be kept.
    Once,
    /// Each time, with its values apart. It may take two trips, which only a transaction keeps in
    /// one session where a pooler stands between.
    EachTime,
    /// Each time, in one piece: its values are in the text where the database allows it.
    InOnePiece,
}

impl Statement {
    pub(crate) fn new(sql: &Arc<str>) -> Self {
        Self { sql: Arc::clone(sql), values: Vec::new(), planned: Planned::Once }
    }

    /// For what may be run in a transaction of the caller's only.
    pub(crate) fn planned_each_time(mut self) -> Self {
        self.planned = Planned::EachTime;
        self
    }

    pub(crate) fn in_one_piece(mut self) -> Self {
        self.planned = Planned::InOnePiece;
        self
    }

    /// Where the pool keeps nothing prepared, a statement that would be kept is planned each time.
    pub(crate) fn kept_where(mut self, keeps: bool, otherwise: Planned) -> Self {
        if !keeps && self.planned == Planned::Once {
            self.planned = otherwise;
        }
        self
    }

    pub(crate) fn text(self, value: impl Into<String>) -> Self {
        self.value(Value::Text(value.into()))
    }

    pub(crate) fn integer(self, value: i64) -> Self {
        self.value(Value::Integer(value))
    }

    pub(crate) fn list(self, values: Vec<String>) -> Self {
        self.value(Value::List(values))
    }

    pub(crate) fn value(mut self, value: Value) -> Self {
        self.values.push(value);
        self
    }
}

/// How many bytes of a list a statement may have to stay within a record of TLS, which has 16 KiB
/// (RFC 8446, section 5.1) and is written to the network by itself. sqlx 0.9.0 leaves Nagle's
/// algorithm on (<https://github.com/launchbadge/sqlx/issues/4335>), and so the last of several
/// records waits until the server acknowledges the others, for which Linux takes 40 ms.
#[cfg(any(feature = "mysql", feature = "postgres"))]
const MOST_OF_A_RECORD: usize = 15_000;
/// What a value in a list has around it.
#[cfg(any(feature = "mysql", feature = "postgres"))]
const AROUND_A_VALUE: usize = "E'',".len();

/// A list in parts, each short enough for a statement that is not held up on its way.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn in_parts(list: Vec<String>) -> Vec<Vec<String>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    for value in list {
        bytes += value.len() + AROUND_A_VALUE;
        match parts.last_mut() {
            Some(part) if bytes <= MOST_OF_A_RECORD || part.is_empty() => part.push(value),
            _ => {
                bytes = value.len() + AROUND_A_VALUE;
                parts.push(vec![value]);
            }
        }
    }
    parts
}

/// Puts something in the place of each `$1`, `$2`, …
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn fill(sql: &str, mut put: impl FnMut(usize, &mut String)) -> String {
    let mut parts = sql.split('$');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        put(number.parse().unwrap_or_default(), &mut filled);
        filled.push_str(rest);
    }
    filled
}

#[cfg(all(test, any(feature = "mysql", feature = "postgres")))]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_goes_out_in_parts_that_fit_a_record_of_tls() {
        let ids: Vec<String> = (0..1_000).map(|n| format!("{n:036}")).collect();
        let parts = in_parts(ids.clone());
        assert_eq!(parts.concat(), ids);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [375, 375, 250]);
        // What is longer by itself goes alone, and what is there goes at once.
        let long = "i".repeat(20_000);
        let list = vec!["a".to_owned(), long.clone(), "b".to_owned(), "c".to_owned()];
        assert_eq!(
            in_parts(list),
            [vec!["a".to_owned()], vec![long], vec!["b".into(), "c".into()]]
        );
        assert_eq!(in_parts(vec!["a".to_owned()]), [["a"]]);
    }
}
