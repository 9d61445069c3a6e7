use std::sync::Arc;

use anyhow::Context;
use bake_engine::{
    Cancel, Engine, EngineOptions, EventSink, Journal, Keep, Mutations, ResourceState, RunId, RunRecord, Undo, Verdict,
};

use crate::cli::{Format, Global, Output};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::failure::Advice;
use crate::places::Places;
use crate::plugins;
use crate::terminal::{print_line, tell};

/// List the runs that the journal knows
///
/// An unfinished run is one whose `bake` was killed: `bake teardown RUN` takes back what it has made.
#[derive(Debug, clap::Args)]
pub(crate) struct RunsArgs {
    #[command(flatten)]
    output: Output,
}

/// Show what a run did and made
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The run
    run: RunId,
    #[command(flatten)]
    output: Output,
}

/// Take back everything that a run made
#[derive(Debug, clap::Args)]
pub(crate) struct TeardownArgs {
    /// The run
    run: RunId,
}

/// Stop a run that another `bake` carries out now
///
/// The same as Ctrl-C there: nothing new is begun, and what was made is taken back. Asked a second time it leaves things as they
/// are.
#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// The run
    run: RunId,
}

pub(crate) fn list(global: &Global, arguments: RunsArgs) -> anyhow::Result<()> {
    let places = Configuration::load(global)?.places;
    if !places.journal().exists() {
        return Ok(());
    }
    let journal = Journal::read_only(&places.journal())?;
    for run in journal.runs()? {
        print_line(&match arguments.output.format {
            Format::Json => serde_json::json!({
                "run": run.id, "started": run.started, "finished": run.finished, "title": run.title, "verdict": run.verdict,
                "state": state(&journal, &run, &places)?,
            })
            .to_string(),
            Format::Text => format!("{} {:<10} {}", run.id, state(&journal, &run, &places)?, run.title),
        })?;
    }
    Ok(())
}

fn state(journal: &Journal, run: &RunRecord, places: &Places) -> anyhow::Result<&'static str> {
    Ok(match run.verdict {
        // The lock ends with the process: whoever holds it is baking.
        None if places.is_locked(&run.request_key) => "running",
        None => "unfinished",
        Some(Verdict::Done) if is_taken_back(journal, &run.id)? => "taken back",
        Some(Verdict::Done) => "baked",
        Some(Verdict::Failed | Verdict::Poisoned) => "failed",
        Some(Verdict::Cancelled) => "cancelled",
    })
}

/// Whether nothing is left of what a run has made.
fn is_taken_back(journal: &Journal, run: &RunId) -> anyhow::Result<bool> {
    let mut artifacts = journal.resources(run)?.into_iter().filter(|made| made.keep == Keep::Artifact);
    Ok(artifacts.all(|made| !made.state.is_there()))
}

pub(crate) fn show(global: &Global, arguments: ShowArgs) -> anyhow::Result<()> {
    let places = Configuration::load(global)?.places;
    if !places.journal().exists() {
        return Err(unknown_run(&arguments.run).into());
    }
    let journal = Journal::read_only(&places.journal())?;
    let view = journal.view(&arguments.run)?.ok_or_else(|| unknown_run(&arguments.run))?;
    let state = state(&journal, &view.run, &places)?;
    if arguments.output.format == Format::Json {
        let steps: Vec<_> = view
            .steps
            .iter()
            .map(|step| serde_json::json!({ "step": step.path, "state": step.state, "attempts": step.attempts }))
            .collect();
        let made: Vec<_> = view
            .resources
            .iter()
            .map(|made| serde_json::json!({ "kind": made.kind, "state": made.state, "made": made.made, "step": made.step }))
            .collect();
        return print_line(
            &serde_json::json!({
                "run": view.run.id, "title": view.run.title, "state": state, "steps": steps, "resources": made,
            })
            .to_string(),
        );
    }
    print_line(&format!("{} {} {}", view.run.id, state, view.run.title))?;
    for step in &view.steps {
        print_line(&format!("  step {:<40} {}", step.path, word(&step.state)))?;
        for sentence in step.error.iter().flat_map(|error| &error.chain) {
            print_line(&format!("       {sentence}"))?;
        }
    }
    for made in view.resources.iter().filter(|made| made.state != ResourceState::NotMade) {
        let what = made.made.as_ref().map(ToString::to_string).unwrap_or_default();
        print_line(&format!("  made {:<18} {} {what}", made.kind, word(&made.state)))?;
    }
    Ok(())
}

/// Tells the process that carries out a run to stop. Whether it did is for that process to say.
pub(crate) fn cancel(global: &Global, arguments: CancelArgs) -> anyhow::Result<()> {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let CancelArgs { run } = arguments;
    let places = Configuration::load(global)?.places;
    let record = places.journal().exists().then(|| Journal::read_only(&places.journal())?.run(&run)).transpose()?;
    let record = record.flatten().ok_or_else(|| unknown_run(&run))?;
    let idle =
        || Advice::usage(format!("nobody carries out the run `{run}` now")).hint("`bake runs` says how it ended");
    let holder = || places.holder(&record.request_key).filter(|holder| holder.run == run.as_str());
    let process = holder().and_then(|holder| Pid::from_raw(holder.process)).ok_or_else(idle)?;
    let handle = pidfd_open(process, PidfdFlags::empty()).map_err(|_| idle())?;
    // Only now is it sure that the number was not given to another process in between.
    if holder().is_none() {
        return Err(idle().into());
    }
    pidfd_send_signal(&handle, Signal::TERM)
        .with_context(|| format!("cannot signal process {}", process.as_raw_nonzero()))?;
    tell(&format!("told process {} to stop the run {run}\n", process.as_raw_nonzero()));
    Ok(())
}

/// Takes a run back from the journal alone: its environment may have changed or be gone.
pub(crate) async fn teardown(global: &Global, arguments: TeardownArgs) -> anyhow::Result<Exit> {
    let places = Configuration::load(global)?.places;
    if !places.journal().exists() {
        return Err(unknown_run(&arguments.run).into());
    }
    places.make()?;
    let journal = places.open_journal()?;
    let run = journal.run(&arguments.run)?.ok_or_else(|| unknown_run(&arguments.run))?;
    let _lock = places.lock_request(&run.request_key, &run.id)?;
    let cancel = Cancel::new();
    crate::signals::watch(&cancel).context("cannot listen to signals")?;
    let engine =
        Engine::new(journal, Arc::new(mutations(&run.config, &places)?), EngineOptions::default(), EventSink::none());
    let left = engine.undo(&arguments.run, Undo::Everything, cancel).await?;
    engine.close(&arguments.run, run.verdict.unwrap_or(Verdict::Cancelled)).await?;
    for left in &left {
        tell(&format!("left: {} {} ({})\n", left.kind, left.made.clone().unwrap_or_default(), left.reason));
    }
    if left.is_empty() {
        tell(&format!("took back what the run {} had made\n", run.id));
    }
    Ok(if left.is_empty() { Exit::Done } else { Exit::FailedWithLeftovers })
}

fn mutations(config: &serde_json::Value, places: &Places) -> anyhow::Result<Mutations> {
    let mut mutations = Mutations::new();
    plugins::register_all(config, places, &mut mutations)?;
    Ok(mutations)
}

/// The word that journal and JSON have for a state.
fn word(state: &impl serde::Serialize) -> String {
    match serde_json::to_value(state) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "unfinished".into(),
    }
}

pub(super) fn unknown_run(run: &RunId) -> Advice {
    Advice::usage(format!("the journal knows no run `{run}`")).hint("`bake runs` lists them")
}
