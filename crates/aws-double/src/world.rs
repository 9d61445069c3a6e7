//! What there is: accounts, regions, images, snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::answer::Refusal;
use crate::blocks::{BLOCK, Blocks};
use crate::clock::Delays;
use crate::machine::{Machine, Shown};

/// The volume of snapshots that were taken of none.
const NO_VOLUME: &str = "vol-ffffffff";

/// Tags of a resource.
pub(crate) type Tags = BTreeMap<String, String>;

/// Everything.
#[derive(Debug, Default)]
pub(crate) struct World {
    /// Accounts by access key.
    pub(crate) keys: BTreeMap<String, String>,
    /// Accounts by the ARN of a role that may be assumed.
    pub(crate) roles: BTreeMap<String, String>,
    /// Values by region and name of a parameter.
    pub(crate) parameters: BTreeMap<(String, String), String>,
    pub(crate) regions: BTreeMap<String, Space>,
    /// Regions that encrypt by default.
    pub(crate) encrypting: BTreeSet<String>,
    pub(crate) delays: Delays,
    pub(crate) machines: Vec<Machine>,
    made: u64,
}

/// A region.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub(crate) images: BTreeMap<String, Image>,
    pub(crate) snapshots: BTreeMap<String, Snapshot>,
    pub(crate) volumes: BTreeMap<String, Volume>,
}

/// An AMI.
#[derive(Clone, Debug)]
pub struct Image {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub owner: String,
    /// Its name.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// `x86_64`, `arm64`.
    pub architecture: String,
    /// What the root disk is called.
    pub root_device: String,
    /// Its disks.
    pub disks: Vec<Disk>,
    /// `hvm`.
    pub virtualization: String,
    /// Elastic network adapter.
    pub ena: bool,
    /// SR-IOV: `simple`.
    pub sriov: Option<String>,
    /// Firmware.
    pub boot_mode: Option<String>,
    /// Trusted platform module.
    pub tpm: Option<String>,
    /// Instance metadata service.
    pub imds: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Accounts that may launch it.
    pub launch: BTreeSet<String>,
    /// Whether everybody may.
    pub public: bool,
    /// Region and id of the image that it is a copy of.
    pub source: Option<(String, String)>,
    /// When others do not see it any more.
    pub deprecated: Option<String>,
    /// `disabled`, or what keeps it from being deregistered.
    pub protection: String,
    pub(crate) created: Timestamp,
    pub(crate) ready: Instant,
    pub(crate) visible: Instant,
    pub(crate) failed: Option<String>,
    pub(crate) deregistered: bool,
    pub(crate) token: Option<(String, String)>,
}

/// A disk of an AMI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// What it is called.
    pub device: String,
    /// The snapshot that it is made of.
    pub snapshot: String,
    /// Its size in GiB.
    pub size: u32,
    /// Its type.
    pub kind: String,
    /// Operations per second.
    pub iops: Option<u32>,
    /// MiB per second.
    pub throughput: Option<u32>,
    /// Whether it goes with the machine.
    pub delete_on_termination: bool,
    /// Whether its bytes are encrypted.
    pub encrypted: bool,
}

/// A snapshot.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub owner: String,
    /// The volume that it was taken of; `vol-ffffffff` if it was uploaded or copied.
    pub volume: String,
    /// The size of its volume in GiB.
    pub size: u32,
    /// For people.
    pub description: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Accounts that may make volumes and copies of it.
    pub volumes: BTreeSet<String>,
    /// Whether its bytes are encrypted.
    pub encrypted: bool,
    /// With which key.
    pub key: Option<String>,
    pub(crate) stage: Stage,
    pub(crate) created: Timestamp,
    pub(crate) begun: Instant,
    pub(crate) visible: Instant,
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) token: Option<(String, String)>,
    /// What fails it when it is complete: a fault.
    pub(crate) doomed: Option<String>,
}

