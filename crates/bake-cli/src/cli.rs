//! The command line as a whole; each subcommand's own arguments stand in its file.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

#[cfg(feature = "ec2")]
use crate::commands::snapshot;
use crate::commands::{base, env, gc, graph, image, plan, plugins, resume, run, runs};

/// Turn a base image and packages into images
///
/// `bake [OPTIONS] PACKAGE…` is short for `bake run [OPTIONS] PACKAGE…`. A word that is a subcommand is the subcommand: a
/// package of that name is baked by `bake run NAME`.
#[derive(Debug, Parser)]
#[command(name = "bake", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::RunArgs),
    Plan(plan::PlanArgs),
    Apply(plan::ApplyArgs),
    Graph(graph::GraphArgs),
    #[command(subcommand)]
    Base(base::BaseCommand),
    #[command(subcommand)]
    Image(image::ImageCommand),
    #[cfg(feature = "ec2")]
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    #[command(subcommand)]
    Env(env::EnvCommand),
    Runs(runs::RunsArgs),
    Show(runs::ShowArgs),
    Resume(resume::ResumeArgs),
    Cancel(runs::CancelArgs),
    Teardown(runs::TeardownArgs),
    Gc(gc::GcArgs),
    Plugins(plugins::PluginsArgs),
}

/// Options that every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Read this file of environments instead of the one found upwards from here
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Set a value of the configuration, such as `vars.creator=ann` (can be repeated)
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Keep the journal, logs and the local cloud here [default: /var/lib/bake]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Say nothing on the terminal but errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say more; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Do without colours
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

/// How a command that prints results does so.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Output {
    /// Print results as text or as JSON, one object a line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// How results are written to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A line for each, its fields apart by a space or aligned in columns.
    Text,
    /// A JSON object for each, a line long.
    Json,
}

impl Cli {
    /// Reads the command line of this process.
    pub(crate) fn try_parse() -> Result<Self, clap::Error> {
        Self::read(std::env::args_os().collect())
    }

    fn read(mut words: Vec<OsString>) -> Result<Self, clap::Error> {
        let command = Self::command();
        if let Some(place) = place_of_run(&command, &words) {
            words.insert(place, "run".into());
        }
        Self::try_parse_from(words)
    }
}

/// Where `run` was left out: before the first word that is no option of every command, unless that word is a subcommand
/// or asks for help.
fn place_of_run(command: &clap::Command, words: &[OsString]) -> Option<usize> {
    let mut place = 1;
    while let Some(word) = words.get(place) {
        let text = word.to_str().unwrap_or_default();
        let name = text.split('=').next().unwrap_or_default();
        let same = |option: &&clap::Arg| {
            option.get_long().is_some_and(|long| name == format!("--{long}"))
                || option.get_short().is_some_and(|short| {
                    text.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c == short))
                })
        };
        match command.get_arguments().find(same) {
            Some(option) if option.get_action().takes_values() && name == text => place += 2,
            Some(_) => place += 1,
            None => {
                let known = command.find_subcommand(text).is_some();
                return (!known && !["help", "-h", "--help", "-V", "--version"].contains(&text)).then_some(place);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Cli {
        Cli::read(std::iter::once(&"bake").chain(words).map(OsString::from).collect()).unwrap()
    }

    fn packages(words: &[&str]) -> Vec<String> {
        match parse(words).command {
            Command::Run(run) => run.asked.packages,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn packages_alone_mean_run() {
        assert_eq!(packages(&["hello"]), ["hello"]);
        assert_eq!(packages(&["--env", "local_apt_linux", "hello"]), ["hello"]);
        assert_eq!(packages(&["-qv", "hello", "-e", "e"]), ["hello"]);
        assert_eq!(packages(&["--config", "base", "--set=a=b", "-vv", "hello"]), ["hello"]);
    }

    #[test]
    fn a_package_called_like_a_subcommand_can_be_baked() {
        assert_eq!(packages(&["run", "--env", "e", "image"]), ["image"]);
        assert_eq!(packages(&["-e", "e", "--", "image"]), ["image"]);
    }

    #[test]
    fn a_subcommand_is_the_subcommand() {
        assert!(matches!(parse(&["env", "list"]).command, Command::Env(_)));
        assert!(matches!(parse(&["--quiet", "--config", "x", "base", "list"]).command, Command::Base(_)));
    }
}
