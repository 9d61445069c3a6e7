use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use bake_config::Environment;
use bake_core::{Bake, BakeHandles, BaseQuery, IdentityTemplates, Image, PackageRequest, Region};
use bake_engine::{
    Cancel, Engine, EngineOptions, EventSink, Journal, Keep, Mutations, Outcome, Plan, ResourceState, RunId, RunSpec,
    Undo, Verdict,
};
use clap::ValueEnum;
use sha2::{Digest, Sha256};

use crate::cli::{Format, Global, Output};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::failure::Advice;
use crate::places::Places;
use crate::plugins::{self, Overrides};
use crate::progress::{self, Watcher};
use crate::report::{self, Changes, Failure, Leftover, Report};
use crate::signals;
use crate::terminal::print_line;

/// Bake packages into an image
///
/// The environment says what is used: cloud, block device, volume, provisioner and the finalizers that follow. The ids of
/// what was made are printed at the end, a line for each: region, account, kind, id and name.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// What to install: a name, `name=version`, or the path of a package file
    #[arg(value_name = "PACKAGE")]
    pub(crate) packages: Vec<String>,
    /// Environment to bake in; the default one if it is left out
    #[arg(short, long, visible_alias = "environment")]
    env: Option<String>,
    /// Base image: its name or its id
    #[arg(long, short_alias = 'b', visible_aliases = ["base-ami-name", "base-ami-id"], value_name = "IMAGE")]
    base: Option<String>,
    /// Which of several packages names the image
    #[arg(long, value_name = "PACKAGE")]
    main: Option<String>,
    /// Name of the image, or a template for it
    #[arg(short, long)]
    name: Option<String>,
    /// Last part of the image's name; the time if it is left out
    #[arg(short, long)]
    suffix: Option<String>,
    /// Who bakes, for the tag `creator`; the user if it is left out
    #[arg(short, long)]
    creator: Option<String>,
    /// Region to bake in
    #[arg(short, long)]
    region: Option<String>,
    /// Number of the root's partition
    #[arg(long, value_name = "NUMBER")]
    partition: Option<u32>,
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
    /// Take it back.
    Cleanup,
    /// Leave it, and say how to look into it.
    Keep,
}

/// Bakes, and returns the exit code that tells how it went.
pub(crate) async fn run(global: &Global, arguments: RunArgs) -> anyhow::Result<Exit> {
    let begun = Instant::now();
    let started = jiff::Timestamp::now();
    let configuration = Configuration::load(global)?;
    let environment = configuration.environment(arguments.env.as_deref())?;
    let request = parse_request(&arguments)?;
    refuse_unwritable(&arguments)?;
    refuse_without_rights()?;
    configuration.places.make()?;

    let mut mutations = Mutations::new();
    let id = RunId::new(started);
    let bake = prepare(&arguments, &environment, request, &configuration.places, &mut mutations, &id, started)?;
    let (plan, handles) = bake.plan().map_err(|error| Advice::usage(error.to_string()))?;
    let key = request_key(&bake, &environment);
    let _lock = configuration.places.lock_request(&key)?;

    let cancel = Cancel::new();
    signals::watch(&cancel).context("cannot listen to signals")?;
    let spec = RunSpec {
        id: id.clone(),
        title: format!("{} in {}", bake.request.title(), environment.name),
        request_key: key,
        config: environment.to_json(),
        plugins: serde_json::json!({ "bake": env!("CARGO_PKG_VERSION") }),
        started,
    };
    let watcher = Watcher::new(global, arguments.output.format, configuration.places.logs(id.as_str()));
    let ended = carry_out(watcher, &configuration.places, mutations, plan, spec, cancel, arguments.on_error()).await?;
    let report = make_report(&id, &environment, &bake.request, &handles, ended, begun)?;
    deliver(global, &arguments, &report)
}

impl RunArgs {
    fn on_error(&self) -> OnError {
        if self.preserve_on_error { OnError::Keep } else { self.on_error }
    }
}

fn parse_request(arguments: &RunArgs) -> anyhow::Result<PackageRequest> {
    let here = std::env::current_dir().context("cannot tell the working directory")?;
    PackageRequest::parse(&arguments.packages, arguments.main.as_deref(), &here).map_err(|error| {
        let advice = Advice::usage(error.to_string()).maybe_hint(error.hint());
        match std::error::Error::source(&error).map(ToString::to_string) {
            Some(source) => anyhow::anyhow!(source).context(advice),
            None => advice.into(),
        }
    })
}

