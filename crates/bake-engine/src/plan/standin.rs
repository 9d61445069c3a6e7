//! Stand-ins for values that are not known yet: the dry run of a request.
//!
//! A request is a pure function of earlier outputs. The dry run calls it with values that carry their own address: a
//! text is `${step#/pointer}`, a number is one that nothing else uses. It does so twice, with other booleans, small
//! numbers and variants of enums; what differs between the two is unknown until the run.
//!
//! Not seen: branches on text, `None`, and the length of a list, for which one element stands.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::value::{BorrowedStrDeserializer, StringDeserializer, U32Deserializer};
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, Visitor};
use serde_json::{Map, Number, Value, json};

use crate::error::{StepError, StepResult};
use crate::inputs::{Source, SourceKind};
use crate::plan::{MutationWork, Plan};

/// A type that holds itself is cut off here.
const DEEPEST: usize = 16;

/// Numbers of four bytes and more stand in for themselves; what is smaller is one of two values.
const SMALLEST_STAND_IN: f64 = 1_900_000_000.0;

/// The request of a step as far as it is known.
pub(super) struct DryRequest {
    pub(super) request: Value,
    pub(super) warning: Option<String>,
}

/// Evaluates a request on stand-ins.
pub(super) fn dry_request(plan: &Plan, work: &MutationWork) -> DryRequest {
    let result = evaluate(plan, work, 0).and_then(|first| Ok((first, evaluate(plan, work, 1)?)));
    match result {
        Ok((first, second)) => {
            let mut shape_differs = false;
            let request = merge(first, second, &mut shape_differs);
            let warning =
                shape_differs.then(|| "the shape of its request depends on a value; say so with `when`".into());
            DryRequest { request, warning }
        }
        Err(reason) => {
            let warning = Some(format!("its request cannot be shown before the run: {reason}"));
            DryRequest { request: json!({ "$unknown": reason }), warning }
        }
    }
}

fn evaluate(plan: &Plan, work: &MutationWork, variant: u32) -> Result<Value, String> {
    let stand_ins = StandIns { plan, variant, numbers: RefCell::default() };
    let source = Source(SourceKind::DryRun(&stand_ins));
    let request = catch_unwind(AssertUnwindSafe(|| (work.request)(&source)))
        .map_err(|_| "it panicked on a stand-in".to_owned())?
        .map_err(|error| error.chain().join(": "))?;
    let request = serde_json::from_str(&request).map_err(|error| error.to_string())?;
    Ok(stand_ins.resolve(request))
}

/// Keeps what both evaluations agree on.
fn merge(first: Value, second: Value, shape_differs: &mut bool) -> Value {
    match (first, second) {
        (Value::Object(first), Value::Object(second)) if first.keys().eq(second.keys()) => {
            let pairs = first.into_iter().zip(second);
            pairs.map(|((key, a), (_, b))| (key, merge(a, b, shape_differs))).collect::<Map<_, _>>().into()
        }
        (Value::Array(first), Value::Array(second)) if first.len() == second.len() => {
            first.into_iter().zip(second).map(|(a, b)| merge(a, b, shape_differs)).collect::<Vec<_>>().into()
        }
        (first, second) if first == second => first,
        // Computed from stand-ins: which number it is says nothing.
        (Value::Number(first), Value::Number(second)) if first.as_f64() > Some(SMALLEST_STAND_IN) => {
            debug_assert_ne!(first, second);
            json!({ "$unknown": "number" })
        }
        (first, second) => {
            *shape_differs |= first.is_object() || first.is_array() || second.is_object() || second.is_array();
            json!({ "$unknown": [first, second] })
        }
    }
}

/// The stand-ins of one evaluation.
pub(crate) struct StandIns<'a> {
    plan: &'a Plan,
    variant: u32,
    /// Where each number came from, by its text.
    numbers: RefCell<HashMap<String, String>>,
}

impl StandIns<'_> {
    pub(crate) fn value<T: DeserializeOwned>(&self, node: usize) -> StepResult<T> {
        self.part(node, "")
    }

    /// Returns a stand-in for the part of an output that a JSON pointer leads to.
    pub(crate) fn part<T: DeserializeOwned>(&self, node: usize, pointer: &str) -> StepResult<T> {
        let address = format!("{}#{pointer}", self.plan.nodes[node].path);
        T::deserialize(StandIn { all: self, address, depth: 0 })
            .map_err(|error| StepError::permanent(error.to_string()))
    }

    /// Returns a number that nothing else uses. Two evaluations use other ones, so that a sum of them is unknown.
    fn number(&self, base: u64, address: &str) -> u64 {
        let mut numbers = self.numbers.borrow_mut();
        let number = base + u64::from(self.variant) * 10_000_000 + numbers.len() as u64;
        numbers.insert(number.to_string(), address.to_owned());
        number
    }

    /// Writes references where stand-ins are.
    fn resolve(&self, value: Value) -> Value {
        match value {
            Value::String(text) => match whole_reference(&text) {
                Some(address) => json!({ "$ref": address }),
                None => text.into(),
            },
            Value::Number(number) => match self.numbers.borrow().get(&integer_text(&number)) {
                Some(address) => json!({ "$ref": address }),
                None => number.into(),
            },
            Value::Array(items) => items.into_iter().map(|item| self.resolve(item)).collect::<Vec<_>>().into(),
            Value::Object(entries) => {
                entries.into_iter().map(|(key, value)| (key, self.resolve(value))).collect::<Map<_, _>>().into()
            }
            Value::Null | Value::Bool(_) => value,
        }
    }
}

