//! `bake env`: what the environments are, and why.

mod eval;
mod import;
mod show;
mod vars;

use bake_core::{Bake, BaseQuery, Composition, Known, PackageRequest};
use bake_engine::Mutations;

use crate::cli::{Format, Global, Output};
use crate::configuration::Configuration;
use crate::failure::{self, Advice};
use crate::plugins::{self, Overrides};
use crate::terminal::print_line;
use crate::variables::{self, VariableFlags};

/// List, show, check and explain environments
#[derive(Debug, clap::Subcommand)]
pub(crate) enum EnvCommand {
    /// List the environments of all layers
    List {
        #[command(flatten)]
        output: Output,
    },
    Show(show::ShowArgs),
    Vars(vars::VarsArgs),
    Eval(eval::EvalArgs),
    Import(import::ImportArgs),
    /// Read all layers and report every mistake, in templates and predicates too
    Check,
}

pub(crate) fn run(global: &Global, command: EnvCommand) -> anyhow::Result<()> {
    // Whoever comes from Aminator may have no configuration yet that could be read.
    if let EnvCommand::Import(arguments) = &command {
        return import::run(arguments);
    }
    let configuration = Configuration::load(global)?;
    match command {
        EnvCommand::Import(_) => Ok(()),
        EnvCommand::List { output } => list(output, &configuration),
        EnvCommand::Show(arguments) => show::run(&configuration, &arguments),
        EnvCommand::Vars(arguments) => vars::run(&configuration, &arguments),
        EnvCommand::Eval(arguments) => eval::run(&configuration, &arguments),
        EnvCommand::Check => check(&configuration),
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

/// Loading has found what is wrong with the files; what remains is what only the plugins know.
fn check(configuration: &Configuration) -> anyhow::Result<()> {
    let mut mistakes = Vec::new();
    for name in configuration.config.environments() {
        // One that cannot be chosen in this build is none to be checked.
        let Ok(environment) = configuration.config.environment(name) else { continue };
        let (composition, known) = look_into(configuration, &environment, &VariableFlags::default())?;
        let found = composition.mistakes(&known, None);
        if found.is_empty() {
            // What remains are mistakes of the graph: steps that are not there, circles, images that nobody makes.
            let (base, steps) = (BaseQuery::default(), environment.steps.clone());
            mistakes.extend(Bake { composition, base, request: any_package()?, known, name: None, steps }.plan().err());
        }
        mistakes.extend(found);
    }
    // Environments that share a set share its mistakes.
    let mut told = std::collections::BTreeSet::new();
    mistakes.retain(|mistake| told.insert(failure::line(mistake)));
    if mistakes.is_empty() { Ok(()) } else { Err(failure::refused(&mistakes).into()) }
}

/// A request, for a plan that is only looked at.
fn any_package() -> anyhow::Result<PackageRequest> {
    Ok(PackageRequest::parse(&["package".to_owned()], None, std::path::Path::new("/"))?)
}

/// Puts an environment together to look at it; nothing is made.
fn look_into(
    configuration: &Configuration,
    environment: &bake_config::Environment,
    flags: &VariableFlags,
) -> anyhow::Result<(Composition, Known)> {
    let usage = |error: anyhow::Error| Advice::usage(format!("{error:#}"));
    let mut mutations = Mutations::new();
    let composition =
        plugins::compose(environment, &Overrides::default(), &configuration.places, &mut mutations).map_err(usage)?;
    let variables = variables::variables(environment, flags);
    let known = variables::known(&variables, environment, "‹run.id›", jiff::Timestamp::now())?;
    Ok((composition, known))
}