/// A report that cannot be written is found out now, not after an hour.
fn refuse_unwritable(arguments: &RunArgs) -> anyhow::Result<()> {
    for file in [&arguments.result, &arguments.properties].into_iter().flatten() {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
        if !folder.is_dir() {
            return Err(
                Advice::usage(format!("`{}` cannot be written: there is no such folder", file.display())).into()
            );
        }
    }
    Ok(())
}

fn refuse_without_rights() -> anyhow::Result<()> {
    match bake_linux::preflight() {
        Ok(_) => Ok(()),
        Err(error) => {
            let hint = "a bake mounts a disk in namespaces of its own, which takes root's rights";
            Err(anyhow::Error::new(error).context(Advice::usage("this machine cannot bake").hint(hint)))
        }
    }
}

/// Puts together everything that is fixed before the plan is made.
fn prepare(
    arguments: &RunArgs,
    environment: &Environment,
    request: PackageRequest,
    places: &Places,
    mutations: &mut Mutations,
    id: &RunId,
    started: jiff::Timestamp,
) -> anyhow::Result<Bake> {
    let overrides = Overrides { partition: arguments.partition };
    let composition = plugins::compose(environment, &overrides, places, mutations)
        .map_err(|error| Advice::usage(format!("{error:#}")))?;
    for spec in &request.packages {
        composition.provisioner.accepts(spec).map_err(Advice::usage)?;
    }
    let identity = identity(arguments, environment, id, started);
    identity.check().map_err(|error| Advice::usage(error.to_string()))?;
    let base = BaseQuery { wanted: arguments.base.clone(), region: arguments.region.as_deref().map(Region::from) };
    Ok(Bake { composition, base, request, identity })
}

/// The templates of names and tags, with the values that are known now: built-in, then the environment's, then flags.
fn identity(arguments: &RunArgs, environment: &Environment, id: &RunId, started: jiff::Timestamp) -> IdentityTemplates {
    let user =
        ["SUDO_USER", "USER"].iter().find_map(|name| std::env::var(name).ok()).unwrap_or_else(|| "unknown".into());
    let built_in = [("suffix", started.strftime("%Y%m%d%H%M%S").to_string()), ("creator", user)];
    let written = environment.vars.iter().map(|(name, var)| (name.as_str(), var.text.clone()));
    let flags = [("suffix", &arguments.suffix), ("creator", &arguments.creator)];
    let flags = flags.into_iter().filter_map(|(name, flag)| Some((name, flag.clone()?)));
    let vars = built_in.into_iter().chain(written).chain(flags).map(|(name, value)| (name.to_owned(), value)).collect();
    let templates = plugins::templates(environment);
    IdentityTemplates {
        name: arguments.name.clone().unwrap_or(templates.name),
        description: templates.description,
        tags: templates.tags,
        vars,
        environment: environment.name.clone(),
        run: id.to_string(),
        date: started.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    }
}

