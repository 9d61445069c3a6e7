//! `apt`: installs Debian packages with the root's own `apt-get`, then asks the root's own package database.
//!
//! Start with [`Apt`]; [`Apt::install`](bake_core::Provisioner::install) is the recipe. Everything that apt needs for
//! this bake alone (lists, sources, its configuration, package files from the host) stands below `/run/bake`, in the tmpfs
//! that the sandbox shows to programs there: none of it is ever written to the image.

mod configuration;
mod database;
mod failure;
mod repository;
mod staging;

use std::time::Duration;

use async_trait::async_trait;
use bake_config::{Built, ConfigErrors, PluginInfo, PluginKind, Setting, Settings, Takes};
use bake_core::{Architecture, Installed, PackageChanges, PackageRequest, PackageSpec, Provisioner, Root};
use bake_engine::{Class, StepContext, StepError, StepResult};
use bake_linux::Command;
use serde::Deserialize;

use crate::failure::Transcript;
use crate::repository::Repository;
use crate::staging::Wanted;

/// What may be written about this plugin in `environments.yaml`.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::Provisioner,
    name: "apt",
    version: env!("CARGO_PKG_VERSION"),
    summary: "Installs Debian packages with the root's own apt-get",
    stage: None,
    settings: &[
        Setting {
            name: "repositories",
            takes: Takes::List(&Takes::Secret),
            default: Some("[]"),
            summary: "Further repositories, for the bake only: lines as in sources.list; `file:` folders are the host's",
        },
        Setting {
            name: "own_sources",
            takes: Takes::Boolean,
            default: Some("true"),
            summary: "Whether the root's own sources are used too",
        },
        Setting {
            name: "recommends",
            takes: Takes::Boolean,
            default: None,
            summary: "Whether recommended packages are installed; without it the root's own apt configuration decides",
        },
        Setting {
            name: "time_limit",
            takes: Takes::Duration,
            default: Some("30m"),
            summary: "How long one run of apt-get may take",
        },
    ],
    usual: &[],
    built: Built::Yes,
};

/// The settings of [`INFO`], read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AptSettings {
    repositories: Vec<String>,
    own_sources: bool,
    recommends: Option<bool>,
    time_limit: Duration,
}

impl Default for AptSettings {
    fn default() -> Self {
        // Long enough for a large set over a slow mirror; short enough that a question nobody can answer ends in one shift.
        Self { repositories: vec![], own_sources: true, recommends: None, time_limit: Duration::from_secs(30 * 60) }
    }
}

/// Installs Debian packages.
#[derive(Debug)]
pub struct Apt {
    settings: AptSettings,
    repositories: Vec<Repository>,
}

impl Apt {
    /// Reads the settings of an environment.
    pub fn build(settings: &Settings) -> Result<Self, AptError> {
        Self::new(settings.parse()?)
    }

    /// Makes a provisioner; refuses a repository line that apt would not understand.
    pub fn new(settings: AptSettings) -> Result<Self, AptError> {
        let repositories =
            settings.repositories.iter().map(|line| Repository::parse(line)).collect::<Result<_, _>>()?;
        Ok(Self { settings, repositories })
    }
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AptError {
    /// A setting is written wrongly.
    #[error(transparent)]
    Settings(#[from] ConfigErrors),
    /// A line of `repositories` is none.
    #[error("`{line}` is no repository: {reason}")]
    Repository {
        /// As written.
        line: String,
        /// What is wrong.
        reason: &'static str,
    },
}

#[async_trait]
impl Provisioner for Apt {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn accepts(&self, spec: &PackageSpec) -> Result<(), String> {
        match spec {
            PackageSpec::File { path } if path.extension().is_some_and(|extension| extension == "rpm") => {
                Err(format!("`{spec}` is an RPM package, and `apt` installs Debian packages"))
            }
            _ => Ok(()),
        }
    }

    async fn install(
        &self,
        cx: StepContext,
        root: &mut dyn Root,
        request: &PackageRequest,
        _architecture: &Architecture,
    ) -> StepResult<Installed> {
        tokio::select! {
            installed = self.install_all(&cx, root, request) => installed,
            // Dropping the work ends the program that runs in the root, and everything that it started.
            () = cx.cancelled() => Err(StepError::cancelled()),
        }
    }
}

impl Apt {
    async fn install_all(
        &self,
        cx: &StepContext,
        root: &mut dyn Root,
        request: &PackageRequest,
    ) -> StepResult<Installed> {
        let before = database::packages(root).await?;
        configuration::write(root, &self.settings, &self.repositories).await?;
        let wanted = staging::stage(root, &request.packages).await?;

        self.run(cx, root, apt_get("update")).await?;
        let names = wanted.iter().map(Wanted::argument);
        self.run(cx, root, apt_get("install").arg("--yes").arg("--").args(names)).await?;

        let after = database::packages(root).await?;
        database::refuse_half_installed(&before, &after)?;
        let requested = database::find_all(&after, &wanted)?;
        let main = requested[request.main].clone();
        Ok(Installed { requested, main, changes: PackageChanges::between(&before.installed(), &after.installed()) })
    }

    /// Runs one `apt-get`, its output a line at a time in the step's log and its end in the error.
    async fn run(&self, cx: &StepContext, root: &mut dyn Root, command: Command) -> StepResult<()> {
        let command = command.time_limit(self.settings.time_limit);
        let title = command.display();
        cx.log(&format!("$ {title}"));
        let mut transcript = Transcript::new(cx.clone());
        let outcome = root.run(command, &mut transcript).await;
        let lines = transcript.finish();
        match outcome {
            Ok(outcome) if outcome.success() && !failure::index_failed(&lines) => Ok(()),
            Ok(outcome) => Err(failure::explain(&title, &outcome, lines, root.space().await.ok())),
            Err(error) => Err(StepError::wrap(Class::Permanent, error).details(lines)),
        }
    }
}

/// An `apt-get` that asks nothing and takes its configuration from this bake's file.
fn apt_get(action: &str) -> Command {
    Command::new("apt-get")
        .arg(action)
        .env("APT_CONFIG", configuration::FILE)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("DEBCONF_NONINTERACTIVE_SEEN", "true")
        .env("UCF_FORCE_CONFFOLD", "1")
        .env("NEEDRESTART_SUSPEND", "1")
        .env("APT_LISTCHANGES_FRONTEND", "none")
}
