//! From a document to a value.

use std::any::type_name;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::{
    super::leaf::Leaf,
    Fault,
    document::{Document, Node},
};

/// The key of text beside attributes or elements.
const TEXT: &str = "$text";

/// Fields that are empty lists if they are not there, each with the type that has it.
type EmptyLists = Vec<(&'static str, &'static str)>;

/// Reads the value of a document.
///
/// An empty list leaves nothing in a document, and serde asks for a field that is not there only
/// whether it can do without. So a value that lacks fields is read again with those as empty
/// lists, once more at most for each field that its types have.
pub(super) fn value<T: DeserializeOwned>(document: &Document<'_>) -> Result<T, Fault> {
    let mut lists = EmptyLists::new();
    loop {
        let root = Content { document, lists: &lists, nodes: &[0], item: false };
        match T::deserialize(root) {
            Err(Fault::Missing { of: Some(of), field }) if !lists.contains(&(of, field)) => {
                lists.push((of, field));
            }
            result => return result,
        }
    }
}

/// The elements of one name in their parent: one for most values, any number for a list.
#[derive(Clone, Copy)]
struct Content<'d> {
    document: &'d Document<'d>,
    lists: &'d EmptyLists,
    nodes: &'d [usize],
    /// Whether it is one of a list's.
    item: bool,
}

impl<'d> Content<'d> {
    fn of(self, nodes: &'d [usize], item: bool) -> Self {
        Self { nodes, item, ..self }
    }

    fn only(&self) -> Result<(usize, &'d Node<'d>), Fault> {
        match *self.nodes {
            [node] => Ok((node, self.document.node(node))),
            [] => Err(Fault::new("an element is missing")),
            [node, ..] => {
                let name = self.document.node(node).name;
                Err(Fault::new(format!("the element `{name}` is there more than once")))
            }
        }
    }

    fn leaf(&self) -> Result<Leaf<'d, Fault>, Fault> {
        let (index, node) = self.only()?;
        if self.document.children(index).any(|child| !self.document.node(child).attribute) {
            let name = node.name;
            return Err(Fault::new(format!(
                "the element `{name}` has elements in it, not a value"
            )));
        }
        Ok(Leaf::new(&node.text))
    }

    /// Whether it is `<name/>`.
    fn is_nothing(&self) -> bool {
        match *self.nodes {
            [] => true,
            [node] => {
                self.document.node(node).closed && self.document.children(node).next().is_none()
            }
            _ => false,
        }
    }

    fn fields<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let of = type_name::<V>();
        let fields = Fields::new(self, of)?;
        visitor.visit_map(fields).map_err(|fault| match fault {
            Fault::Missing { of: None, field } => Fault::Missing { of: Some(of), field },
            fault => fault,
        })
    }

    fn list<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.item {
            return Err(Fault::new("a list directly in a list has no form in XML"));
        }
        visitor.visit_seq(Items(self))
    }
}

macro_rules! leaves {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.leaf()?.$method(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Content<'_> {
    type Error = Fault;

    leaves! {
        deserialize_bool
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_unit deserialize_identifier
    }

    /// What it looks like, for those who have to know it before they know the type.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.nodes.len() != 1 {
            self.list(visitor)
        } else if self.is_nothing() {
            visitor.visit_unit()
        } else if self.document.children(self.nodes[0]).next().is_some() {
            self.fields(visitor)
        } else {
            self.leaf()?.deserialize_any(visitor)
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_any(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.is_nothing() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.list(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.list(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.list(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.fields(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.fields(visitor)
    }

    /// A variant with something in it is an element in this one, one without is this one's text.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let (index, node) = self.only()?;
        let inside: Vec<usize> = self.document.children(index).collect();
        let Some(&first) = inside.first() else {
            return self.leaf()?.deserialize_enum(name, variants, visitor);
        };
        let variant = self.document.node(first).name;
        if inside.iter().any(|&other| self.document.node(other).name != variant) {
            let name = node.name;
            return Err(Fault::new(format!("the element `{name}` holds more than one variant")));
        }
        visitor.visit_enum(Variant { name: variant, content: self.of(&inside, false) })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }
}

/// The elements of a list that are still to come.
struct Items<'d>(Content<'d>);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some((first, rest)) = self.0.nodes.split_first() else { return Ok(None) };
        self.0.nodes = rest;
        seed.deserialize(self.0.of(std::slice::from_ref(first), true)).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.nodes.len())
    }
}

