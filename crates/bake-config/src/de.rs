//! Reads a tree as a struct. Scalars are parsed from their text by what the struct asks for.

use std::fmt;

use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, VariantAccess, Visitor};
use serde::forward_to_deserialize_any;

use crate::error::ConfigError;
use crate::node::{Entry, Node, Table, Value};
use crate::origin::{Origin, Text};
use crate::values::parse_duration;

/// A mistake on its way up to where its place is known.
#[derive(Debug)]
pub(crate) struct DeError {
    message: String,
    hint: Option<String>,
    origin: Option<Origin>,
    key: Option<String>,
}

impl DeError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, origin: None, key: None }
    }

    /// Adds the place, unless a deeper one is known.
    fn or_at(mut self, origin: &Origin) -> Self {
        self.origin.get_or_insert_with(|| origin.clone());
        self
    }

    /// Adds the key whose value is wrong, unless a deeper one is known.
    fn or_key(mut self, key: &str) -> Self {
        self.key.get_or_insert_with(|| key.to_owned());
        self
    }

    pub(crate) fn at(self, origin: &Origin) -> ConfigError {
        let message = match self.key {
            Some(key) => format!("`{key}`: {}", self.message),
            None => self.message,
        };
        let error = ConfigError::new(self.origin.as_ref().unwrap_or(origin), message);
        ConfigError { hint: self.hint, ..error }
    }
}

impl fmt::Display for DeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DeError {}

impl de::Error for DeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let hint = crate::error::known(field, expected.iter().copied());
        Self { hint: Some(hint), ..Self::new(format!("unknown key `{field}`")) }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let hint = crate::error::known(variant, expected.iter().copied());
        Self { hint: Some(hint), ..Self::new(format!("`{variant}` is not a choice here")) }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("`{field}` is missing"))
    }
}

/// A node as serde sees it.
#[derive(Clone, Copy)]
pub(crate) struct NodeDeserializer<'a> {
    node: &'a Node,
}

impl<'a> NodeDeserializer<'a> {
    pub(crate) fn new(node: &'a Node) -> Self {
        Self { node }
    }

    fn text(self, wanted: &str) -> Result<&'a str, DeError> {
        let wrong = || DeError::new(format!("{wanted} is wanted, {} is written", self.node.what()));
        self.node.as_text().ok_or_else(|| wrong().or_at(&self.node.origin))
    }

    fn wrong(self, wanted: &str) -> DeError {
        let written = self.node.as_text().map_or(self.node.what().to_owned(), |text| format!("`{text}`"));
        DeError::new(format!("{wanted} is wanted, {written} is written")).or_at(&self.node.origin)
    }

    fn placed<T>(self, result: Result<T, DeError>) -> Result<T, DeError> {
        result.map_err(|error| error.or_at(&self.node.origin))
    }
}

/// A whole number in decimal digits: no sign but `-`, no leading zero (is `010` eight or ten?), no other base.
pub(crate) fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    decimal && (digits == "0" || !digits.starts_with('0'))
}

macro_rules! integers {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
            let text = self.text("a whole number")?;
            let wanted = || format!("a whole number from {} to {}", <$type>::MIN, <$type>::MAX);
            let number = is_integer(text).then(|| text.parse::<$type>().ok()).flatten();
            self.placed(visitor.$visit(number.ok_or_else(|| self.wrong(&wanted()))?))
        }
    )*};
}

macro_rules! floats {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
            let number = self.text("a number")?.parse::<$type>().ok().filter(|number| number.is_finite());
            self.placed(visitor.$visit(number.ok_or_else(|| self.wrong("a number"))?))
        }
    )*};
}

