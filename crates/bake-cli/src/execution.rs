//! Carrying out a bake: the engine runs the plan, what must not stay is taken back, and everybody is told.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use bake_core::{Cloud, Image, OnFailure, Planned, to_take_back};
use bake_engine::{
    Cancel, Engine, EngineError, EngineOptions, EventSink, Journal, Keep, Mutations, ResourceState, RunId, RunRecord,
    RunSpec, StepContext, Undo, Verdict,
};
use bake_linux::{PartitionChoice, find_root};
use clap::ValueEnum;

use crate::cli::{Format, Global, Output};
use crate::exit::Exit;
use crate::failure::{self, Advice};
use crate::places::Places;
use crate::preparation::Prepared;
use crate::progress::{self, Watcher};
use crate::report::{About, Ended, Leftover, Report};
use crate::signals;
use crate::terminal::print_line;

/// How a bake ends, and who is told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Ending {
    /// What to do with the volume when the bake fails
    #[arg(long, value_enum, default_value_t = OnError::Cleanup, value_name = "WHAT")]
    on_error: OnError,
    /// Keep the volume when the bake fails, like `--on-error keep`
    #[arg(long, hide = true)]
    preserve_on_error: bool,
    /// Write the report to this file, as JSON
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    /// Write the report to this file, as KEY=VALUE lines
    #[arg(long, value_name = "FILE")]
    properties: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// What to do with what a failed bake has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnError {
    /// Take it back
    Cleanup,
    /// Leave it, and say how to look into it
    Keep,
}

impl Ending {
    fn on_failure(&self) -> OnFailure {
        match self.on_error {
            OnError::Cleanup if !self.preserve_on_error => OnFailure::TakeBack,
            _ => OnFailure::Keep,
        }
    }

    /// A report that cannot be written is found out now, not after an hour.
    pub(crate) fn refuse_unwritable(&self) -> anyhow::Result<()> {
        if self.result.is_some() && self.result == self.properties {
            return Err(Advice::usage("`--result` and `--properties` name the same file").into());
        }
        for file in [&self.result, &self.properties].into_iter().flatten() {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if file.is_dir() {
                return Err(Advice::usage(format!("`{}` cannot be written: it is a folder", file.display())).into());
            }
            if !folder.is_dir() {
                return Err(
                    Advice::usage(format!("`{}` cannot be written: there is no such folder", file.display())).into()
                );
            }
        }
        Ok(())
    }

    /// Tells everybody who wants to know: people first, then scripts.
    ///
    /// What was baked was baked: that somebody could not be told is an error to show, and no other end.
    pub(crate) fn deliver(&self, global: &Global, report: &Report) -> anyhow::Result<Exit> {
        report.tell(global.quiet);
        let json = serde_json::to_string(report)?;
        let printed = match self.output.format {
            Format::Json => print_line(&json),
            Format::Text => report.id_lines().try_for_each(|line| print_line(&line)),
        };
        let told = [
            printed.context("cannot write to standard output"),
            self.result.as_deref().map_or(Ok(()), |file| Report::write(file, &format!("{json}\n"))),
            self.properties.as_deref().map_or(Ok(()), |file| Report::write(file, &report.properties())),
        ];
        for error in told.into_iter().filter_map(Result::err) {
            failure::print(&error, report.exit);
        }
        Ok(report.exit)
    }
}

/// Says now, not half-way, that this machine cannot bake.
pub(crate) fn refuse_without_rights() -> anyhow::Result<()> {
    match bake_linux::preflight() {
        Ok(_) => Ok(()),
        Err(error) => {
            let hint = "a bake mounts a disk in namespaces of its own, which takes root's rights";
            Err(anyhow::Error::new(error).context(Advice::usage("this machine cannot bake").hint(hint)))
        }
    }
}