/// Returns the address if the text is one reference and nothing more.
fn whole_reference(text: &str) -> Option<&str> {
    let address = text.strip_prefix("${")?.strip_suffix('}')?;
    (address.contains('#') && !address.contains('}')).then_some(address)
}

fn integer_text(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => format!("{float:.0}"),
        Some(_) | None => number.to_string(),
    }
}

struct StandIn<'a> {
    all: &'a StandIns<'a>,
    address: String,
    depth: usize,
}

type Failed = de::value::Error;

impl<'a> StandIn<'a> {
    fn child(&self, name: &str) -> StandIn<'a> {
        StandIn { all: self.all, address: format!("{}/{name}", self.address), depth: self.depth + 1 }
    }

    fn text(&self) -> String {
        format!("${{{}}}", self.address)
    }

    fn too_deep(&self) -> bool {
        self.depth > DEEPEST
    }

    fn small(&self) -> u8 {
        1 + u8::try_from(self.all.variant).unwrap_or(1)
    }

    fn four_bytes(&self) -> u32 {
        u32::try_from(self.all.number(SMALLEST_STAND_IN as u64, &self.address)).unwrap_or(u32::MAX)
    }

    /// Below 2^53, so that it survives being a float.
    fn eight_bytes(&self) -> u64 {
        self.all.number(7_300_000_000_000_000, &self.address)
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $source:ident $type:ty;)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
            visitor.$visit(self.$source() as $type)
        }
    )+};
}

impl<'de> Deserializer<'de> for StandIn<'_> {
    type Error = Failed;

    numbers! {
        deserialize_i8 visit_i8 small i8;
        deserialize_i16 visit_i16 small i16;
        deserialize_u8 visit_u8 small u8;
        deserialize_u16 visit_u16 small u16;
        deserialize_i32 visit_i32 four_bytes i32;
        deserialize_u32 visit_u32 four_bytes u32;
        deserialize_i64 visit_i64 eight_bytes i64;
        deserialize_u64 visit_u64 eight_bytes u64;
        deserialize_i128 visit_i128 eight_bytes i128;
        deserialize_u128 visit_u128 eight_bytes u128;
        deserialize_f32 visit_f32 small f32;
        deserialize_f64 visit_f64 eight_bytes f64;
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        self.deserialize_string(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_bool(self.all.variant == 1)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_char(if self.all.variant == 0 { 'a' } else { 'b' })
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        self.deserialize_string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_string(self.text())
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_bytes(self.text().as_bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_byte_buf(self.text().into_bytes())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        if self.too_deep() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        let left = usize::from(!self.too_deep());
        visitor.visit_seq(Items { of: self, names: Names::Star, next: 0, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_seq(Items { of: self, names: Names::Numbers, next: 0, left: length })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Failed> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        let left = usize::from(!self.too_deep());
        visitor.visit_map(Items { of: self, names: Names::Star, next: 0, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        if self.too_deep() {
            return Err(de::Error::custom(format!("`{name}` holds itself")));
        }
        visitor.visit_map(Items { of: self, names: Names::Fields(fields), next: 0, left: fields.len() })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        let count = u32::try_from(variants.len()).unwrap_or(u32::MAX);
        if count == 0 || self.too_deep() {
            return Err(de::Error::custom(format!("no stand-in for `{name}`")));
        }
        let index = self.all.variant.min(count - 1);
        visitor.visit_enum(Variant { of: self, index })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        self.deserialize_string(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_unit()
    }
}

#[derive(Clone, Copy)]
enum Names {
    /// One element stands for all.
    Star,
    Numbers,
    Fields(&'static [&'static str]),
}

/// The elements of a list or a map.
struct Items<'a> {
    of: StandIn<'a>,
    names: Names,
    next: usize,
    left: usize,
}

impl<'a> Items<'a> {
    fn name(&self) -> String {
        match self.names {
            Names::Star => "*".into(),
            Names::Numbers => self.next.to_string(),
            Names::Fields(fields) => fields[self.next].into(),
        }
    }

    fn item(&mut self) -> StandIn<'a> {
        let item = self.of.child(&self.name());
        self.next += 1;
        self.left -= 1;
        item
    }
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Failed;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failed> {
        if self.left == 0 {
            return Ok(None);
        }
        seed.deserialize(self.item()).map(Some)
    }
}

impl<'de> de::MapAccess<'de> for Items<'_> {
    type Error = Failed;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failed> {
        if self.left == 0 {
            return Ok(None);
        }
        let key = match self.names {
            Names::Fields(fields) => {
                return seed.deserialize(BorrowedStrDeserializer::new(fields[self.next])).map(Some);
            }
            Names::Star | Names::Numbers => self.of.child("*").text(),
        };
        seed.deserialize(StringDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Failed> {
        seed.deserialize(self.item())
    }
}

/// One variant of an enum, by its index.
struct Variant<'a> {
    of: StandIn<'a>,
    index: u32,
}

impl<'de, 'a> de::EnumAccess<'de> for Variant<'a> {
    type Error = Failed;
    type Variant = StandIn<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, StandIn<'a>), Failed> {
        let variant = seed.deserialize(U32Deserializer::new(self.index))?;
        Ok((variant, self.of))
    }
}

impl<'de> de::VariantAccess<'de> for StandIn<'_> {
    type Error = Failed;

    fn unit_variant(self) -> Result<(), Failed> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Failed> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Failed> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Failed> {
        self.deserialize_struct("variant", fields, visitor)
    }
}
