//! Where a value was written.

use std::fmt;
use std::sync::Arc;

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