/// Refuses to bake what an earlier run was baking when it ended half-way, or has left behind: its user should say what is to
/// become of that.
pub(crate) fn refuse_unfinished(places: &Places, request_key: &str) -> anyhow::Result<()> {
    if !places.journal().exists() {
        return Ok(());
    }
    let journal = Journal::read_only(&places.journal())?;
    for run in journal.runs()?.into_iter().filter(|run| run.request_key == request_key) {
        let why = match run.verdict {
            Some(Verdict::Done) => continue,
            None => "is unfinished",
            Some(_) if kept(&journal, &run.id)?.is_empty() => continue,
            Some(_) => "did not end well and has left something",
        };
        let message = format!("an earlier run of the same request, {}, {why}", run.id);
        let hint = format!(
            "finish it with `bake resume {0}`, take it back with `bake teardown {0}`, or bake anew with `--fresh`",
            run.id
        );
        return Err(Advice::of(Exit::Unfinished, message).hint(hint).into());
    }
    Ok(())
}

/// Whether a run is a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    New,
    /// The journal has it; what is done stays done.
    Known,
}

/// Carries out a bake whose request is locked, and returns the exit code that tells how it went.
pub(crate) async fn begin(
    global: &Global,
    places: &Places,
    prepared: Prepared,
    ending: &Ending,
    begun: Instant,
) -> anyhow::Result<Exit> {
    execute(global, places, (prepared, Run::New), ending, begun).await
}

/// Goes on with a run that the journal has, and whose request is locked.
pub(crate) async fn go_on(
    global: &Global,
    places: &Places,
    prepared: Prepared,
    ending: &Ending,
    begun: Instant,
) -> anyhow::Result<Exit> {
    execute(global, places, (prepared, Run::Known), ending, begun).await
}

async fn execute(
    global: &Global,
    places: &Places,
    (prepared, run): (Prepared, Run),
    ending: &Ending,
    begun: Instant,
) -> anyhow::Result<Exit> {
    let spec = prepared.spec();
    let id = spec.id.clone();
    let handles = prepared.planned.handles.clone();
    let Prepared { asked, environment, bake, mutations, planned, .. } = prepared;
    let watcher = Watcher::new(global, ending.output.format, places.logs(id.as_str()));
    let ended = carry_out(watcher, places, (mutations, planned, spec), run, ending.on_failure()).await?;
    let advice = advice(bake.composition.cloud.as_ref(), &id, &ended, asked.partition).await;
    let about = About { run: &id, environment: &environment.name, request: &bake.request, handles: &handles };
    let report = Report::new(about, ended, begun.elapsed(), advice)?;
    ending.deliver(global, &report)
}

/// Finds a finished bake of the same request whose images are all still there.
pub(crate) async fn baked_before(places: &Places, prepared: &Prepared) -> anyhow::Result<Option<Report>> {
    if !places.journal().exists() {
        return Ok(None);
    }
    let journal = Journal::read_only(&places.journal())?;
    let cx = StepContext::detached("reuse", &Cancel::new());
    let same = |run: &RunRecord| run.request_key == prepared.key && run.verdict == Some(Verdict::Done);
    // The newest first: it is what a user would take.
    for run in journal.runs()?.into_iter().rev().filter(same) {
        let images = images_of(&journal, &run.id)?;
        let mut there = !images.is_empty();
        for image in &images {
            there = there && prepared.bake.composition.cloud.has_image(cx.clone(), image).await?;
        }
        if there {
            let request = &prepared.bake.request;
            return Ok(Some(Report::reused(&run.id, &prepared.environment.name, request, images)));
        }
    }
    Ok(None)
}

/// The images of a run that were not taken back, as far as its journal knows.
fn images_of(journal: &Journal, id: &RunId) -> anyhow::Result<Vec<Image>> {
    let made = journal.resources(id)?.into_iter();
    let kept = made.filter(|made| made.keep == Keep::Artifact && made.state == ResourceState::Done);
    // A snapshot is an artifact, too; what reads as an image is one.
    Ok(kept.filter_map(|made| serde_json::from_value(made.result?).ok()).collect())
}

