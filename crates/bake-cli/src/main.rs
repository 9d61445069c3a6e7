//! The `bake` command: turns a base image and packages into images.
//!
//! `main` reads the command line and hands over to a file in `commands/`, one for each subcommand. Everything that is
//! printed, every exit code and the list of built-in plugins ([`plugins`]) live in this crate, and nothing else does.

// The futures of the AWS crates nest deeper than the compiler looks by itself.
#![recursion_limit = "256"]
// Both panic when nobody reads: everything is said by `terminal`, which does not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod asked;
mod cli;
mod commands;
mod configuration;
mod execution;
mod exit;
mod failure;
mod places;
mod plugins;
mod preparation;
mod progress;
mod report;
mod signals;
mod terminal;
mod variables;

use crate::exit::Exit;

fn main() -> std::process::ExitCode {
    // Must come first: in the sandbox's own process no thread may exist before its namespaces are in order.
    bake_linux::enter_if_sandbox();

    let arguments = match cli::Cli::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version come this way too; clap knows which stream each belongs to.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            // A reader that went away has seen enough.
            let _gone = error.print();
            return exit.into();
        }
    };
    terminal::start_logging(&arguments.global);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failure::print(&anyhow::Error::new(error).context("cannot start"), Exit::Failed).into(),
    };
    let exit = runtime.block_on(commands::run(arguments));
    // What still waits (a read of a terminal, say) must not keep the program from ending.
    runtime.shutdown_background();
    exit.into()
}
