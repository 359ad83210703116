//! What a schema says about the bytes: its types with their names looked up.

use std::collections::HashMap;

use apache_avro::schema::{
    Aliases, DecimalSchema, FixedSchema, InnerDecimalSchema, Name, NamespaceRef, Schema, UuidSchema,
};
use serde_json::Value as Json;

/// A schema's types, each once, so that one that contains itself is no endless tree. The first is
/// the schema itself.
#[derive(Debug)]
pub(super) struct Layout(Vec<Type>);

/// Where a type is in its layout.
pub(super) type TypeId = usize;

/// The whole of a schema.
pub(super) const ROOT: TypeId = 0;

#[derive(Debug)]
pub(super) struct Type {
    pub(super) shape: Shape,
    /// What the bytes mean beyond their shape. Data of one meaning is never read as another's.
    pub(super) meaning: Option<Meaning>,
}

#[derive(Debug)]
pub(super) enum Shape {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed { names: Names, size: usize },
    Enum { names: Names, symbols: Vec<String>, default: Option<usize> },
    Array(TypeId),
    Map(TypeId),
    Union(Vec<TypeId>),
    Record(Record),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Decimal { precision: usize, scale: usize },
    BigDecimal,
    Uuid,
    Date,
    TimeMillis,
    TimeMicros,
    TimestampMillis,
    TimestampMicros,
    TimestampNanos,
    LocalTimestampMillis,
    LocalTimestampMicros,
    LocalTimestampNanos,
    Duration,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) names: Names,
    pub(super) fields: Vec<Field>,
    /// apache-avro derived it from a Rust tuple.
    pub(super) is_tuple: bool,
    /// apache-avro put it around one of several that a Rust enum holds, for a union has no two of
    /// one type.
    is_wrapper: bool,
}

impl Record {
    /// Whether that is its name, without the namespace.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.names.name.rsplit('.').next() == Some(name)
    }

    /// The field of a name, and its place.
    pub(super) fn field(&self, name: &str) -> Option<(usize, &Field)> {
        self.fields.iter().enumerate().find(|(_, field)| field.name == name)
    }
}

/// A type's full name, and the full names it had before.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) default: Option<Json>,
    pub(super) of_type: TypeId,
}

impl Layout {
    /// The layout of a schema; none where it names a type that it does not define.
    pub(super) fn of(schema: &Schema) -> Option<Self> {
        let mut builder = Builder { types: Vec::new(), named: HashMap::new() };
        builder.add(schema, None)?;
        Some(Self(builder.types))
    }

    pub(super) fn get(&self, id: TypeId) -> &Type {
        &self.0[id]
    }

    pub(super) fn shape(&self, id: TypeId) -> &Shape {
        &self.0[id].shape
    }

    /// A type, or the one inside of it where it is a wrapper of apache-avro's.
    pub(super) fn within_wrapper(&self, id: TypeId) -> TypeId {
        match self.shape(id) {
            Shape::Record(Record { is_wrapper: true, fields, .. }) if fields.len() == 1 => {
                fields[0].of_type
            }
            _ => id,
        }
    }

    /// What people call a type.
    pub(super) fn name(&self, id: TypeId) -> &str {
        match self.shape(id) {
            Shape::Null => "null",
            Shape::Boolean => "boolean",
            Shape::Int => "int",
            Shape::Long => "long",
            Shape::Float => "float",
            Shape::Double => "double",
            Shape::Bytes => "bytes",
            Shape::String => "string",
            Shape::Array(_) => "array",
            Shape::Map(_) => "map",
            Shape::Union(_) => "union",
            Shape::Fixed { names, .. }
            | Shape::Enum { names, .. }
            | Shape::Record(Record { names, .. }) => &names.name,
        }
    }
}

struct Builder {
    types: Vec<Type>,
    named: HashMap<String, TypeId>,
}

impl Builder {
    /// Adds a type and all that is in it.
    fn add(&mut self, schema: &Schema, namespace: NamespaceRef<'_>) -> Option<TypeId> {
        if let Schema::Ref { name } = schema {
            return self.named.get(&name.fullname(namespace)).copied();
        }
        // Its place comes before those of its parts, which may be of this very type.
        let id = self.types.len();
        self.types.push(Type { shape: Shape::Null, meaning: meaning(schema) });
        let shape = self.shape(id, schema, namespace)?;
        self.types[id].shape = shape;
        Some(id)
    }

