use std::path::PathBuf;

use bake_config::ByteSize;
use clap::ValueEnum;
use cloud_local::{DiskFormat, IfThere, ImageRecord};

use crate::cli::{Format, Global, Output};
use crate::commands::base::{RegionArgs, open_store, until_interrupted};
use crate::terminal::{plain, print_line};

/// List, show, export and remove images of the local cloud
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ImageCommand {
    /// List the images, the newest first
    List {
        #[command(flatten)]
        region: RegionArgs,
        #[command(flatten)]
        output: Output,
    },
    /// Show all that is known of an image
    Show {
        /// Its name or id
        image: String,
        #[command(flatten)]
        region: RegionArgs,
        #[command(flatten)]
        output: Output,
    },
    /// Write an image's disk to a file
    Export(ExportArgs),
    /// Remove an image, and its snapshot if nothing else uses that
    Rm {
        /// Its name or id
        image: String,
        #[command(flatten)]
        region: RegionArgs,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Its name or id
    image: String,
    /// What to write: raw bytes or qcow2
    #[arg(long = "format", value_enum, default_value_t = ExportFormat::Raw, value_name = "FORMAT")]
    format: ExportFormat,
    /// File to write; it appears when it is complete [default: NAME.raw or NAME.qcow2 here]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    region: RegionArgs,
}

/// How a disk is kept in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// The bytes of the disk, empty ranges as holes
    Raw,
    /// QEMU's format
    Qcow2,
}

impl From<ExportFormat> for DiskFormat {
    fn from(format: ExportFormat) -> Self {
        match format {
            ExportFormat::Raw => Self::Raw,
            ExportFormat::Qcow2 => Self::Qcow2,
        }
    }
}

pub(crate) async fn run(global: &Global, command: ImageCommand) -> anyhow::Result<()> {
    let store = open_store(global)?;
    match command {
        ImageCommand::List { region, output } => {
            store.images(&region.region())?.iter().try_for_each(|image| print_row(output, image))
        }
        ImageCommand::Show { image, region, output } => print_whole(output, &store.image(&region.region(), &image)?),
        ImageCommand::Rm { image, region, output } => print_row(output, &store.remove_image(&region.region(), &image)?),
        ImageCommand::Export(arguments) => {
            let region = arguments.region.region();
            let image = store.image(&region, &arguments.image)?;
            let to = arguments.to.unwrap_or_else(|| default_file(&image, arguments.format));
            let if_there = if arguments.force { IfThere::Replace } else { IfThere::Refuse };
            let exporting = store.export(&region, &image.id, arguments.format.into(), &to, if_there);
            until_interrupted(exporting).await??;
            print_line(&to.display().to_string())
        }
    }
}

fn default_file(image: &ImageRecord, format: ExportFormat) -> PathBuf {
    let ending = match format {
        ExportFormat::Raw => "raw",
        ExportFormat::Qcow2 => "qcow2",
    };
    format!("{}.{ending}", image.name.replace('/', "_")).into()
}

fn print_row(output: Output, image: &ImageRecord) -> anyhow::Result<()> {
    print_line(&match output.format {
        Format::Json => serde_json::to_string(image)?,
        Format::Text => {
            let created = image.created.strftime("%Y-%m-%d %H:%M");
            format!("{} {created} {:>8} {}", image.id, ByteSize(image.size), image.name)
        }
    })
}

fn print_whole(output: Output, image: &ImageRecord) -> anyhow::Result<()> {
    if output.format == Format::Json {
        return print_line(&serde_json::to_string(image)?);
    }
    let facts = [
        ("id", image.id.clone()),
        ("name", image.name.clone()),
        ("description", image.description.clone()),
        ("created", image.created.to_string()),
        ("architecture", image.architecture.to_string()),
        ("size", ByteSize(image.size).to_string()),
        ("base", image.base.clone()),
        ("snapshot", image.snapshot.clone()),
    ];
    for (name, value) in facts {
        print_line(&format!("{name}: {}", plain(&value)))?;
    }
    for package in &image.packages {
        print_line(&format!(
            "package: {} {}-{} {}",
            package.name, package.version, package.release, package.architecture
        ))?;
    }
    image.tags.iter().try_for_each(|(key, value)| print_line(&format!("tag {}: {}", plain(key), plain(value))))
}