impl<'de> Deserializer<'de> for NodeDeserializer<'_> {
    type Error = DeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        let result = match &self.node.value {
            Value::Scalar { text, .. } => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(SeqDeserializer::new(items.iter())),
            Value::Table(table) => visitor.visit_map(Entries::new(table)),
            Value::Null => visitor.visit_unit(),
        };
        self.placed(result)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        let value = match self.node.as_text() {
            Some("true") => true,
            Some("false") => false,
            _ => return Err(self.wrong("`true` or `false`")),
        };
        self.placed(visitor.visit_bool(value))
    }

    integers! {
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
    }

    floats! {
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            Value::Scalar { .. } | Value::List(_) | Value::Table(_) => self.placed(visitor.visit_some(self)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, DeError> {
        if name == Text::WITH_ORIGIN {
            let Origin { file, line, column } = &self.node.origin;
            let number = |number: &Option<u32>| number.unwrap_or_default().to_string();
            let parts = [self.text("a text")?.to_owned(), file.to_string(), number(line), number(column)];
            return self.placed(visitor.visit_seq(SeqDeserializer::new(parts.into_iter())));
        }
        self.placed(visitor.visit_newtype_struct(self))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeError> {
        // `std::time::Duration` asks serde for this struct; people write `90s`.
        if name == "Duration" && fields == ["secs", "nanos"] {
            let duration = parse_duration(self.text("a time")?);
            let duration = duration.ok_or_else(|| self.wrong("a time such as `90s` or `1h 30m`"))?;
            let parts = [duration.as_secs(), u64::from(duration.subsec_nanos())];
            return self.placed(visitor.visit_seq(SeqDeserializer::new(parts.into_iter())));
        }
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        match &self.node.value {
            Value::Table(table) => self.placed(visitor.visit_map(Entries::new(table))),
            Value::Scalar { .. } | Value::List(_) | Value::Null => Err(self.wrong("a table")),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        match &self.node.value {
            Value::List(items) => self.placed(visitor.visit_seq(SeqDeserializer::new(items.iter()))),
            Value::Scalar { .. } | Value::Table(_) | Value::Null => Err(self.wrong("a list")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeError> {
        match &self.node.value {
            Value::Scalar { text, .. } => {
                let variant: StrDeserializer<'_, DeError> = text.as_str().into_deserializer();
                self.placed(visitor.visit_enum(variant))
            }
            Value::Table(table) => match table.iter().collect::<Vec<_>>()[..] {
                [(key, entry)] => self.placed(visitor.visit_enum(Variant { key, entry })),
                _ => Err(self.wrong("a table with one key")),
            },
            Value::List(_) | Value::Null => Err(self.wrong("a name, or a table with one key")),
        }
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

impl<'de, 'a> IntoDeserializer<'de, DeError> for &'a Node {
    type Deserializer = NodeDeserializer<'a>;

    fn into_deserializer(self) -> NodeDeserializer<'a> {
        NodeDeserializer::new(self)
    }
}

/// The entries of a table, one after the other.
struct Entries<'a> {
    rest: Box<dyn Iterator<Item = (&'a str, &'a Entry)> + 'a>,
    current: Option<(&'a str, &'a Entry)>,
}

impl<'a> Entries<'a> {
    fn new(table: &'a Table) -> Self {
        Self { rest: Box::new(table.iter()), current: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = DeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DeError> {
        let Some((key, entry)) = self.rest.next() else { return Ok(None) };
        self.current = Some((key, entry));
        let key: StrDeserializer<'_, DeError> = key.into_deserializer();
        seed.deserialize(key).map(Some).map_err(|error| error.or_at(&entry.key_origin))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, DeError> {
        let (key, entry) = self.current.take().expect("serde asks for a value after its key");
        let value = seed.deserialize(NodeDeserializer::new(&entry.node));
        value.map_err(|error| error.or_at(&entry.node.origin).or_key(key))
    }
}

/// `variant: content`.
struct Variant<'a> {
    key: &'a str,
    entry: &'a Entry,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = DeError;
    type Variant = NodeDeserializer<'a>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), DeError> {
        let key: StrDeserializer<'_, DeError> = self.key.into_deserializer();
        let variant = seed.deserialize(key).map_err(|error| error.or_at(&self.entry.key_origin))?;
        Ok((variant, NodeDeserializer::new(&self.entry.node)))
    }
}

impl<'de> VariantAccess<'de> for NodeDeserializer<'_> {
    type Error = DeError;

    fn unit_variant(self) -> Result<(), DeError> {
        match self.node.value {
            Value::Null => Ok(()),
            Value::Scalar { .. } | Value::List(_) | Value::Table(_) => Err(self.wrong("nothing")),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, DeError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, DeError> {
        self.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeError> {
        self.deserialize_map(visitor)
    }
}
