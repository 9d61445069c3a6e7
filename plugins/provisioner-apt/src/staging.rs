//! Package files of the host, shown inside the root under names of ours.

use std::os::fd::OwnedFd;
use std::path::Path;

use bake_core::{PackageSpec, Root};
use bake_engine::{Class, Classify, StepError, StepResult};
use bake_linux::{Command, RootPath};

use crate::database;

/// A requested package as apt and the database must be asked about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// By name, and perhaps version.
    Name { name: String, version: Option<String> },
    /// A file that is shown inside, and what stands in it.
    File { place: String, name: String, version: String },
}

impl Wanted {
    /// The word for apt-get's command line.
    pub(crate) fn argument(&self) -> String {
        match self {
            Self::Name { name, version: None } => name.clone(),
            Self::Name { name, version: Some(version) } => format!("{name}={version}"),
            Self::File { place, .. } => place.clone(),
        }
    }

    /// The name to ask the database for.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Name { name, .. } | Self::File { name, .. } => name,
        }
    }

    /// The version it must have.
    pub(crate) fn version(&self) -> Option<&str> {
        match self {
            Self::Name { version, .. } => version.as_deref(),
            Self::File { version, .. } => Some(version),
        }
    }
}

/// Shows the requested files inside and reads their names and versions; other requests pass through.
pub(crate) async fn stage(root: &mut dyn Root, specs: &[PackageSpec]) -> StepResult<Vec<Wanted>> {
    let mut wanted = Vec::new();
    for (number, spec) in specs.iter().enumerate() {
        wanted.push(match spec {
            PackageSpec::Name { name, version } => Wanted::Name { name: name.clone(), version: version.clone() },
            PackageSpec::File { path } => {
                // A name of ours: the file's own may hold anything.
                let place = format!("/run/bake/packages/{number}.deb");
                show(root, path, &place).await?;
                let (name, version) = read_fields(root, path, &place).await?;
                Wanted::File { place, name, version }
            }
        });
    }
    Ok(wanted)
}

/// Shows a file or folder of the host, read-only.
pub(crate) async fn show(root: &mut dyn Root, source: &Path, place: &str) -> StepResult<()> {
    let file = std::fs::File::open(source).map_err(|error| {
        StepError::wrap(Class::Permanent, error).context(format!("cannot open `{}`", source.display()))
    })?;
    root.bind(OwnedFd::from(file), &RootPath::new(place).permanent()?).await.permanent()
}

async fn read_fields(root: &mut dyn Root, path: &Path, place: &str) -> StepResult<(String, String)> {
    let command = Command::new("dpkg-deb").arg("--show").arg("--showformat=${Package}\\t${Version}\\n").arg(place);
    let output = database::ask(root, command).await.map_err(|error| {
        error.context(format!("cannot read the package file `{}`", path.display())).hint("is it complete?")
    })?;
    let fields = output.trim_end().split_once('\t');
    let (name, version) =
        fields.ok_or_else(|| StepError::permanent(format!("`{}` names no package", path.display())))?;
    Ok((name.into(), version.into()))
}
