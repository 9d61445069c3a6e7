//! Whole imports: what is written, and what people are told.

mod catalog;
mod hostile;
mod oddities;
mod shipped;

use bake_import::{Imported, Source, import};

/// A folder of Aminator's, by the names of its files.
fn site(files: &[(&str, &str)]) -> Vec<Source> {
    let source = |(name, content): &(&str, &str)| Source { path: name.into(), content: content.as_bytes().to_vec() };
    files.iter().map(source).collect()
}

fn imported(files: &[(&str, &str)]) -> Imported {
    import(&site(files)).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The notes as a program would print them.
fn notes(imported: &Imported) -> String {
    imported.notes.iter().map(|note| format!("{note}\n")).collect()
}

/// The part of the file that starts with this key.
fn part(imported: &Imported, key: &str) -> String {
    let lines = imported.yaml.lines().skip_while(|line| !line.starts_with(&format!("{key}:")));
    lines.take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

/// The name of the file of a plugin.
fn plugin(kind: &str, name: &str) -> String {
    format!("plugins/aminator.plugins.{kind}.{name}.yml")
}
