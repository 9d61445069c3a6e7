//! What every kind of change needs: the settings, the connections, and the folders of this machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bake_core::{Account, Region};
use bake_engine::{Op, Patience, StepError, StepResult, Undone};
use host_disks::Host;
use tokio::sync::OnceCell;

use crate::aws::cache::Cache;
use crate::aws::connection::{Address, Connections, Keys, Place};
use crate::aws::disks::DiskFolder;
use crate::aws::instance::Instance;
use crate::settings::{Ec2Settings, Way};

/// Looks that must all find nothing before something counts as absent.
const LOOKS: u32 = 3;

/// Where this cloud keeps things on this machine.
#[derive(Clone, Debug)]
pub struct Folders {
    /// Disks that bakes work on.
    pub disks: PathBuf,
    /// Bytes of snapshots, which can be fetched again.
    pub cache: PathBuf,
    /// What is noted of uploads without a bake.
    pub uploads: PathBuf,
    /// Where the kernel shows its disks.
    pub host: Host,
}

/// Shared by all kinds of change.
#[derive(Clone)]
pub(crate) struct Ec2(Arc<Inner>);

struct Inner {
    settings: Ec2Settings,
    connections: Connections,
    disks: DiskFolder,
    cache: Cache,
    host: Host,
    metadata: Option<String>,
    instance: OnceCell<Instance>,
}

impl Ec2 {
    pub(crate) fn new(settings: Ec2Settings, folders: &Folders, keys: Option<Keys>) -> Self {
        let metadata = keys.as_ref().and_then(|keys| keys.metadata.clone());
        Self(Arc::new(Inner {
            connections: Connections::new(keys, settings.pace),
            settings,
            disks: DiskFolder::new(&folders.disks),
            cache: Cache::new(&folders.cache),
            host: folders.host.clone(),
            metadata,
            instance: OnceCell::new(),
        }))
    }

    pub(crate) fn settings(&self) -> &Ec2Settings {
        &self.0.settings
    }

    pub(crate) fn disks(&self) -> &DiskFolder {
        &self.0.disks
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.0.cache
    }

    pub(crate) fn host(&self) -> &Host {
        &self.0.host
    }

    /// Returns the instance that this process runs on.
    pub(crate) async fn instance(&self) -> StepResult<&Instance> {
        self.0.instance.get_or_try_init(|| Instance::read(self.0.metadata.as_deref())).await
    }

    /// Returns how often to look at first.
    pub(crate) fn pace(&self) -> Duration {
        self.0.settings.pace
    }

    /// Returns how long to look before something counts as absent: what is new is not known everywhere at once.
    pub(crate) fn patience(&self) -> Patience {
        Patience::new(LOOKS, self.0.settings.patience)
    }

    /// What it means for taking something back that it is not there: what was just made may not be known everywhere yet.
    pub(crate) fn absent(&self, op: &Op) -> Undone {
        let age = jiff::Timestamp::now().duration_since(op.time());
        match Duration::try_from(age) {
            Ok(age) if age > self.0.settings.patience => Undone::Gone,
            _ => Undone::InUse,
        }
    }

    /// Reaches a region in the bake's own account.
    pub(crate) async fn place(&self, region: &Region) -> StepResult<Place> {
        self.0.connections.place(&self.0.settings.way(), Some(region)).await
    }

    /// Reaches the region that bakes are in when nobody names one.
    pub(crate) async fn home(&self, region: Option<&Region>) -> StepResult<Place> {
        let region = region.or(self.0.settings.region.as_ref());
        self.0.connections.place(&self.0.settings.way(), region).await
    }

    /// Reaches a region in an account; the bake's own if none is named.
    pub(crate) async fn place_for(&self, region: &Region, account: Option<&Account>) -> StepResult<Place> {
        let own = self.place(region).await?;
        let Some(account) = account.filter(|account| *account != own.account()) else { return Ok(own) };
        let role = self.0.settings.roles.get(account.as_str()).ok_or_else(|| {
            StepError::permanent(format!("nobody said which role to act as in account {account}"))
                .hint(format!("say so with `plugins.cloud.ec2.roles: {{ \"{account}\": arn:aws:iam::… }}`"))
        })?;
        let way = Way { role: Some(role.clone()), ..self.0.settings.way() };
        let place = self.0.connections.place(&way, Some(region)).await?;
        match place.account() == account {
            true => Ok(place),
            false => Err(StepError::permanent(format!("the role `{role}` is of account {}", place.account()))),
        }
    }

    /// Reaches the place of something that was made.
    pub(crate) async fn place_of(&self, address: &Address) -> StepResult<Place> {
        self.0.connections.place_of(address).await
    }
}
