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
