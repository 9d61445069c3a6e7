//! `linux`: a Linux root on a disk, opened in a sandbox.
//!
//! Start with [`LinuxVolumes`]. All the work is done by `bake-linux`; this crate is its face towards the domain.

mod identity;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use async_trait::async_trait;
use bake_config::{Built, ConfigErrors, PluginInfo, PluginKind, Setting, Settings, Takes};
use bake_core::{Disk, OpenVolume, Root, Volumes};
use bake_engine::{Classify, StepContext, StepError, StepResult};
use bake_linux::{
    Command, Filesystem, OpenOptions, Outcome, OutputSink, PartitionChoice, RootError, RootPath, RunError, Sandbox,
    SandboxOptions, SealOptions, Space,
};
use serde::Deserialize;

use crate::identity::MachineIdentity;

/// What may be written about this plugin in `environments.yaml`.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::Volume,
    name: "linux",
    version: env!("CARGO_PKG_VERSION"),
    summary: "Finds the Linux root on a disk, checks it, mounts it in a sandbox, and seals it",
    stage: None,
    settings: &[
        Setting {
            name: "partition",
            takes: Takes::Integer,
            default: None,
            summary: "Number of the root's partition, where the disk has more than one that could be it",
        },
        Setting {
            name: "resolv_conf",
            takes: Takes::Text,
            default: Some("/etc/resolv.conf"),
            summary: "File of the host that names its name servers; shown to programs in the root, never kept in the image",
        },
    ],
    usual: &[],
    built: Built::Yes,
};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LinuxSettings {
    partition: Option<u32>,
    resolv_conf: PathBuf,
}

impl Default for LinuxSettings {
    fn default() -> Self {
        Self { partition: None, resolv_conf: "/etc/resolv.conf".into() }
    }
}

/// Opens Linux roots.
#[derive(Debug, Default)]
pub struct LinuxVolumes {
    settings: LinuxSettings,
}

impl LinuxVolumes {
    /// Reads the settings of an environment.
    pub fn build(settings: &Settings) -> Result<Self, ConfigErrors> {
        Ok(Self { settings: settings.parse()? })
    }

    /// Takes the root's partition by number, instead of the only one there is.
    #[must_use]
    pub fn with_partition(mut self, number: u32) -> Self {
        self.settings.partition = Some(number);
        self
    }

    /// How this environment's roots are opened.
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions {
            partition: self.settings.partition.map_or(PartitionChoice::OnlyRoot, PartitionChoice::Number),
            // A host without the file has no name servers to offer; programs inside then see an empty one.
            resolv_conf: Some(std::fs::read(&self.settings.resolv_conf).unwrap_or_default()),
            block_service_starts: true,
        }
    }
}

#[async_trait]
impl Volumes for LinuxVolumes {
    fn name(&self) -> &'static str {
        INFO.name
    }

    async fn open(&self, cx: StepContext, disk: Disk) -> StepResult<Box<dyn OpenVolume>> {
        let sandbox = Sandbox::start(SandboxOptions::default()).await.map_err(|error| {
            let hint = error.hint();
            let error = StepError::permanent("cannot start the sandbox").because(error);
            hint.into_iter().fold(error, StepError::hint)
        })?;
        let opening = sandbox.open(disk.file, self.open_options());
        let root = tokio::select! {
            root = opening => root.map_err(|error| explain(error, &disk.path))?,
            // Dropping the sandbox ends it, with its loop device and its mounts.
            () = cx.cancelled() => return Err(StepError::cancelled()),
        };
        let filesystem = root.filesystem();
        cx.log(&match filesystem.partition {
            Some(number) => format!("root: {} on partition {number} of `{}`", filesystem.kind, disk.path.display()),
            None => format!("root: {} on the whole of `{}`", filesystem.kind, disk.path.display()),
        });
        let mut root = SandboxRoot(root);
        let identity = MachineIdentity::of(&mut root).await?;
        Ok(Box::new(LinuxVolume { root, identity }))
    }
}

fn explain(error: bake_linux::OpenError, disk: &std::path::Path) -> StepError {
    use bake_linux::{LayoutError, OpenError};
    let hint = match &error {
        OpenError::Layout(LayoutError::Ambiguous { .. }) => Some("say which one with `--partition NUMBER`".to_owned()),
        error => error.hint(),
    };
    let error = StepError::permanent(format!("cannot open the root on `{}`", disk.display())).because(error);
    hint.into_iter().fold(error, StepError::hint)
}

struct LinuxVolume {
    root: SandboxRoot,
    /// What the base had.
    identity: MachineIdentity,
}

#[async_trait]
impl OpenVolume for LinuxVolume {
    fn root(&mut self) -> &mut dyn Root {
        &mut self.root
    }

    async fn seal(mut self: Box<Self>, cx: StepContext) -> StepResult<Vec<String>> {
        self.identity.forget_new(&mut self.root, &cx).await?;
        let sealed = self.root.0.seal(SealOptions::default()).await.permanent()?;
        if let bake_linux::Check::Skipped(reason) = &sealed.check {
            cx.log(&format!("the filesystem was not checked: {reason}"));
        }
        for holder in &sealed.ended {
            cx.log(&format!("ended {holder}, which a package had started"));
        }
        Ok(sealed.ended.iter().map(ToString::to_string).collect())
    }

    async fn discard(self: Box<Self>) -> StepResult<()> {
        self.root.0.abandon().await.permanent()
    }
}

struct SandboxRoot(bake_linux::Root);

#[async_trait]
impl Root for SandboxRoot {
    fn filesystem(&self) -> &Filesystem {
        self.0.filesystem()
    }

    async fn run(&mut self, command: Command, output: &mut (dyn OutputSink + Send)) -> Result<Outcome, RunError> {
        self.0.run(command, output).await
    }

    async fn read(&mut self, path: &RootPath) -> Result<Option<Vec<u8>>, RootError> {
        match self.0.read(path).await {
            Err(RootError::NotFound { .. }) => Ok(None),
            content => content.map(Some),
        }
    }

    async fn write(&mut self, path: &RootPath, content: &[u8], mode: u32) -> Result<(), RootError> {
        self.0.write(path, content, mode).await
    }

    async fn bind(&mut self, source: OwnedFd, at: &RootPath) -> Result<(), RootError> {
        self.0.bind(source, at).await
    }

    async fn space(&mut self) -> Result<Space, RootError> {
        self.0.space().await
    }
}

impl SandboxRoot {
    async fn remove(&mut self, path: &RootPath) -> Result<u64, RootError> {
        self.0.remove(path).await
    }
}