/// What was asked for, as a hash: the same request, whenever it is made and whoever makes it.
fn request_key(bake: &Bake, environment: &Environment) -> String {
    let asked = serde_json::json!({
        "environment": environment.to_json(), "packages": bake.request, "base": bake.base, "name": bake.identity.name,
    });
    let digest = Sha256::digest(asked.to_string().as_bytes());
    digest[..10].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a run came to, before it is told.
struct Ended {
    outcome: Outcome,
    left: Vec<Leftover>,
    images: Vec<Image>,
}

/// Runs the plan, takes back what must not stay, and closes the run in the journal.
async fn carry_out(
    watcher: Watcher,
    places: &Places,
    mutations: Mutations,
    plan: Plan,
    spec: RunSpec,
    cancel: Cancel,
    on_error: OnError,
) -> anyhow::Result<Ended> {
    let id = spec.id.clone();
    let journal = places.open_journal()?;
    let (sink, events) = EventSink::channel();
    let watching = tokio::spawn(progress::watch(events, watcher));
    let engine = Engine::new(journal.clone(), Arc::new(mutations), EngineOptions::default(), sink);

    let outcome = engine.run(plan, spec, cancel.clone()).await?;
    let images = images_made(&journal, &id)?;
    let left = match what_to_undo(outcome.verdict, &images, on_error) {
        Some(what) => engine.undo(&id, what, cancel).await?.into_iter().map(Leftover::from).collect(),
        None => kept(&journal, &id)?,
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

/// A bake that went well loses its scaffold. One that failed loses everything, unless an image exists: good images are
/// not destroyed because one later step failed.
fn what_to_undo(verdict: Verdict, images: &[Image], on_error: OnError) -> Option<Undo> {
    match verdict {
        Verdict::Done => Some(Undo::Scaffolds),
        _ if on_error == OnError::Keep => None,
        _ if !images.is_empty() => Some(Undo::Scaffolds),
        _ => Some(Undo::Everything),
    }
}

/// The images that the run has made, by the journal: kinds of mutation are named `<cloud>.image`.
fn images_made(journal: &Journal, id: &RunId) -> anyhow::Result<Vec<Image>> {
    let resources = journal.resources(id)?;
    let done = resources.into_iter().filter(|made| made.kind.ends_with(".image") && made.state == ResourceState::Done);
    done.filter_map(|made| made.result).map(|result| Ok(serde_json::from_value(result)?)).collect()
}

/// What a failed run keeps because the user wants to look into it.
fn kept(journal: &Journal, id: &RunId) -> anyhow::Result<Vec<Leftover>> {
    let there = |state| matches!(state, ResourceState::Accepted | ResourceState::Done | ResourceState::Unknown);
    let resources =
        journal.resources(id)?.into_iter().filter(|made| made.keep != Keep::NothingToUndo && there(made.state));
    Ok(resources
        .map(|made| Leftover {
            kind: made.kind,
            made: made.made.unwrap_or_default(),
            reason: "kept, as you asked".into(),
        })
        .collect())
}

fn make_report(
    id: &RunId,
    environment: &Environment,
    request: &PackageRequest,
    handles: &BakeHandles,
    ended: Ended,
    begun: Instant,
) -> anyhow::Result<Report> {
    let Ended { outcome, left, images } = ended;
    let installed = outcome.output(handles.installed)?;
    let identity = outcome.output(handles.identity)?;
    let changes = installed.as_ref().map(|installed| &installed.changes);
    let how = match outcome.verdict {
        Verdict::Done => report::Outcome::Baked,
        Verdict::Failed => report::Outcome::Failed,
        Verdict::Cancelled => report::Outcome::Cancelled,
        Verdict::Poisoned => report::Outcome::Poisoned,
    };
    let unknown = outcome.unknown.iter().map(|one| format!("{} of `{}`: {}", one.kind, one.step, one.request));
    let unsaved =
        outcome.unsaved.iter().map(|one| format!("{} of `{}`, not in the journal: {}", one.kind, one.step, one.made));
    let unknown: Vec<_> = unknown.chain(unsaved).collect();
    let exit = report::exit_of(how, !left.is_empty(), !unknown.is_empty(), !outcome.warnings.is_empty());
    Ok(Report {
        run: id.to_string(),
        environment: environment.name.clone(),
        request: request.title(),
        outcome: how,
        exit,
        elapsed_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        images,
        tags: identity.map(|identity| identity.tags).unwrap_or_default(),
        package_changes: changes.map(Changes::of).unwrap_or_default(),
        packages: installed.map(|installed| installed.requested).unwrap_or_default(),
        failures: outcome.failures.into_iter().map(Failure::from).collect(),
        warnings: outcome.warnings.into_iter().map(Failure::from).collect(),
        left,
        unknown,
    })
}

/// Tells everybody who wants to know: people first, then scripts.
fn deliver(global: &Global, arguments: &RunArgs, report: &Report) -> anyhow::Result<Exit> {
    report.tell(global.quiet);
    let json = serde_json::to_string(report)?;
    if let Some(file) = &arguments.result {
        Report::write(file, &format!("{json}\n"))?;
    }
    if let Some(file) = &arguments.properties {
        Report::write(file, &report.properties())?;
    }
    match arguments.output.format {
        Format::Json => print_line(&json)?,
        Format::Text => report.id_lines().try_for_each(|line| print_line(&line))?,
    }
    Ok(report.exit)
}
