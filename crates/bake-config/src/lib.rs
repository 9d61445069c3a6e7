//! Environments: the composition of a bake, read from layers that remember where each value was written.
//!
//! Start with the types: an [`Environment`] and its parts. What plugins exist is told to
//! it by a [`Catalog`]; this crate knows none. Design: `docs/design/0004-environments.md`.

mod catalog;
mod de;
mod environment;
mod error;
mod node;
mod origin;
mod settings;
mod values;

pub use catalog::{Built, Catalog, PluginInfo, PluginKind, Setting, Stage, Takes};
pub use environment::{Chosen, Environment, FinalizerSet, FinalizerUse, Group, Shown};
pub use error::{ConfigError, ConfigErrors};
pub use node::{Entry, Node, Table, Value};
pub use origin::{Origin, Text};
pub use settings::Settings;
pub use values::{ByteSize, Secret, SizeError};
