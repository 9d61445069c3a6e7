//! Where a value was written.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// The place a value was written at: a file with line and column, or the name of what set it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The path of a file, `built-in`, a `BAKE__…` variable, or a flag.
    pub file: Arc<str>,
    /// Counted from 1; `None` where there are no lines.
    pub line: Option<u32>,
    /// Counted from 1, in characters; `None` where there are no columns.
    pub column: Option<u32>,
}

impl Origin {
    /// What comes from `bake` itself.
    pub fn built_in() -> Self {
        Self::named("built-in")
    }

    /// An origin without lines: a variable, a flag, a file as a whole.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self { file: name.into(), line: None, column: None }
    }

    /// A place in a file, both numbers counted from 1.
    pub fn at(file: &Arc<str>, line: u32, column: u32) -> Self {
        Self { file: Arc::clone(file), line: Some(line), column: Some(column) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        Ok(())
    }
}

/// A text with the place it was written at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The text as written.
    pub text: String,
    /// Who wrote it.
    pub origin: Origin,
}

impl Text {
    /// How a text asks the deserializer of settings for its origin, too.
    pub(crate) const WITH_ORIGIN: &str = "bake_config::Text";

    /// A text that `bake` itself says.
    pub fn built_in(text: impl Into<String>) -> Self {
        Self { text: text.into(), origin: Origin::built_in() }
    }
}

/// From settings with its origin; from elsewhere as a text that nobody wrote in a file.
impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(Self::WITH_ORIGIN, TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text::built_in(text))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Text, D::Error> {
        deserializer.deserialize_str(self)
    }

    /// The text, the file, and line and column or zeros.
    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Text, A::Error> {
        let mut next =
            || parts.next_element::<String>()?.ok_or_else(|| de::Error::custom("a part of a text is missing"));
        let (text, file) = (next()?, next()?);
        let number = |text: String| text.parse().ok().filter(|number| *number != 0);
        let (line, column) = (number(next()?), number(next()?));
        Ok(Text { text, origin: Origin { file: file.into(), line, column } })
    }
}
