//! Environments: the composition of a bake, read from layers that remember where each value was written.
//!
//! Start with [`Layers`]: it collects texts and gives a [`Config`], which gives an [`Environment`]. What plugins exist is told to
//! it by a [`Catalog`]; this crate knows none. Design: `docs/design/0004-environments.md`.
//!
//! A load goes through these steps, a module each: `yaml` (text to tree) → `layers` (in order) → `source`, `merge` (one tree) →
//! `schema`, `takes` (keys and shapes) → `extends` → `resolve`, `finalizers` (names to plugins with their settings).

mod catalog;
mod config;
mod de;
mod environment;
mod error;
mod extends;
mod finalizers;
mod find;
mod layers;
mod merge;
mod node;
mod origin;
mod resolve;
mod schema;
mod settings;
mod source;
mod takes;
mod values;
mod yaml;

pub use catalog::{Built, Catalog, PluginInfo, PluginKind, Setting, Stage, Takes};
pub use config::Config;
pub use environment::{Chosen, Condition, Environment, FinalizerSet, FinalizerUse, Group, Shown, StepUse};
pub use error::{ConfigError, ConfigErrors};
pub use find::{Places, find_files};
pub use layers::Layers;
pub use node::{Entry, Laid, Node, Table, Value};
pub use origin::{Origin, Text};
pub use settings::Settings;
pub use values::{ByteSize, Secret, SizeError};
pub use yaml::parse_yaml;
