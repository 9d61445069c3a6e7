use std::path::PathBuf;

use bake_config::ByteSize;
use bake_core::{Architecture, Region};
use cloud_local::{BaseRecord, DebianOptions, DiskFormat, ImportOptions, Progress, Store};

use crate::cli::{Format, Global, Output};
use crate::commands::image::ExportFormat;
use crate::configuration::Configuration;
use crate::failure::Advice;
use crate::terminal::{print_line, tell};

/// List, make and import base images of the local cloud
#[derive(Debug, clap::Subcommand)]
pub(crate) enum BaseCommand {
    /// List the base images
    List {
        #[command(flatten)]
        region: RegionArgs,
        #[command(flatten)]
        output: Output,
    },
    /// Make a base image from a distribution's packages
    #[command(subcommand)]
    Create(CreateCommand),
    /// Take a disk file as a base image
    Import(ImportArgs),
    /// Remove a base image
    Rm {
        /// Its name or id
        base: String,
        #[command(flatten)]
        region: RegionArgs,
        #[command(flatten)]
        output: Output,
    },
}

/// Which part of the store is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct RegionArgs {
    /// Region of the local cloud
    #[arg(short, long, default_value = "local")]
    region: String,
}

impl RegionArgs {
    pub(crate) fn region(&self) -> Region {
        Region::new(self.region.as_str())
    }
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum CreateCommand {
    /// Make a small Debian, from the mirrors that this machine uses
    Debian(DebianArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct DebianArgs {
    /// Release of Debian
    #[arg(long, default_value = "bookworm")]
    suite: String,
    /// Name of the base image [default: debian-SUITE]
    #[arg(long)]
    name: Option<String>,
    /// Size of its disk; what is not used takes no room
    #[arg(long, default_value = "8GiB")]
    size: ByteSize,
    /// Further packages to put in (can be repeated)
    #[arg(long, value_name = "PACKAGE")]
    include: Vec<String>,
    #[command(flatten)]
    region: RegionArgs,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// Disk file: raw or qcow2
    file: PathBuf,
    /// Name of the base image
    #[arg(long)]
    name: String,
    /// What the file is; found out from its first bytes if it is left out
    #[arg(long, value_enum, value_name = "FORMAT")]
    disk_format: Option<ExportFormat>,
    /// SHA-256 checksum that the file must have
    #[arg(long, value_name = "SHA256")]
    checksum: Option<String>,
    /// Architecture that the disk is for; this machine's if it is left out
    #[arg(long)]
    arch: Option<String>,
    #[command(flatten)]
    region: RegionArgs,
    #[command(flatten)]
    output: Output,
}

pub(crate) async fn run(global: &Global, command: BaseCommand) -> anyhow::Result<()> {
    let places = Configuration::load(global)?.places;
    if matches!(command, BaseCommand::Create(_) | BaseCommand::Import(_)) {
        // Before the store makes them: its folders are root's alone, and these are not.
        places.make()?;
    }
    let store = Store::open(places.store())?;
    match command {
        BaseCommand::List { region, output } => {
            for base in store.bases(&region.region())? {
                print(output, &base)?;
            }
            Ok(())
        }
        BaseCommand::Create(CreateCommand::Debian(arguments)) => create_debian(global, &store, arguments).await,
        BaseCommand::Import(arguments) => import(global, &store, arguments).await,
        BaseCommand::Rm { base, region, output } => print(output, &store.remove_base(&region.region(), &base)?),
    }
}

/// Opens the local cloud's store where the configuration says.
pub(crate) fn open_store(global: &Global) -> anyhow::Result<Store> {
    Ok(Store::open(Configuration::load(global)?.places.store())?)
}

async fn create_debian(global: &Global, store: &Store, arguments: DebianArgs) -> anyhow::Result<()> {
    let options = DebianOptions {
        name: arguments.name,
        size: arguments.size.0,
        include: arguments.include,
        ..DebianOptions::new(arguments.suite)
    };
    let listen = listener(global);
    let region = arguments.region.region();
    let base = until_interrupted(store.create_debian(&region, &options, &listen)).await??;
    print(arguments.output, &base)
}

async fn import(global: &Global, store: &Store, arguments: ImportArgs) -> anyhow::Result<()> {
    let options = ImportOptions {
        file: arguments.file,
        format: arguments.disk_format.map(DiskFormat::from),
        name: arguments.name,
        checksum: arguments.checksum,
        architecture: arguments.arch.map_or_else(Architecture::of_this_machine, Architecture::new),
    };
    let listen = listener(global);
    let region = arguments.region.region();
    let base = until_interrupted(store.import(&region, &options, &listen)).await??;
    print(arguments.output, &base)
}

/// Ends the work when the user asks for it; dropping its future takes everything back.
pub(crate) async fn until_interrupted<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    use crate::exit::Exit;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        done = work => Ok(done),
        _ = tokio::signal::ctrl_c() => Err(Advice::of(Exit::Cancelled, "interrupted; nothing is left of it").into()),
        _ = terminate.recv() => Err(Advice::of(Exit::Cancelled, "terminated; nothing is left of it").into()),
    }
}

/// Tells on standard error how far the work is.
fn listener(global: &Global) -> impl Fn(Progress<'_>) + Send + Sync + use<> {
    let (quiet, verbose) = (global.quiet, global.verbose > 0);
    move |progress| match progress {
        Progress::Doing(what) if !quiet => tell(&format!("  {what}\n")),
        Progress::Line(line) if verbose => tell(&format!("    {line}\n")),
        _ => {}
    }
}

fn print(output: Output, base: &BaseRecord) -> anyhow::Result<()> {
    print_line(&match output.format {
        Format::Json => serde_json::to_string(base)?,
        Format::Text => {
            let created = base.created.strftime("%Y-%m-%d %H:%M");
            format!(
                "{} {:<24} {:>8} {} {created} {}",
                base.id,
                base.name,
                ByteSize(base.size),
                base.architecture,
                base.source
            )
        }
    })
}