/// A volume.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub owner: String,
    /// Where it is: `us-east-1a`.
    pub zone: String,
    /// Its size in GiB.
    pub size: u32,
    /// Its type.
    pub kind: String,
    /// The snapshot that it began with.
    pub snapshot: Option<String>,
    /// Whether its bytes are encrypted.
    pub encrypted: bool,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Where it is attached.
    pub attachment: Option<Attachment>,
    pub(crate) created: Timestamp,
    pub(crate) ready: Instant,
    pub(crate) visible: Instant,
    pub(crate) failed: bool,
    pub(crate) token: Option<(String, String)>,
    /// The bytes that it began with.
    pub(crate) origin: Option<Arc<Blocks>>,
    /// Its bytes, once a machine had it.
    pub(crate) file: Option<PathBuf>,
}

/// A volume as a disk of a machine.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// The machine.
    pub machine: String,
    /// The device name that was asked for.
    pub device: String,
    /// When it is attached; never, if it hangs.
    pub(crate) ready: Option<Instant>,
    /// When it may be gone, if somebody asked for that.
    pub(crate) detached: Option<Instant>,
    /// The disk that the machine has.
    pub(crate) shown: Option<Arc<Shown>>,
}

/// How far a snapshot is.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Blocks are written to it.
    Writing,
    /// It is complete, or has failed, from this moment on.
    Ended { at: Instant, failure: Option<String> },
}

/// What a base image is like that a test begins with.
#[derive(Clone, Debug)]
pub struct SeedImage {
    /// Its name.
    pub name: String,
    /// Its root snapshot.
    pub snapshot: String,
    /// `x86_64`, `arm64`.
    pub architecture: String,
    /// What the root disk is called.
    pub root_device: String,
    /// Firmware.
    pub boot_mode: Option<String>,
    /// Instance metadata service.
    pub imds: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Whether everybody may launch and copy it.
    pub public: bool,
}

impl SeedImage {
    /// An image for machines of today.
    pub fn new(name: &str, snapshot: &str) -> Self {
        Self {
            name: name.into(),
            snapshot: snapshot.into(),
            architecture: "x86_64".into(),
            root_device: "/dev/xvda".into(),
            boot_mode: Some("uefi-preferred".into()),
            imds: Some("v2.0".into()),
            tags: BTreeMap::new(),
            public: false,
        }
    }
}

impl Image {
    /// Tells whether an account may launch and copy it.
    pub(crate) fn is_for(&self, account: &str) -> bool {
        self.public || self.owner == account || self.launch.contains(account)
    }

    /// Returns the state that calls show.
    pub fn state(&self) -> &'static str {
        match &self.failed {
            _ if self.deregistered => "deregistered",
            _ if Instant::now() < self.ready => "pending",
            Some(_) => "failed",
            None => "available",
        }
    }
}

impl Volume {
    /// Returns the state that calls show.
    pub fn state(&self) -> &'static str {
        match self {
            Self { failed: true, .. } => "error",
            Self { ready, .. } if Instant::now() < *ready => "creating",
            Self { attachment: Some(_), .. } => "in-use",
            _ => "available",
        }
    }
}

impl Attachment {
    /// Returns the state that calls show.
    pub fn state(&self) -> &'static str {
        match (self.detached, self.ready) {
            (Some(_), _) => "detaching",
            (None, Some(ready)) if ready <= Instant::now() => "attached",
            _ => "attaching",
        }
    }
}

impl Snapshot {
    /// A snapshot that begins now and that nobody has described: what holds for each, however it is made.
    pub(crate) fn new(id: String, owner: &str, size: u32, blocks: Blocks, delays: &Delays) -> Self {
        let now = Instant::now();
        Self {
            id,
            owner: owner.into(),
            volume: NO_VOLUME.into(),
            size,
            description: None,
            tags: Tags::new(),
            volumes: BTreeSet::new(),
            encrypted: false,
            key: None,
            stage: Stage::Writing,
            created: Timestamp::now(),
            begun: now,
            visible: now + delays.visibility,
            blocks: Arc::new(blocks),
            token: None,
            doomed: None,
        }
    }

