use bake_config::Environment;

use crate::cli::{Format, Global, Output};
use crate::configuration::Configuration;
use crate::terminal::print_line;

/// List, show and check environments
#[derive(Debug, clap::Subcommand)]
pub(crate) enum EnvCommand {
    /// List the environments of all layers
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Show an environment with everything merged
    Show {
        /// Its name; the default one if it is left out
        name: Option<String>,
        /// Say where each value was written
        #[arg(long)]
        origin: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Read all layers and report every mistake
    Check,
}

pub(crate) fn run(global: &Global, command: EnvCommand) -> anyhow::Result<()> {
    let configuration = Configuration::load(global)?;
    match command {
        EnvCommand::List { output } => list(output, &configuration),
        EnvCommand::Show { name, origin, output } => show(output, &configuration.environment(name.as_deref())?, origin),
        // Loading has found every mistake there is.
        EnvCommand::Check => Ok(()),
    }
}

fn list(output: Output, configuration: &Configuration) -> anyhow::Result<()> {
    let default = configuration.config.default_environment().map(|name| name.text.as_str());
    for name in configuration.config.environments() {
        let is_default = default == Some(name);
        let built = configuration.config.environment(name).is_ok();
        print_line(&match output.format {
            Format::Json => serde_json::json!({ "name": name, "default": is_default, "built": built }).to_string(),
            Format::Text if !built => format!("{name} (not in this build)"),
            Format::Text if is_default => format!("{name} (default)"),
            Format::Text => name.to_owned(),
        })?;
    }
    Ok(())
}

fn show(output: Output, environment: &Environment, origin: bool) -> anyhow::Result<()> {
    if output.format == Format::Json {
        return print_line(&environment.to_json().to_string());
    }
    for value in environment.values() {
        let written = if origin { format!("    # {}", value.origin) } else { String::new() };
        print_line(&format!("{}: {}{written}", value.path, value.value))?;
    }
    Ok(())
}
