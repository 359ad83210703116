//! A document in memory.

use std::borrow::Cow;

use quick_xml::{
    events::{BytesRef, Event, attributes::Attributes},
    reader::Reader,
};

use super::{DEPTH, Fault};

/// A document: its elements and their attributes, in the order in which they begin.
///
/// One list, and no tree of boxes: a body of nothing but `<a/>` grows by a small factor, and
/// nothing recurses.
pub(super) struct Document<'a> {
    nodes: Vec<Node<'a>>,
}

/// An element or an attribute.
pub(super) struct Node<'a> {
    /// Without its prefix.
    pub(super) name: &'a str,
    /// Its value, or the text that is directly in it.
    pub(super) text: Cow<'a, str>,
    pub(super) attribute: bool,
    /// An element without a closing tag, which has neither text nor elements in it.
    pub(super) closed: bool,
    /// Where the node after everything in this one is.
    end: usize,
}

impl<'a> Document<'a> {
    /// # Errors
    /// What is not well-formed; a document type definition; too many levels.
    pub(super) fn parse(text: &'a str) -> Result<Self, Fault> {
        let mut reader = Reader::from_str(text);
        let mut document = Self { nodes: Vec::new() };
        let mut open = Vec::new();
        loop {
            let start = offset(&reader);
            let event = reader.read_event().map_err(malformed)?;
            match event {
                Event::Start(_) => {
                    let tag = text.get(start + 1..offset(&reader) - 1).unwrap_or_default();
                    let element = document.begin(tag, &open)?;
                    open.push(element);
                }
                Event::Empty(_) => {
                    let tag = text.get(start + 1..offset(&reader) - 2).unwrap_or_default();
                    let element = document.begin(tag, &open)?;
                    document.nodes[element].closed = true;
                    document.nodes[element].end = document.nodes.len();
                }
                // The reader has seen to it that the names are the same.
                Event::End(_) => {
                    if let Some(element) = open.pop() {
                        document.nodes[element].end = document.nodes.len();
                    }
                }
                Event::Text(content) => document.text(&open, content.xml10_content())?,
                Event::CData(content) => document.text(&open, content.xml10_content())?,
                Event::GeneralRef(reference) => document.text(&open, resolve(&reference)?)?,
                Event::DocType(_) => {
                    return Err(Fault::new("it has a document type definition, which is not read"));
                }
                Event::Decl(declaration) => match declaration.encoding() {
                    None => {}
                    Some(Ok(encoding)) if is_utf8(&encoding) => {}
                    Some(_) => return Err(Fault::new("it declares an encoding other than UTF-8")),
                },
                Event::Comment(_) | Event::PI(_) => {}
                Event::Eof => break,
            }
        }
        if !open.is_empty() {
            return Err(Fault::new("it ends within an element"));
        }
        if document.nodes.is_empty() {
            return Err(Fault::new("there is no element in it"));
        }
        Ok(document)
    }

    /// The node at an index that this document has given out.
    pub(super) fn node(&self, index: usize) -> &Node<'a> {
        &self.nodes[index]
    }

    /// The attributes of an element and the elements directly in it.
    pub(super) fn children(&self, parent: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.nodes[parent].end;
        let first = (parent + 1 < end).then_some(parent + 1);
        std::iter::successors(first, move |&child| {
            let next = self.nodes[child].end;
            (next < end).then_some(next)
        })
    }

    /// Begins an element with its attributes; `tag` is what is between its brackets.
    fn begin(&mut self, tag: &'a str, open: &[usize]) -> Result<usize, Fault> {
        match open.last() {
            None if !self.nodes.is_empty() => {
                return Err(Fault::new("there is a second element beside the root"));
            }
            Some(_) if open.len() >= usize::from(DEPTH) => {
                return Err(Fault::new(format!("its elements are more than {DEPTH} levels deep")));
            }
            // What was before the first child was there to indent it.
            Some(&parent) if is_blank(&self.nodes[parent].text) => {
                self.nodes[parent].text = Cow::default();
            }
            _ => {}
        }
        let name_end = tag.find(|c: char| c.is_ascii_whitespace()).unwrap_or(tag.len());
        let element = self.push(&tag[..name_end], Cow::default(), false);
        for attribute in Attributes::new(tag, name_end) {
            let attribute = attribute.map_err(malformed)?;
            let name = attribute.key.0;
            if name != "xmlns" && !name.starts_with("xmlns:") {
                let value = attribute.normalized_value(Default::default()).map_err(malformed)?;
                self.push(name, value, true);
            }
        }
        self.nodes[element].end = self.nodes.len();
        Ok(element)
    }

    fn push(&mut self, name: &'a str, text: Cow<'a, str>, attribute: bool) -> usize {
        let name = name.rsplit_once(':').map_or(name, |(_prefix, local)| local);
        let index = self.nodes.len();
        self.nodes.push(Node { name, text, attribute, closed: false, end: index + 1 });
        index
    }

    /// Adds text to the innermost open element.
    fn text(&mut self, open: &[usize], more: Cow<'a, str>) -> Result<(), Fault> {
        let Some(&element) = open.last() else {
            return if is_blank(&more) {
                Ok(())
            } else {
                Err(Fault::new("there is text outside of the root element"))
            };
        };
        let between_children = self.nodes.len() > element + 1 && !self.nodes[element + 1].attribute;
        if between_children && is_blank(&more) {
            return Ok(());
        }
        let text = &mut self.nodes[element].text;
        if text.is_empty() {
            *text = more;
        } else {
            text.to_mut().push_str(&more);
        }
        Ok(())
    }
}

/// What a reference in text stands for: a character, or one of the five entities that every
/// document has.
fn resolve(reference: &BytesRef<'_>) -> Result<Cow<'static, str>, Fault> {
    if let Some(character) = reference.resolve_char_ref().map_err(malformed)? {
        return Ok(character.to_string().into());
    }
    let text = quick_xml::escape::resolve_predefined_entity(reference);
    text.map(Cow::Borrowed).ok_or_else(|| Fault::new("it refers to an entity of its own"))
}

fn offset(reader: &Reader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

fn is_blank(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

fn is_utf8(encoding: &str) -> bool {
    ["utf-8", "utf8", "us-ascii"].iter().any(|known| encoding.eq_ignore_ascii_case(known))
}

fn malformed(cause: impl std::fmt::Display) -> Fault {
    Fault::Other(cause.to_string())
}
