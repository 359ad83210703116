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
use crate::{
    codec::framed,
    error::{Error, ErrorKind, Result},
    schema::SchemaId,
};

#[derive(Debug)]
pub(super) struct Source {
    writer: Arc<Definition>,
    /// Onto which schema they are read, where that is not the writer's.
    reader: Option<(Arc<Definition>, Resolution)>,
    /// The writer's in the registry, where it is in one.
    id: Option<SchemaId>,
}

impl Source {
    /// # Errors
    /// [`ErrorKind::Decode`] where no body of the writer's could be read with the reader's schema.
    pub(super) fn new(
        writer: Arc<Definition>,
        reader: Option<Arc<Definition>>,
        id: Option<SchemaId>,
    ) -> Result<Self> {
        let reader = reader.filter(|reader| reader.text != writer.text);
        let mut source = Self { writer, reader: None, id };
        if let Some(reader) = reader {
            let resolution = Resolution::new(&source.writer.layout, &reader.layout);
            let resolution = resolution.map_err(|fault| source.unresolved(&reader, &fault))?;
            source.reader = Some((reader, resolution));
        }
        Ok(source)
    }

    pub(super) fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T> {
        let (definition, data) = self.resolved(body)?;
        typed::read(&data, &definition.layout).map_err(|fault| self.broken(body, fault))
    }

    pub(super) fn read_value(&self, body: &[u8]) -> Result<Value> {
        let (definition, data) = self.resolved(body)?;
        let mut data = Data::new(&data);
        let value = any_value::read(&mut data, &definition.layout, ROOT);
        value.and_then(|value| data.end().map(|()| value)).map_err(|fault| self.broken(body, fault))
    }

    /// A body, and the schema that it is of: the reader's, where there is one.
    fn resolved<'a>(&'a self, body: &'a [u8]) -> Result<(&'a Definition, Cow<'a, [u8]>)> {
        let Some((reader, resolution)) = &self.reader else {
            return Ok((&self.writer, Cow::Borrowed(body)));
        };
        let mut data = Data::new(body);
        let resolved = resolution.run(&self.writer.layout, &mut data);
        let resolved =
            resolved.map_err(|fault| self.unresolved(reader, &self.doubted(body, fault)))?;
        data.end().map_err(|fault| self.broken(body, fault))?;
        Ok((reader, Cow::Owned(resolved)))
    }

    fn broken(&self, body: &[u8], fault: Fault) -> Error {
        let fault = self.doubted(body, fault);
        Error::new(ErrorKind::Decode, format!("read the body {}: {fault}", self.with()))
    }

    fn unresolved(&self, reader: &Definition, fault: &str) -> Error {
        let onto = reader.name();
        let doing = format!("read the body {} onto schema {onto}", self.with());
        Error::new(ErrorKind::Decode, format!("{doing}: {fault}"))
    }

    /// With a hint at what may be around the body. Data may begin by chance as such a frame does,
    /// so the fault stays; data behind a schema's id is in no frame.
    fn doubted(&self, body: &[u8], fault: Fault) -> Fault {
        match framed::hint(body).filter(|_| self.id.is_none()) {
            Some(hint) => format!("{fault}; {hint}"),
            None => fault,
        }
    }

    fn with(&self) -> String {
        let name = self.writer.name();
        match self.id {
            Some(id) => format!("with schema {name} (id {id})"),
            None => format!("with schema {name}"),
        }
    }
}
