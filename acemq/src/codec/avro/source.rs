//! How the bodies of one writer are read.

use std::{borrow::Cow, sync::Arc};

use apache_avro::types::Value;
use serde::de::DeserializeOwned;

use super::{
    any_value,
    data::{Data, Fault},
    definition::Definition,
    layout::ROOT,
    resolve::Resolution,
    typed,
};
use crate::error::{Error, ErrorKind, Result};

#[derive(Debug)]
pub(super) struct Source {
    writer: Arc<Definition>,
    /// Onto which schema they are read, where that is not the writer's.
    reader: Option<(Arc<Definition>, Resolution)>,
    /// `with schema a.B`, for people.
    with: String,
}

impl Source {
    /// # Errors
    /// [`ErrorKind::Decode`] where no body of the writer's could be read with the reader's schema.
    pub(super) fn new(
        writer: Arc<Definition>,
        reader: Option<Arc<Definition>>,
        with: String,
    ) -> Result<Self> {
        let reader = reader.filter(|reader| reader.text != writer.text);
        let mut source = Self { writer, reader: None, with };
        if let Some(reader) = reader {
            let resolution = Resolution::new(&source.writer.layout, &reader.layout);
            let resolution = resolution.map_err(|fault| source.unresolved(&reader, &fault))?;
            source.reader = Some((reader, resolution));
        }
        Ok(source)
    }

    pub(super) fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T> {
        let (definition, body) = self.resolved(body)?;
        typed::read(&body, &definition.layout).map_err(|fault| self.broken(fault))
    }

    pub(super) fn read_value(&self, body: &[u8]) -> Result<Value> {
        let (definition, body) = self.resolved(body)?;
        let mut data = Data::new(&body);
        let value = any_value::read(&mut data, &definition.layout, ROOT);
        value.and_then(|value| data.end().map(|()| value)).map_err(|fault| self.broken(fault))
    }

    /// A body, and the schema that it is of: the reader's, where there is one.
    fn resolved<'a>(&'a self, body: &'a [u8]) -> Result<(&'a Definition, Cow<'a, [u8]>)> {
        let Some((reader, resolution)) = &self.reader else {
            return Ok((&self.writer, Cow::Borrowed(body)));
        };
        let mut data = Data::new(body);
        let resolved = resolution.run(&self.writer.layout, &mut data);
        let resolved = resolved.map_err(|fault| self.unresolved(reader, &fault))?;
        data.end().map_err(|fault| self.broken(fault))?;
        Ok((reader, Cow::Owned(resolved)))
    }

    fn broken(&self, fault: Fault) -> Error {
        Error::new(ErrorKind::Decode, format!("read the body {}: {fault}", self.with))
    }

    fn unresolved(&self, reader: &Definition, fault: &str) -> Error {
        let onto = reader.name();
        let doing = format!("read the body {} onto schema {onto}", self.with);
        Error::new(ErrorKind::Decode, format!("{doing}: {fault}"))
    }
}
