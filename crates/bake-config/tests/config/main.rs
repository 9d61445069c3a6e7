//! Whole configurations: what people write, and what they are told.

mod catalog;
mod layers;
mod properties;
mod rules;
mod settings;
mod table;
