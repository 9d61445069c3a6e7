//! What a bake is asked for: by a command line now, by a file later, by the journal when a run is resumed.

use std::path::PathBuf;

use anyhow::Context;
use bake_core::PackageRequest;
use serde::{Deserialize, Serialize};

use crate::failure::Advice;
use crate::variables::VariableFlags;

/// The options of everything that bakes, plans a bake or draws one.
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// What to install: a name, `name=version`, or the path of a package file
    #[arg(value_name = "PACKAGE")]
    pub(crate) packages: Vec<String>,
    /// Environment to bake in; the default one if it is left out
    #[arg(short, long, visible_alias = "environment")]
    pub(crate) env: Option<String>,
    /// Base image: its name or its id
    #[arg(short, long, short_alias = 'B', aliases = ["base-ami-name", "base-ami-id"], value_name = "IMAGE")]
    pub(crate) base: Option<String>,
    /// Which of several packages names the image
    #[arg(long, value_name = "PACKAGE")]
    pub(crate) main: Option<String>,
    /// Name of the image, or a template for it
    #[arg(short, long)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) variables: VariableFlags,
    /// Region to bake in
    #[arg(short, long)]
    pub(crate) region: Option<String>,
    /// Number of the root's partition
    #[arg(long, value_name = "NUMBER")]
    pub(crate) partition: Option<u32>,
    /// Where it was asked: environments and package files are looked for from there.
    #[arg(skip)]
    pub(crate) folder: PathBuf,
}

impl Asked {
    /// Notes where it was asked.
    pub(crate) fn here(mut self) -> anyhow::Result<Self> {
        self.folder = std::env::current_dir().context("cannot tell the working directory")?;
        Ok(self)
    }

    /// Reads the packages.
    pub(crate) fn request(&self) -> anyhow::Result<PackageRequest> {
        PackageRequest::parse(&self.packages, self.main.as_deref(), &self.folder).map_err(|error| {
            let advice = Advice::usage(error.to_string()).maybe_hint(error.hint());
            match std::error::Error::source(&error).map(ToString::to_string) {
                Some(source) => anyhow::anyhow!(source).context(advice),
                None => advice.into(),
            }
        })
    }
}
