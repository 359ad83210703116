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
    /// Whether the connection keeps it prepared. Not where the best plan depends on the values or
    /// on how full the table is: a plan made while it was empty would be kept.
    pub(crate) kept: bool,
}

impl Statement {
    pub(crate) fn new(sql: &Arc<str>) -> Self {
        Self { sql: Arc::clone(sql), values: Vec::new(), kept: true }
    }

    pub(crate) fn planned_each_time(mut self) -> Self {
        self.kept = false;
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
