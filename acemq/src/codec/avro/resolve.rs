//! From the writer's schema to the reader's, by the rules of Avro's specification.
//!
//! The bytes of one are made the bytes of the other: what is read afterwards is a body of the
//! reader's own schema. apache-avro resolves values instead, which have lost the names of their
//! types: it mixes up records that look alike, and passes over aliases.

use std::collections::HashMap;

use super::{
    data::{Data, Fault, MAX_DEPTH, put_bytes, put_long},
    default,
    layout::{Field, Layout, Names, ROOT, Record, Shape, TypeId},
};

/// How bodies of one schema become bodies of another, worked out once.
#[derive(Debug)]
pub(super) struct Resolution(Vec<Step>);

type StepId = usize;

#[derive(Debug)]
enum Step {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    /// Bytes or text.
    Bytes,
    Fixed(usize),
    /// An int or a long as a float.
    LongToFloat,
    /// An int or a long as a double.
    LongToDouble,
    FloatToDouble,
    /// The reader's symbol for each of the writer's.
    Enum(Vec<Result<usize, Fault>>),
    Array(StepId),
    Map(StepId),
    /// What becomes of each branch of the writer's union.
    Branches(Vec<Result<StepId, Fault>>),
    /// Into a branch of the reader's union.
    Into(usize, StepId),
    /// What becomes of the writer's fields, and what the reader's are made of.
    Record(Vec<Read>, Vec<Filled>),
    /// Not worked out: nothing that is run leads here.
    Unknown,
}

#[derive(Debug)]
enum Read {
    /// The reader has a field for it.
    Field {
        of_reader: usize,
        step: StepId,
    },
    Over(TypeId),
}

/// What a field of the reader's is made of.
#[derive(Debug)]
enum Filled {
    ByWriter,
    /// The bytes of its default.
    ByDefault(Vec<u8>),
}

impl Resolution {
    /// # Errors
    /// Why no body of the writer's could be read.
    pub(super) fn new(writer: &Layout, reader: &Layout) -> Result<Self, Fault> {
        let mut plan = Plan { writer, reader, steps: Vec::new(), known: HashMap::new(), depth: 0 };
        plan.step(ROOT, ROOT)?;
        Ok(Self(plan.steps))
    }

    /// A body of the reader's schema.
    pub(super) fn run(&self, writer: &Layout, data: &mut Data<'_>) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::new();
        self.convert(0, writer, data, &mut out)?;
        Ok(out)
    }

    fn convert(
        &self,
        step: StepId,
        writer: &Layout,
        data: &mut Data<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        match &self.0[step] {
            Step::Null => {}
            Step::Boolean => out.push(data.boolean()?),
            Step::Int => put_long(out, data.int()?.into()),
            Step::Long => put_long(out, data.long()?),
            Step::Float => out.extend_from_slice(data.take(4)?),
            Step::Double => out.extend_from_slice(data.take(8)?),
            Step::Bytes => put_bytes(out, data.bytes()?),
            Step::Fixed(size) => out.extend_from_slice(data.take(*size)?),
            Step::LongToFloat => out.extend_from_slice(&(data.long()? as f32).to_le_bytes()),
            Step::LongToDouble => out.extend_from_slice(&(data.long()? as f64).to_le_bytes()),
            Step::FloatToDouble => {
                let float = data.take(4)?.try_into().map(f32::from_le_bytes).unwrap_or_default();
                out.extend_from_slice(&f64::from(float).to_le_bytes());
            }
            Step::Enum(symbols) => {
                let symbol = symbols[data.choice(symbols.len())?].clone()?;
                put_long(out, i64::try_from(symbol).unwrap_or(i64::MAX));
            }
            Step::Array(items) => data.nested(|data| {
                blocks(data, out, |data, out| self.convert(*items, writer, data, out))
            })?,
            Step::Map(values) => data.nested(|data| {
                blocks(data, out, |data, out| {
                    put_bytes(out, data.bytes()?);
                    self.convert(*values, writer, data, out)
                })
            })?,
            Step::Branches(branches) => {
                let branch = branches[data.choice(branches.len())?].clone()?;
                data.nested(|data| self.convert(branch, writer, data, out))?;
            }
            Step::Into(branch, step) => {
                put_long(out, i64::try_from(*branch).unwrap_or(i64::MAX));
                self.convert(*step, writer, data, out)?;
            }
            Step::Record(reads, fields) => {
                data.nested(|data| self.record(reads, fields, writer, data, out))?;
            }
            Step::Unknown => return Err("the schemas cannot be resolved".to_owned()),
        }
        Ok(())
    }