/// What is in an element, name by name.
struct Fields<'d> {
    content: Content<'d>,
    /// Those in it, with those of one name side by side.
    nodes: Vec<usize>,
    at: usize,
    /// Its text, where it has that beside attributes or elements.
    text: Option<&'d str>,
    of: &'static str,
    /// How many of the possible empty lists have been looked at.
    lists: usize,
    next: Next<'d>,
}

/// What is in an element: the names in the order in which they first come, since an enum's tag may
/// have to come before its content, and under each all that have it.
fn by_name(document: &Document<'_>, parent: usize) -> Vec<usize> {
    let name = |node: usize| document.node(node).name;
    let mut nodes: Vec<_> = document.children(parent).map(|node| (node, node)).collect();
    nodes.sort_by_key(|&(_, node)| (name(node), node));
    for at in 1..nodes.len() {
        if name(nodes[at].1) == name(nodes[at - 1].1) {
            nodes[at].0 = nodes[at - 1].0;
        }
    }
    nodes.sort_unstable();
    nodes.into_iter().map(|(_first, node)| node).collect()
}

/// The value that comes next.
#[derive(Clone, Copy)]
enum Next<'d> {
    Nodes(usize),
    Text(&'d str),
    EmptyList(&'static str),
}

impl<'d> Fields<'d> {
    fn new(content: Content<'d>, of: &'static str) -> Result<Self, Fault> {
        let (index, node) = content.only()?;
        let nodes = by_name(content.document, index);
        let text = Some(&*node.text).filter(|text| !text.trim().is_empty());
        if text.is_some() && nodes.is_empty() {
            let name = node.name;
            return Err(Fault::new(format!("the element `{name}` has text in it, not elements")));
        }
        Ok(Self { content, nodes, at: 0, text, of, lists: 0, next: Next::Nodes(0) })
    }

    fn name(&self, at: usize) -> Option<&'d str> {
        self.nodes.get(at).map(|&node| self.content.document.node(node).name)
    }

    /// Finds the next name and what is under it.
    fn advance(&mut self) -> Option<&'d str> {
        if let Some(name) = self.name(self.at) {
            let end = (self.at..).find(|&at| self.name(at) != Some(name)).unwrap_or(self.at);
            self.next = Next::Nodes(end);
            return Some(name);
        }
        if let Some(text) = self.text.take() {
            self.next = Next::Text(text);
            return Some(TEXT);
        }
        while let Some(&(of, field)) = self.content.lists.get(self.lists) {
            self.lists += 1;
            let absent =
                || !self.nodes.iter().any(|&node| self.content.document.node(node).name == field);
            if of == self.of && absent() {
                self.next = Next::EmptyList(field);
                return Some(field);
            }
        }
        None
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        self.advance().map(|name| seed.deserialize(Leaf::new(name))).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        match self.next {
            Next::Nodes(end) => {
                let nodes = &self.nodes[self.at..end];
                self.at = end;
                seed.deserialize(self.content.of(nodes, false))
            }
            Next::Text(text) => seed.deserialize(Leaf::<Fault>::new(text)),
            Next::EmptyList(field) => seed
                .deserialize(self.content.of(&[], false))
                .map_err(|_| Fault::Missing { of: Some(self.of), field }),
        }
    }
}

/// A variant of an enum, and what is in it.
struct Variant<'d> {
    name: &'d str,
    content: Content<'d>,
}

impl<'de, 'd> EnumAccess<'de> for Variant<'d> {
    type Error = Fault;
    type Variant = Content<'d>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self::Variant), Fault> {
        Ok((seed.deserialize(Leaf::<Fault>::new(self.name))?, self.content))
    }
}

impl<'de> VariantAccess<'de> for Content<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        if self.is_nothing() { Ok(()) } else { Err(Fault::custom("a variant has something in it")) }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, Fault> {
        self.list(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.fields(visitor)
    }
}
