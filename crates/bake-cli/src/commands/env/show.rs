use bake_config::Origin;

use crate::cli::{Format, Output};
use crate::configuration::Configuration;
use crate::terminal::print_line;

/// Show an environment with everything merged
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Its name; the default one if it is left out
    name: Option<String>,
    /// Say where each value was written
    #[arg(long)]
    origin: bool,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(configuration: &Configuration, arguments: &ShowArgs) -> anyhow::Result<()> {
    let environment = configuration.environment(arguments.name.as_deref())?;
    match (arguments.output.format, arguments.origin) {
        (Format::Json, false) => print_line(&environment.to_json().to_string()),
        (Format::Json, true) => environment.values().iter().try_for_each(|value| {
            let line = serde_json::json!({ "name": value.path, "value": value.value, "origin": place(&value.origin) });
            print_line(&line.to_string())
        }),
        (Format::Text, origin) => environment.values().iter().try_for_each(|value| {
            let written = if origin { format!("    # {}", value.origin) } else { String::new() };
            print_line(&format!("{}: {}{written}", value.path, value.value))
        }),
    }
}

/// An origin for scripts.
pub(super) fn place(origin: &Origin) -> serde_json::Value {
    serde_json::json!({ "file": origin.file, "line": origin.line, "column": origin.column })
}