/// Runs the plan, takes back what must not stay, and closes the run in the journal. Returns what is left, kept or not.
async fn carry_out(
    watcher: Watcher,
    places: &Places,
    (mutations, planned, spec): (Mutations, Planned, RunSpec),
    run: Run,
    on_failure: OnFailure,
) -> anyhow::Result<Ended> {
    let cancel = Cancel::new();
    signals::watch(&cancel).context("cannot listen to signals")?;
    let id = spec.id.clone();
    let journal = places.open_journal()?;
    let (sink, events) = EventSink::channel();
    let watching = tokio::spawn(progress::watch(events, watcher));
    let engine = Engine::new(journal.clone(), Arc::new(mutations), EngineOptions::default(), sink);

    let outcome = match run {
        Run::New => engine.run(planned.plan, spec, cancel.clone()).await?,
        Run::Known => engine.resume(planned.plan, &id, cancel.clone()).await.map_err(not_resumed)?,
    };
    let images = planned.handles.images_made(&outcome)?;
    let what = match outcome.verdict {
        // Every finalizer that registers was passed over: a bake without an image is none, and what it made is of no use.
        Verdict::Done if images.is_empty() => Some(Undo::Everything),
        verdict => to_take_back(verdict, &images, on_failure),
    };
    let left = match what {
        Some(what) => match engine.undo(&id, what, cancel).await {
            Ok(left) => left.into_iter().map(Leftover::from).collect(),
            // What was baked must be told of all the same.
            Err(error) => vec![Leftover::unknown(&error)],
        },
        None => kept(&journal, &id).unwrap_or_else(|error| vec![Leftover::unknown(error.as_ref())]),
    };
    // A journal that cannot be written is in the outcome already; its images are told all the same.
    let closed = engine.close(&id, outcome.verdict).await;
    if outcome.verdict != Verdict::Poisoned {
        closed?;
    }
    drop(engine);
    watching.await.context("the watcher of the run ended early")?;
    Ok(Ended { outcome, left, images })
}

/// A run that cannot be gone on with is as it was; what can be done instead is said.
fn not_resumed(error: EngineError) -> anyhow::Error {
    let (EngineError::PlanChanged { run, .. } | EngineError::TooOld { run }) = &error else { return error.into() };
    let hint = format!("take it back with `bake teardown {run}`, or bake anew with `--fresh`");
    Advice::usage(error.to_string()).hint(hint).into()
}

/// Tells whether a run that has ended still has a thing of this id to take back.
pub(crate) fn knows_of(journal: &Journal, id: &RunId, thing: &str) -> anyhow::Result<bool> {
    Ok(kept(journal, id)?.iter().any(|left| left.made["id"] == thing))
}

/// What a failed run keeps because the user wants to look into it.
fn kept(journal: &Journal, id: &RunId) -> anyhow::Result<Vec<Leftover>> {
    let resources = journal.resources(id)?.into_iter();
    let kept = resources.filter(|made| made.keep != Keep::NothingToUndo && made.state.is_there());
    Ok(kept.map(Leftover::kept).collect())
}

/// Says how to go on with what is left: a kept volume can be looked into, and everything can be taken back later.
async fn advice(cloud: &dyn Cloud, id: &RunId, ended: &Ended, partition: Option<u32>) -> Option<String> {
    let teardown = format!("`bake teardown {id}` takes back what is left");
    if ended.left.is_empty() {
        return ended.images_outlived_the_bake().then_some(teardown);
    }
    let Some(volume) = ended.left.iter().find_map(|left| left.volume.as_ref()) else { return Some(teardown) };
    let Ok(disk) = cloud.disk_file(volume).await else { return Some(teardown) };
    let choice = partition.map_or(PartitionChoice::OnlyRoot, PartitionChoice::Number);
    let root = std::fs::File::open(&disk).ok().and_then(|file| find_root(&file, &choice).ok());
    let Some(offset) = root.map(|root| root.offset) else { return Some(teardown) };
    Some(format!("look into the volume with `mount -o ro,loop,offset={offset} {} /mnt`; {teardown}", disk.display()))
}
