//! The names of tables, and whether a table has the shape that is expected.

use std::fmt;

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

    /// Another table beside this one, whose name goes on. The limit leaves room for that.
    pub(crate) fn beside(&self, suffix: &str) -> Self {
        Self { schema: self.schema.clone(), name: format!("{}{suffix}", self.name) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The schema alone.
    pub(crate) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The schema and a dot, or nothing, as SQL writes it.
    pub(crate) fn prefix(&self, quote: char) -> String {
        self.schema.as_ref().map(|schema| format!("{quote}{schema}{quote}.")).unwrap_or_default()
    }

    /// Schema and name as SQL writes them, quoted in the database's way, so that the name is
    /// taken as it is written.
    pub(crate) fn quoted(&self, quote: char) -> String {
        format!("{}{quote}{}{quote}", self.prefix(quote), self.name)
    }
}

/// What became of making a table. That there was one of another shape says more than what the
/// database made of it.
pub(crate) fn made<T>(created: Result<()>, looked_at: Result<T>) -> Result<()> {
    match looked_at {
        Err(error) if error.kind() == ErrorKind::Config => Err(error),
        looked_at => {
            created?;
            looked_at.map(|_| ())
        }
    }
}

/// For people: `shop.acemq_outbox`.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
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
pub(crate) struct Column {
    pub(crate) name: String,
    /// The database's name for its type.
    pub(crate) declared: String,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) nullable: bool,
    /// Whether an insert has to name it.
    pub(crate) required: bool,
    /// Of how many columns the primary key is, where this is one of them.
    pub(crate) key_of: Option<u64>,
    /// The most characters it holds, where that is limited.
    pub(crate) chars: Option<u64>,
    /// The most bytes it holds, where that is limited.
    pub(crate) bytes: Option<u64>,
    /// The collation that it is compared with, where different text may be the same for it.
    pub(crate) loose: Option<String>,
}

/// What a database says about a table.
#[derive(Debug, Default)]
pub struct Look {
    /// None for a table that does not exist.
    pub(crate) columns: Vec<Column>,
    /// What makes the table useless, whatever its columns.
    pub(crate) fault: Option<String>,
    /// The largest statement that the database takes, in bytes, where that is limited.
    pub(crate) largest_statement: Option<u64>,
}

/// How a table that can be used is made.
#[derive(Debug, Default)]
pub struct Layout {
    pub(crate) times: Times,
    pub(crate) columns: Vec<Column>,
    pub(crate) largest_statement: Option<u64>,
}

/// Whether a table's times carry a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Times {
    #[default]
    Zoned,
    Zoneless,
}

impl Layout {
    pub(crate) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// What a table must look like.
pub(crate) struct Shape {
    /// `outbox`, `idempotency` and the like.
    what: &'static str,
    columns: &'static [Expected],
    /// How many of them are its primary key, the first ones.
    key: usize,
    /// What happens where the key is compared so that different ids may be the same.
    loose_key: LooseKey,
}

struct Expected {
    name: &'static str,
    kind: Kind,
    /// How many characters have to fit.
    chars: u64,
}

enum LooseKey {
    /// The table is used: a record whose id it takes for another's is refused when it is added.
    Warns,
    /// The table is refused: one message would count as another's duplicate.
    IsRefused,
}

impl Shape {
    /// Compares a table with this shape.
    pub(crate) fn check(&self, table: &Table, look: Look, create: &[String]) -> Result<Layout> {
        let what = self.what;
        let Look { columns, fault, largest_statement } = look;
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
        let mut layout = Layout { times: Times::Zoned, columns, largest_statement };
        let mut faults: Vec<String> = fault.into_iter().collect();
        faults.extend(self.faults(&layout));
        match self.times(&layout) {
            Some(times) => layout.times = times,
            None => faults.push("some of its times have a zone and some have none".to_owned()),
        }
        faults.extend(self.key_fault(&layout));
        if faults.is_empty() {
            self.warn_of_a_loose_key(table, &layout);
            return Ok(layout);
        }
        Err(Error::new(
            ErrorKind::Config,
            format!(
                "use {what} table {table}: it has another shape, perhaps another library's: {}; \
                 choose another table name, or create it with: {}",
                faults.join("; "),
                create.join("; ")
            ),
        ))
    }

    /// What is wrong with the columns, each by itself.
    fn faults(&self, layout: &Layout) -> Vec<String> {
        let mut faults = Vec::new();
        let names = |names: Vec<&str>| (!names.is_empty()).then(|| names.join(", "));
        let missing = self.columns.iter().map(|expected| expected.name);
        let missing = missing.filter(|name| layout.column(name).is_none()).collect();
        faults.extend(names(missing).map(|names| format!("columns are missing: {names}")));

        let unknown = |name: &str| self.columns.iter().all(|expected| expected.name != name);
        let required = layout.columns.iter().filter(|column| column.required);
        let required = required.map(|column| column.name.as_str()).filter(|name| unknown(name));
        faults.extend(
            names(required.collect())
                .map(|names| format!("columns are there that nobody would fill: {names}")),
        );

        for Expected { name, kind, chars } in self.columns {
            let Some(column) = layout.column(name) else { continue };
            let declared = &column.declared;
            if !column.kinds.contains(kind) && !is_zoneless(*kind, column) {
                faults.push(format!("column {name} is of type {declared}"));
            } else if column.chars.is_some_and(|holds| holds < *chars) {
                faults.push(format!(
                    "column {name} is of type {declared}, and {chars} characters have to fit"
                ));
            } else if *kind == Kind::Integer && column.nullable && column.key_of.is_none() {
                // Null is not below any maximum: such a record would never be claimed.
                faults.push(format!("column {name} may be null"));
            }
        }
        faults
    }