    fn shape(&mut self, id: TypeId, schema: &Schema, namespace: NamespaceRef<'_>) -> Option<Shape> {
        Some(match schema {
            Schema::Null => Shape::Null,
            Schema::Boolean => Shape::Boolean,
            Schema::Int | Schema::Date | Schema::TimeMillis => Shape::Int,
            Schema::Long
            | Schema::TimeMicros
            | Schema::TimestampMillis
            | Schema::TimestampMicros
            | Schema::TimestampNanos
            | Schema::LocalTimestampMillis
            | Schema::LocalTimestampMicros
            | Schema::LocalTimestampNanos => Shape::Long,
            Schema::Float => Shape::Float,
            Schema::Double => Shape::Double,
            Schema::Bytes
            | Schema::BigDecimal
            | Schema::Decimal(DecimalSchema { inner: InnerDecimalSchema::Bytes, .. })
            | Schema::Uuid(UuidSchema::Bytes) => Shape::Bytes,
            Schema::String | Schema::Uuid(UuidSchema::String) => Shape::String,
            Schema::Fixed(fixed)
            | Schema::Duration(fixed)
            | Schema::Uuid(UuidSchema::Fixed(fixed))
            | Schema::Decimal(DecimalSchema { inner: InnerDecimalSchema::Fixed(fixed), .. }) => {
                let FixedSchema { name, aliases, size, .. } = fixed;
                Shape::Fixed { names: self.names(id, name, aliases, namespace), size: *size }
            }
            Schema::Enum(of) => Shape::Enum {
                names: self.names(id, &of.name, &of.aliases, namespace),
                symbols: of.symbols.clone(),
                default: of
                    .default
                    .as_ref()
                    .and_then(|default| of.symbols.iter().position(|symbol| symbol == default)),
            },
            Schema::Array(array) => Shape::Array(self.add(&array.items, namespace)?),
            Schema::Map(map) => Shape::Map(self.add(&map.types, namespace)?),
            Schema::Union(union) => Shape::Union(
                union.variants().iter().map(|it| self.add(it, namespace)).collect::<Option<_>>()?,
            ),
            Schema::Record(record) => {
                let names = self.names(id, &record.name, &record.aliases, namespace);
                let inner = record.name.fully_qualified_name(namespace);
                let mut fields = Vec::with_capacity(record.fields.len());
                for field in &record.fields {
                    fields.push(Field {
                        name: field.name.clone(),
                        aliases: field.aliases.clone(),
                        default: field.default.clone(),
                        of_type: self.add(&field.schema, inner.namespace())?,
                    });
                }
                let says = |what| record.attributes.get(what) == Some(&Json::Bool(true));
                Shape::Record(Record {
                    names,
                    fields,
                    is_tuple: says("org.apache.avro.rust.tuple"),
                    is_wrapper: says("org.apache.avro.rust.union_of_records"),
                })
            }
            // Looked up before it comes here.
            Schema::Ref { .. } => return None,
        })
    }

    fn names(
        &mut self,
        id: TypeId,
        name: &Name,
        aliases: &Aliases,
        namespace: NamespaceRef<'_>,
    ) -> Names {
        let full = name.fully_qualified_name(namespace);
        let aliases = aliases.iter().flatten();
        let aliases = aliases.map(|alias| alias.fullname(full.namespace())).collect();
        let name = full.fullname(None);
        self.named.insert(name.clone(), id);
        Names { name, aliases }
    }
}

fn meaning(schema: &Schema) -> Option<Meaning> {
    Some(match schema {
        Schema::Decimal(DecimalSchema { precision, scale, .. }) => {
            Meaning::Decimal { precision: *precision, scale: *scale }
        }
        Schema::BigDecimal => Meaning::BigDecimal,
        Schema::Uuid(_) => Meaning::Uuid,
        Schema::Date => Meaning::Date,
        Schema::TimeMillis => Meaning::TimeMillis,
        Schema::TimeMicros => Meaning::TimeMicros,
        Schema::TimestampMillis => Meaning::TimestampMillis,
        Schema::TimestampMicros => Meaning::TimestampMicros,
        Schema::TimestampNanos => Meaning::TimestampNanos,
        Schema::LocalTimestampMillis => Meaning::LocalTimestampMillis,
        Schema::LocalTimestampMicros => Meaning::LocalTimestampMicros,
        Schema::LocalTimestampNanos => Meaning::LocalTimestampNanos,
        Schema::Duration(_) => Meaning::Duration,
        _ => return None,
    })
}