    /// The fields come in the writer's order and go in the reader's.
    fn record(
        &self,
        reads: &[Read],
        fields: &[Filled],
        writer: &Layout,
        data: &mut Data<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let (mut converted, mut places) = (Vec::new(), vec![0..0; fields.len()]);
        for read in reads {
            match read {
                Read::Field { of_reader, step } => {
                    let start = converted.len();
                    self.convert(*step, writer, data, &mut converted)?;
                    places[*of_reader] = start..converted.len();
                }
                Read::Over(id) => data.skip(writer, *id)?,
            }
        }
        for (field, place) in fields.iter().zip(places) {
            out.extend_from_slice(match field {
                Filled::ByWriter => &converted[place],
                Filled::ByDefault(bytes) => {
                    data.default(bytes)?;
                    bytes
                }
            });
        }
        Ok(())
    }
}

/// Converts all blocks of an array or map.
fn blocks(
    data: &mut Data<'_>,
    out: &mut Vec<u8>,
    mut convert: impl FnMut(&mut Data<'_>, &mut Vec<u8>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    loop {
        let count = data.block()?;
        put_long(out, i64::try_from(count).unwrap_or(i64::MAX));
        if count == 0 {
            return Ok(());
        }
        for _ in 0..count {
            convert(data, out)?;
        }
    }
}

struct Plan<'a> {
    writer: &'a Layout,
    reader: &'a Layout,
    steps: Vec<Step>,
    /// Pairs that are worked out, or are being: a type may contain itself.
    known: HashMap<(TypeId, TypeId), StepId>,
    /// How many pairs are being worked out.
    depth: usize,
}

