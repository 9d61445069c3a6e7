use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use bake_config::{Environment, Origin, Text};
use bake_core::{Bake, BaseQuery, Cloud, OnFailure, PackageRequest, Planned, Region, to_take_back};
use bake_engine::{
    Cancel, Engine, EngineOptions, EventSink, Journal, Keep, Mutations, ResourceState, RunId, RunSpec, Verdict,
};
use bake_linux::{PartitionChoice, find_root};
use clap::ValueEnum;
use sha2::{Digest, Sha256};

use crate::cli::{Format, Global, Output};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::failure::{self, Advice};
use crate::places::Places;
use crate::plugins::{self, Overrides};
use crate::progress::{self, Watcher};
use crate::report::{About, Ended, Leftover, Report};
use crate::signals;
use crate::terminal::print_line;
use crate::variables::{self, VariableFlags};

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
    #[arg(short, long, short_alias = 'B', aliases = ["base-ami-name", "base-ami-id"], value_name = "IMAGE")]
    base: Option<String>,
    /// Which of several packages names the image
    #[arg(long, value_name = "PACKAGE")]
    main: Option<String>,
    /// Name of the image, or a template for it
    #[arg(short, long)]
    name: Option<String>,
    #[command(flatten)]
    variables: VariableFlags,
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
    /// Take it back
    Cleanup,
    /// Leave it, and say how to look into it
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
    let mistakes = bake.composition.mistakes(&bake.known, bake.name.as_ref());
    if !mistakes.is_empty() {
        return Err(failure::refused(&mistakes).into());
    }
    let planned = bake.plan().map_err(|mistake| failure::refused(&[mistake]))?;
    let handles = planned.handles.clone();
    let key = request_key(&bake, &environment, &configuration.places, arguments.partition);
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
    let ended =
        carry_out(watcher, &configuration.places, mutations, planned, spec, cancel, arguments.on_failure()).await?;
    let advice = advice(bake.composition.cloud.as_ref(), &id, &ended, arguments.partition).await;
    let about = About { run: &id, environment: &environment.name, request: &bake.request, handles: &handles };
    let report = Report::new(about, ended, begun.elapsed(), advice)?;
    deliver(global, &arguments, &report)
}

impl RunArgs {
    fn on_failure(&self) -> OnFailure {
        match self.on_error {
            OnError::Cleanup if !self.preserve_on_error => OnFailure::TakeBack,
            _ => OnFailure::Keep,
        }
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
    if arguments.result.is_some() && arguments.result == arguments.properties {
        return Err(Advice::usage("`--result` and `--properties` name the same file").into());
    }
    for file in [&arguments.result, &arguments.properties].into_iter().flatten() {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
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
    if arguments.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
        return Err(Advice::usage("the name after `--name` is empty").into());
    }
    let variables = variables::variables(environment, &arguments.variables);
    let known = variables::known(&variables, environment, id.as_str(), started)
        .map_err(|error| Advice::usage(error.to_string()))?;
    let name = arguments.name.clone().map(|text| Text { text, origin: Origin::named("--name") });
    let base = BaseQuery { wanted: arguments.base.clone(), region: arguments.region.as_deref().map(Region::from) };
    Ok(Bake { composition, base, request, known, name, steps: environment.steps.clone() })
}

/// What was asked for, as a hash: the same request of the same installation, whenever it is made and whoever makes it.
fn request_key(bake: &Bake, environment: &Environment, places: &Places, partition: Option<u32>) -> String {
    let asked = serde_json::json!({
        "environment": environment.to_json(), "packages": bake.request, "base": bake.base,
        "name": bake.name.as_ref().map(|name| &name.text), "partition": partition, "journal": places.journal(),
    });
    let digest = Sha256::digest(asked.to_string().as_bytes());
    digest[..10].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs the plan, takes back what must not stay, and closes the run in the journal. Returns what is left, kept or not.
async fn carry_out(
    watcher: Watcher,
    places: &Places,
    mutations: Mutations,
    planned: Planned,
    spec: RunSpec,
    cancel: Cancel,
    on_failure: OnFailure,
) -> anyhow::Result<Ended> {
    let id = spec.id.clone();
    let journal = places.open_journal()?;
    let (sink, events) = EventSink::channel();
    let watching = tokio::spawn(progress::watch(events, watcher));
    let engine = Engine::new(journal.clone(), Arc::new(mutations), EngineOptions::default(), sink);

    let outcome = engine.run(planned.plan, spec, cancel.clone()).await?;
    let images = planned.handles.images_made(&outcome)?;
    let left = match to_take_back(outcome.verdict, &images, on_failure) {
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

/// What a failed run keeps because the user wants to look into it.
fn kept(journal: &Journal, id: &RunId) -> anyhow::Result<Vec<Leftover>> {
    let there = |state| matches!(state, ResourceState::Accepted | ResourceState::Done | ResourceState::Unknown);
    let resources = journal.resources(id)?.into_iter();
    let kept = resources.filter(|made| made.keep != Keep::NothingToUndo && there(made.state));
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

/// Tells everybody who wants to know: people first, then scripts.
///
/// What was baked was baked: that somebody could not be told is an error to show, and no other end.
fn deliver(global: &Global, arguments: &RunArgs, report: &Report) -> anyhow::Result<Exit> {
    report.tell(global.quiet);
    let json = serde_json::to_string(report)?;
    let printed = match arguments.output.format {
        Format::Json => print_line(&json),
        Format::Text => report.id_lines().try_for_each(|line| print_line(&line)),
    };
    let told = [
        printed.context("cannot write to standard output"),
        arguments.result.as_deref().map_or(Ok(()), |file| Report::write(file, &format!("{json}\n"))),
        arguments.properties.as_deref().map_or(Ok(()), |file| Report::write(file, &report.properties())),
    ];
    for error in told.into_iter().filter_map(Result::err) {
        failure::print(&error, report.exit);
    }
    Ok(report.exit)
}
