//! One file for each subcommand: its arguments, and what it does.

pub(crate) mod base;
pub(crate) mod env;
pub(crate) mod gc;
pub(crate) mod graph;
pub(crate) mod image;
pub(crate) mod plan;
pub(crate) mod plugins;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod runs;
#[cfg(feature = "ec2")]
pub(crate) mod snapshot;

use crate::cli::{Cli, Command};
use crate::exit::Exit;
use crate::failure;

/// Does what the command line asks for, and tells of errors.
pub(crate) async fn run(cli: Cli) -> Exit {
    let Cli { global, command } = cli;
    let done = |()| Exit::Done;
    let result = match command {
        Command::Run(arguments) => run::run(&global, arguments).await,
        Command::Plan(arguments) => plan::plan(&global, arguments).await.map(done),
        Command::Graph(arguments) => graph::run(&global, arguments).await.map(done),
        Command::Apply(arguments) => plan::apply(&global, arguments).await,
        Command::Base(command) => base::run(&global, command).await.map(done),
        Command::Image(command) => image::run(&global, command).await.map(done),
        Command::Env(command) => env::run(&global, command).map(done),
        Command::Runs(arguments) => runs::list(&global, arguments).map(done),
        Command::Show(arguments) => runs::show(&global, arguments).map(done),
        Command::Resume(arguments) => resume::run(&global, arguments).await,
        Command::Cancel(arguments) => runs::cancel(&global, arguments).map(done),
        Command::Gc(arguments) => gc::run(&global, arguments).await,
        Command::Teardown(arguments) => runs::teardown(&global, arguments).await,
        #[cfg(feature = "ec2")]
        Command::Snapshot(command) => snapshot::run(&global, command).await,
        Command::Plugins(arguments) => plugins::run(arguments).map(done),
    };
    result.unwrap_or_else(|error| failure::print(&error, Exit::Failed))
}