impl Plan<'_> {
    /// The step for a pair of types.
    fn step(&mut self, writer: TypeId, reader: TypeId) -> Result<StepId, Fault> {
        if let Some(step) = self.known.get(&(writer, reader)) {
            return Ok(*step);
        }
        if self.depth == MAX_DEPTH {
            return Err(format!("no data is read that is nested more than {MAX_DEPTH} deep"));
        }
        let id = self.steps.len();
        self.steps.push(Step::Unknown);
        self.known.insert((writer, reader), id);
        self.depth += 1;
        let step = self.resolve(writer, reader);
        self.depth -= 1;
        match step {
            Ok(step) => {
                self.steps[id] = step;
                Ok(id)
            }
            Err(fault) => {
                self.known.remove(&(writer, reader));
                Err(fault)
            }
        }
    }

    fn resolve(&mut self, writer: TypeId, reader: TypeId) -> Result<Step, Fault> {
        let (of_writer, of_reader) = (self.writer, self.reader);
        let mismatch = || {
            Err(format!("{} cannot be read as {}", of_writer.name(writer), of_reader.name(reader)))
        };
        match (of_writer.shape(writer), of_reader.shape(reader)) {
            (Shape::Union(branches), _) => {
                let branches: Vec<_> =
                    branches.iter().map(|branch| self.step(*branch, reader)).collect();
                match branches.iter().all(Result::is_err) {
                    true => mismatch(),
                    false => Ok(Step::Branches(branches)),
                }
            }
            (_, Shape::Union(branches)) => {
                for loosely in [false, true] {
                    for (number, branch) in branches.iter().enumerate() {
                        if (loosely || self.is_same(writer, *branch))
                            && let Ok(step) = self.step(writer, *branch)
                        {
                            return Ok(Step::Into(number, step));
                        }
                    }
                }
                mismatch()
            }
            _ if !self.means_the_same(writer, reader) => Err(format!(
                "{} that means {:?} cannot be read as {:?}",
                of_writer.name(writer),
                of_writer.get(writer).meaning,
                of_reader.get(reader).meaning
            )),
            (Shape::Null, Shape::Null) => Ok(Step::Null),
            (Shape::Boolean, Shape::Boolean) => Ok(Step::Boolean),
            (Shape::Int, Shape::Int | Shape::Long) => Ok(Step::Int),
            (Shape::Long, Shape::Long) => Ok(Step::Long),
            (Shape::Int | Shape::Long, Shape::Float) => Ok(Step::LongToFloat),
            (Shape::Int | Shape::Long, Shape::Double) => Ok(Step::LongToDouble),
            (Shape::Float, Shape::Float) => Ok(Step::Float),
            (Shape::Float, Shape::Double) => Ok(Step::FloatToDouble),
            (Shape::Double, Shape::Double) => Ok(Step::Double),
            (Shape::Bytes | Shape::String, Shape::Bytes | Shape::String) => Ok(Step::Bytes),
            (
                Shape::Fixed { names, size },
                Shape::Fixed { names: of_reader, size: of_readers_size },
            ) if size == of_readers_size && of_reader.mean(names) => Ok(Step::Fixed(*size)),
            (
                Shape::Enum { names, symbols, .. },
                Shape::Enum { names: of_reader, symbols: known, default },
            ) if of_reader.mean(names) => Ok(Step::Enum(
                symbols.iter().map(|symbol| find_symbol(symbol, known, *default)).collect(),
            )),
            (Shape::Array(items), Shape::Array(of_reader)) => {
                Ok(Step::Array(self.step(*items, *of_reader)?))
            }
            (Shape::Map(values), Shape::Map(of_reader)) => {
                Ok(Step::Map(self.step(*values, *of_reader)?))
            }
            (
                Shape::Record(Record { names, fields, .. }),
                Shape::Record(Record { names: of_reader, fields: wanted, .. }),
            ) if of_reader.mean(names) => self.record(fields, wanted),
            _ => mismatch(),
        }
    }

    fn record(&mut self, written: &[Field], wanted: &[Field]) -> Result<Step, Fault> {
        let mut reads: Vec<_> = written.iter().map(|field| Read::Over(field.of_type)).collect();
        let mut filled = Vec::with_capacity(wanted.len());
        for (number, field) in wanted.iter().enumerate() {
            let in_field = |fault| format!("field {}: {fault}", field.name);
            let named = |name: &String| written.iter().position(|field| field.name == *name);
            let source = named(&field.name).or_else(|| field.aliases.iter().find_map(named));
            filled.push(match (source, &field.default) {
                (Some(source), _) => {
                    let step = self.step(written[source].of_type, field.of_type);
                    let step = step.map_err(in_field)?;
                    reads[source] = Read::Field { of_reader: number, step };
                    Filled::ByWriter
                }
                (None, Some(default)) => {
                    let bytes = default::bytes(self.reader, field.of_type, default);
                    Filled::ByDefault(bytes.map_err(in_field)?)
                }
                (None, None) => {
                    let fault = "the writer has none, and the reader no default for it";
                    return Err(in_field(fault.to_owned()));
                }
            });
        }
        Ok(Step::Record(reads, filled))
    }

    /// Whether a branch of the reader's is of the writer's very type, which goes before one that it
    /// could be read as.
    fn is_same(&self, writer: TypeId, branch: TypeId) -> bool {
        let (written, wanted) = (self.writer.get(writer), self.reader.get(branch));
        std::mem::discriminant(&written.shape) == std::mem::discriminant(&wanted.shape)
            && written.meaning == wanted.meaning
            && self.writer.name(writer) == self.reader.name(branch)
    }

    fn means_the_same(&self, writer: TypeId, reader: TypeId) -> bool {
        match (self.writer.get(writer).meaning, self.reader.get(reader).meaning) {
            (Some(written), Some(wanted)) => written == wanted,
            _ => true,
        }
    }
}

impl Names {
    /// Whether a reader's type of these names means a writer's: by its name without the namespace,
    /// or by a name that it had before.
    fn mean(&self, writers: &Self) -> bool {
        let simple = |name: &str| name.rsplit('.').next().map(str::to_owned);
        simple(&self.name) == simple(&writers.name) || self.aliases.contains(&writers.name)
    }
}

fn find_symbol(symbol: &str, known: &[String], default: Option<usize>) -> Result<usize, Fault> {
    let found = known.iter().position(|known| known == symbol).or(default);
    found.ok_or_else(|| format!("the reader does not know the symbol {symbol}, nor has a default"))
}
