//! The names of tables, and whether a table has the shape that is expected.

use acemq::{Error, ErrorKind, Result};

/// The longest table name: the names of its indexes, which are longer, are cut at 63 by PostgreSQL.
const MAX_NAME: usize = 50;

/// A table's name and schema, both plain identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    schema: Option<String>,
    name: String,
}

impl Table {
    pub(crate) fn new(name: &str) -> Self {
        Self { schema: None, name: name.to_owned() }
    }

    pub(crate) fn set_name(&mut self, name: &str) -> Result<()> {
        self.name = plain_identifier("table", name)?;
        Ok(())
    }

    pub(crate) fn set_schema(&mut self, schema: &str) -> Result<()> {
        self.schema = Some(plain_identifier("schema", schema)?);
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The schema and a dot, or nothing. Quoted.
    pub(crate) fn prefix(&self) -> String {
        self.schema.as_ref().map(|schema| format!("\"{schema}\".")).unwrap_or_default()
    }

    /// The schema alone, unquoted.
    #[cfg(feature = "sqlite")]
    pub(crate) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Schema and name as SQL writes them. Quoted, so that the name is taken as it is written on
    /// every database.
    pub(crate) fn quoted(&self) -> String {
        format!("{}\"{}\"", self.prefix(), self.name)
    }
}

fn plain_identifier(what: &str, name: &str) -> Result<String> {
    let plain = name.len() <= MAX_NAME
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if plain {
        return Ok(name.to_owned());
    }
    Err(Error::new(
        ErrorKind::Config,
        format!(
            "use {what} name {name:?}: it is not a plain identifier; at most {MAX_NAME} letters, \
             digits and underscores will do, not beginning with a digit"
        ),
    ))
}

/// What a column can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Integer,
    /// A time with its zone, or text that means one.
    Time,
    /// A time without a zone, which means UTC here.
    ZonelessTime,
    Other,
}

/// A column as the database describes it.
#[derive(Clone, Debug)]
pub struct Column {
    pub(crate) name: String,
    /// The database's name for its type.
    pub(crate) declared: String,
    pub(crate) kinds: Vec<Kind>,
    /// Whether an insert has to name it.
    pub(crate) required: bool,
}

/// What a table must look like.
pub(crate) struct Shape {
    /// `outbox` or `idempotency`.
    pub(crate) what: &'static str,
    pub(crate) columns: &'static [(&'static str, Kind)],
}

/// Whether a table's times carry a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    Zoned,
    Zoneless,
}

impl Shape {
    /// Compares a table with this shape; `columns` is empty for a table that does not exist.
    pub(crate) fn check(
        &self,
        table: &Table,
        columns: &[Column],
        create: &[String],
    ) -> Result<Times> {
        let Self { what, .. } = self;
        let table = table.quoted();
        if columns.is_empty() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "use {what} table {table}: it does not exist; create it in a migration with: \
                     {}",
                    create.join("; ")
                ),
            ));
        }
        let mut faults = Vec::new();
        let missing: Vec<&str> = self
            .columns
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| columns.iter().all(|column| column.name != *name))
            .collect();
        if !missing.is_empty() {
            faults.push(format!("columns are missing: {}", missing.join(", ")));
        }
        let unexpected: Vec<&str> = columns
            .iter()
            .filter(|column| column.required)
            .map(|column| column.name.as_str())
            .filter(|name| self.columns.iter().all(|(known, _)| known != name))
            .collect();
        if !unexpected.is_empty() {
            faults.push(format!(
                "columns are there that nobody would fill: {}",
                unexpected.join(", ")
            ));
        }
        let mut zoneless = Vec::new();
        for (name, kind) in self.columns {
            let Some(column) = columns.iter().find(|column| column.name == *name) else { continue };
            if !column.kinds.contains(kind) && !is_zoneless(*kind, column) {
                faults.push(format!("column {name} is of type {}", column.declared));
            } else if *kind == Kind::Time {
                zoneless.push(is_zoneless(*kind, column));
            }
        }
        if faults.is_empty() && zoneless.iter().any(|one| *one != zoneless[0]) {
            faults.push("some of its times have a zone and some have none".to_owned());
        }
        if !faults.is_empty() {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "use {what} table {table}: it has another shape, perhaps another library's: \
                     {}; choose another table name, or create it with: {}",
                    faults.join("; "),
                    create.join("; ")
                ),
            ));
        }
        Ok(if zoneless.contains(&true) { Times::Zoneless } else { Times::Zoned })
    }
}

fn is_zoneless(wanted: Kind, column: &Column) -> bool {
    wanted == Kind::Time && column.kinds.contains(&Kind::ZonelessTime)
}

/// The outbox table of the family's newest shape.
pub(crate) const OUTBOX: Shape = Shape {
    what: "outbox",
    columns: &[
        ("id", Kind::Text),
        ("exchange_name", Kind::Text),
        ("routing_key", Kind::Text),
        ("body", Kind::Text),
        ("body_encoding", Kind::Text),
        ("content_type", Kind::Text),
        ("headers", Kind::Text),
        ("created_at", Kind::Time),
        ("published_at", Kind::Time),
        ("attempts", Kind::Integer),
        ("last_error", Kind::Text),
        ("locked_by", Kind::Text),
        ("locked_until", Kind::Time),
    ],
};

/// The idempotency table that Java and Ruby share.
pub(crate) const IDEMPOTENCY: Shape = Shape {
    what: "idempotency",
    columns: &[
        ("message_id", Kind::Text),
        ("state", Kind::Text),
        ("claimed_by", Kind::Text),
        ("recorded_at", Kind::Time),
        ("expires_at", Kind::Time),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    // promise: ID-14
    #[test]
    fn a_name_that_is_not_a_plain_identifier_is_refused() {
        let mut table = Table::new("acemq_outbox");
        for name in ["", "1st", "a b", "a\"b", "a;b", "ä", "public.outbox", &"n".repeat(51)] {
            let error = table.set_name(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{name}");
            assert!(table.set_schema(name).is_err(), "{name}");
        }
        table.set_name(&"n".repeat(50)).unwrap();
        table.set_name("_Outbox2").unwrap();
        table.set_schema("shop").unwrap();
        assert_eq!(table.quoted(), "\"shop\".\"_Outbox2\"");
    }
}