    /// Returns the state that calls show, and why it failed.
    pub fn state(&self) -> (&'static str, Option<String>) {
        match &self.stage {
            Stage::Ended { at, failure } if Instant::now() >= *at => match failure {
                Some(reason) => ("error", Some(reason.clone())),
                None => ("completed", None),
            },
            Stage::Writing | Stage::Ended { .. } => ("pending", None),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.state().0 == "completed"
    }
}

impl World {
    /// Makes an id as AWS makes them, the same ones in each run.
    pub(crate) fn id(&mut self, prefix: &str) -> String {
        self.made += 1;
        let digest = Sha256::digest(self.made.to_be_bytes());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{prefix}-0{}", &hex[..16])
    }

    /// Returns a region; it has to be one that was declared.
    pub(crate) fn space(&mut self, region: &str) -> Result<&mut Space, Refusal> {
        let unknown = || Refusal::new("InvalidEndpoint", format!("There is no region {region}"));
        self.regions.get_mut(region).ok_or_else(unknown)
    }

    /// Puts the bytes of a file into a new snapshot.
    pub(crate) fn seed_snapshot(&mut self, owner: &str, region: &str, disk: &Path) -> io::Result<String> {
        let blocks = Blocks::new(None)?;
        let bytes = std::fs::File::open(disk)?;
        let length = bytes.metadata()?.len();
        let (mut buffer, zeros) = (vec![0; BLOCK], vec![0; BLOCK]);
        for index in 0..u32::try_from(length.div_ceil(BLOCK as u64)).expect("a disk of a test is small") {
            let start = u64::from(index) * BLOCK as u64;
            let there = usize::try_from((length - start).min(BLOCK as u64)).expect("a block is small");
            std::os::unix::fs::FileExt::read_exact_at(&bytes, &mut buffer[..there], start)?;
            buffer[there..].fill(0);
            if buffer != zeros {
                blocks.put(index, &buffer, Sha256::digest(&buffer).into())?;
            }
        }
        let id = self.id("snap");
        let now = Instant::now();
        let size = u32::try_from(length.div_ceil(1 << 30)).expect("a disk of a test is small");
        let snapshot = Snapshot {
            stage: Stage::Ended { at: now, failure: None },
            visible: now,
            ..Snapshot::new(id.clone(), owner, size, blocks, &self.delays)
        };
        let space = self.regions.get_mut(region).ok_or_else(|| io::Error::other(format!("no region {region}")))?;
        space.snapshots.insert(id.clone(), snapshot);
        Ok(id)
    }

    /// Registers an image of a snapshot that is there.
    pub(crate) fn seed_image(&mut self, owner: &str, region: &str, seed: SeedImage) -> io::Result<String> {
        let id = self.id("ami");
        let space = self.regions.get_mut(region).ok_or_else(|| io::Error::other(format!("no region {region}")))?;
        let snapshot = space.snapshots.get(&seed.snapshot);
        let snapshot = snapshot.ok_or_else(|| io::Error::other(format!("no snapshot {}", seed.snapshot)))?;
        let disk = Disk {
            device: seed.root_device.clone(),
            snapshot: seed.snapshot.clone(),
            size: snapshot.size,
            kind: "gp3".into(),
            iops: None,
            throughput: None,
            delete_on_termination: true,
            encrypted: false,
        };
        let now = Instant::now();
        let image = Image {
            id: id.clone(),
            owner: owner.into(),
            name: seed.name,
            description: None,
            architecture: seed.architecture,
            root_device: seed.root_device,
            disks: vec![disk],
            virtualization: "hvm".into(),
            ena: true,
            sriov: None,
            boot_mode: seed.boot_mode,
            tpm: None,
            imds: seed.imds,
            tags: seed.tags,
            launch: BTreeSet::new(),
            public: seed.public,
            source: None,
            deprecated: None,
            protection: "disabled".into(),
            created: Timestamp::now(),
            ready: now,
            visible: now,
            failed: None,
            deregistered: false,
            token: None,
        };
        space.images.insert(id.clone(), image);
        Ok(id)
    }
}