    /// Whether the times have a zone, if they agree.
    fn times(&self, layout: &Layout) -> Option<Times> {
        let times = self.columns.iter().filter(|expected| expected.kind == Kind::Time);
        let columns = times.filter_map(|expected| layout.column(expected.name));
        let mut zoneless = columns.map(|column| is_zoneless(Kind::Time, column));
        let first = zoneless.next().unwrap_or(false);
        let agreed = zoneless.all(|other| other == first);
        agreed.then_some(if first { Times::Zoneless } else { Times::Zoned })
    }

    /// What is wrong with the key.
    fn key_fault(&self, layout: &Layout) -> Option<String> {
        let fault = |column: &Column| {
            let name = &column.name;
            match (&column.loose, &self.loose_key) {
                _ if column.key_of != Some(self.key as u64) => Some(match self.key {
                    1 => format!("column {name} is not its primary key"),
                    _ => format!("column {name} does not make its primary key with the others"),
                }),
                (Some(collation), LooseKey::IsRefused) => Some(format!(
                    "column {name} has collation {collation}, for which different ids may be the \
                     same; give it one that compares byte for byte, such as utf8mb4_nopad_bin"
                )),
                _ => None,
            }
        };
        self.key(layout).find_map(fault)
    }

    fn warn_of_a_loose_key(&self, table: &Table, layout: &Layout) {
        for key in self.key(layout) {
            let Some(collation) = &key.loose else { continue };
            tracing::warn!(
                %table,
                collation,
                "different ids may be the same for the collation of column {}: a record whose id \
                 clashes with another's is refused when it is added; prefer a collation that \
                 compares byte for byte",
                key.name
            );
        }
    }

    fn key<'l>(&self, layout: &'l Layout) -> impl Iterator<Item = &'l Column> {
        self.columns.iter().take(self.key).filter_map(|expected| layout.column(expected.name))
    }
}

fn is_zoneless(wanted: Kind, column: &Column) -> bool {
    wanted == Kind::Time && column.kinds.contains(&Kind::ZonelessTime)
}

const fn text(name: &'static str, chars: u64) -> Expected {
    Expected { name, kind: Kind::Text, chars }
}

const fn integer(name: &'static str) -> Expected {
    Expected { name, kind: Kind::Integer, chars: 0 }
}

const fn time(name: &'static str) -> Expected {
    Expected { name, kind: Kind::Time, chars: 0 }
}

/// The outbox table of the family's newest shape, its key first.
pub(crate) const OUTBOX: Shape = Shape {
    what: "outbox",
    columns: &[
        text("id", 64),
        text("exchange_name", 255),
        text("routing_key", 255),
        text("body", 0),
        text("body_encoding", 16),
        text("content_type", 255),
        text("headers", 0),
        time("created_at"),
        time("published_at"),
        integer("attempts"),
        text("last_error", 1_000),
        text("locked_by", 64),
        time("locked_until"),
    ],
    key: 1,
    loose_key: LooseKey::Warns,
};

/// The idempotency table that Java and Ruby share, its key first.
pub(crate) const IDEMPOTENCY: Shape = Shape {
    what: "idempotency",
    columns: &[
        text("message_id", 255),
        text("state", 9),
        text("claimed_by", 64),
        time("recorded_at"),
        time("expires_at"),
    ],
    key: 1,
    loose_key: LooseKey::IsRefused,
};

/// The table of durable sagas, which is ours alone, its key first.
pub(crate) const SAGA: Shape = Shape {
    what: "saga",
    columns: &[
        text("instance", 255),
        text("saga", 100),
        text("steps", 64),
        text("status", 12),
        text("state", 0),
        integer("version"),
        integer("claims"),
        text("locked_by", 64),
        time("due_at"),
        time("deadline_at"),
        time("created_at"),
        time("updated_at"),
    ],
    key: 1,
    loose_key: LooseKey::IsRefused,
};

/// The schema registry's table of Java's shape, its key first.
pub(crate) const SCHEMAS: Shape = Shape {
    what: "schema registry",
    columns: &[
        integer("id"),
        text("fingerprint", 64),
        text("format", 32),
        text("subject", 255),
        text("definition", 0),
        time("registered_at"),
    ],
    key: 1,
    loose_key: LooseKey::Warns,
};

/// The table that the registry's ids are counted in.
pub(crate) const SCHEMA_SEQUENCE: Shape = Shape {
    what: "schema sequence",
    columns: &[integer("only_row"), integer("last_id")],
    key: 1,
    loose_key: LooseKey::Warns,
};

/// The table of the places of streams' readers.
pub(crate) const CHECKPOINTS: Shape = Shape {
    what: "stream checkpoint",
    columns: &[
        text("stream_name", 255),
        text("reader_name", 255),
        integer("last_offset"),
        time("saved_at"),
    ],
    key: 2,
    loose_key: LooseKey::IsRefused,
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
        assert_eq!(table.quoted('"'), "\"shop\".\"_Outbox2\"");
        assert_eq!(table.to_string(), "shop._Outbox2");
    }
}
