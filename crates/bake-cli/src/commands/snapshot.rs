use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Instant;

use bake_core::{Region, SnapshotId, Tags};
use bake_engine::{Cancel, StepContext, StepResult};
use cloud_ec2::{Ec2Settings, SnapshotTransfers, UploadSnapshot};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{Format, Global, Output};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::failure::Advice;
use crate::signals;
use crate::terminal::{print_line, tell};

/// Upload a disk into an EBS snapshot, or download one, through the EBS direct API
///
/// No instance is needed. A transfer that was stopped goes on when the same command is given again.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Upload a disk file into a new snapshot
    Upload(UploadArgs),
    /// Download a snapshot to a disk file
    Download(DownloadArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct UploadArgs {
    /// The disk: raw bytes. Nobody may write to it meanwhile
    disk: PathBuf,
    /// A snapshot that the disk is like: only what differs is sent
    #[arg(long, value_name = "SNAPSHOT")]
    parent: Option<String>,
    /// Description of the snapshot
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: String,
    /// A tag of the snapshot (can be repeated)
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    tags: Vec<String>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DownloadArgs {
    /// Its id
    snapshot: String,
    /// File to write; it appears when it is complete
    to: PathBuf,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    output: Output,
}

/// How AWS is reached.
#[derive(Debug, clap::Args)]
struct Reach {
    /// Environment whose settings of the cloud `ec2` are used; the default one if it is left out
    #[arg(short, long, visible_alias = "environment")]
    env: Option<String>,
    /// Region of the snapshot; that of the environment, or of AWS tools here, if it is left out
    #[arg(long)]
    region: Option<String>,
}

pub(crate) async fn run(global: &Global, command: SnapshotCommand) -> anyhow::Result<Exit> {
    let reach = match &command {
        SnapshotCommand::Upload(arguments) => &arguments.reach,
        SnapshotCommand::Download(arguments) => &arguments.reach,
    };
    let transfers = transfers(global, reach)?;
    let region = reach.region.as_deref().map(Region::new);
    let cancel = Cancel::new();
    signals::watch_for(&cancel, "stopping: the same command goes on from here\n")?;
    let cx = StepContext::detached("snapshot", &cancel);
    match command {
        SnapshotCommand::Upload(arguments) => upload(global, &transfers, &cx, region, arguments).await,
        SnapshotCommand::Download(arguments) => download(global, &transfers, &cx, region, arguments).await,
    }
}

fn transfers(global: &Global, reach: &Reach) -> anyhow::Result<SnapshotTransfers> {
    let configuration = Configuration::load(global)?;
    let environment = configuration.environment(reach.env.as_deref())?;
    let settings = match environment.cloud.plugin.as_str() {
        "ec2" => environment.cloud.settings.parse()?,
        // Nothing that the local cloud is set to means anything here.
        _ => Ec2Settings::default(),
    };
    Ok(SnapshotTransfers::new(settings, &configuration.places.ec2()))
}

async fn upload(
    global: &Global,
    transfers: &SnapshotTransfers,
    cx: &StepContext,
    region: Option<Region>,
    arguments: UploadArgs,
) -> anyhow::Result<Exit> {
    let tag = |text: &String| match text.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(Advice::usage(format!("`--tag {text}` has no value")).hint("write `--tag KEY=VALUE`")),
    };
    let tags = arguments.tags.iter().map(tag).collect::<Result<Tags, _>>()?;
    bake_core::check_tags(&tags).map_err(|error| Advice::usage(error.to_string()))?;
    let asked = UploadSnapshot {
        disk: arguments.disk,
        region,
        parent: arguments.parent.map(SnapshotId::new),
        description: arguments.description,
        tags,
    };
    let (bar, begun) = (bar(global), Instant::now());
    let uploaded = transfers.upload(cx, &asked, |done, all| show(&bar, done, all)).await;
    bar.finish_and_clear();
    let uploaded = told(uploaded)?;
    print_line(&match arguments.output.format {
        Format::Json => serde_json::to_string(&uploaded)?,
        Format::Text => format!("{} {} snapshot {}", uploaded.region, uploaded.account, uploaded.id),
    })?;
    if !global.quiet {
        let seconds = begun.elapsed().as_secs_f64();
        tell(&format!("uploaded {} blocks of 512 KiB in {seconds:.1} s\n", uploaded.blocks_sent));
    }
    Ok(Exit::Done)
}

async fn download(
    global: &Global,
    transfers: &SnapshotTransfers,
    cx: &StepContext,
    region: Option<Region>,
    arguments: DownloadArgs,
) -> anyhow::Result<Exit> {
    let (bar, snapshot) = (bar(global), SnapshotId::new(arguments.snapshot));
    let progress = |done, all| show(&bar, done, all);
    let size = transfers.download(cx, &snapshot, region.as_ref(), &arguments.to, progress).await;
    bar.finish_and_clear();
    let size = told(size)?;
    print_line(&match arguments.output.format {
        Format::Json => serde_json::json!({ "file": arguments.to, "size": size }).to_string(),
        Format::Text => format!("{} {size}", arguments.to.display()),
    })?;
    Ok(Exit::Done)
}

/// A stop that the user asked for is told as one.
fn told<T>(outcome: StepResult<T>) -> anyhow::Result<T> {
    outcome.map_err(|error| match error.class() {
        bake_engine::Class::Cancelled => {
            Advice::of(Exit::Cancelled, "stopped").hint("the same command goes on from here").into()
        }
        _ => error.into(),
    })
}

/// A bar of bytes, where somebody looks at it.
fn bar(global: &Global) -> ProgressBar {
    if global.quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("  {bar:40} {binary_bytes} of {binary_total_bytes} ({eta})");
    ProgressBar::new(0).with_style(style.expect("the template is legal"))
}

fn show(bar: &ProgressBar, done: u64, all: u64) {
    bar.set_length(all);
    bar.set_position(done);
}
