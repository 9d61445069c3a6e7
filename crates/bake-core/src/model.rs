//! The things a bake handles, as plain data: what one step gives and the next one takes.
//!
//! All of them go through the journal, so they are serde values with named fields and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{Account, Architecture, BaseId, ImageId, Region, SnapshotId, VolumeId};

/// Tags of a resource. Keys keep their case.
pub type Tags = BTreeMap<String, String>;

/// What a bake starts from, as the cloud resolved it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseImage {
    /// The cloud's own id.
    pub id: BaseId,
    /// The name people know it by.
    pub name: String,
    /// Where it is.
    pub region: Region,
    /// What it runs on.
    pub architecture: Architecture,
    /// Size of its disk in bytes.
    pub size: u64,
    /// Its tags.
    pub tags: Tags,
    /// The snapshot that its root disk is made of, where the cloud keeps that apart.
    #[serde(default)]
    pub snapshot: Option<SnapshotId>,
    /// What the machines are like that it boots on.
    #[serde(default)]
    pub machine: Machine,
    /// Whether it is another account's: then its bytes cannot be read from anywhere before there is a copy of our own.
    #[serde(default)]
    pub borrowed: bool,
}

/// What an image says of the machines that boot it. What is `None` is left to the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// What the root disk is called: `/dev/xvda`.
    pub root_device: Option<String>,
    /// The firmware: `uefi`, `uefi-preferred` or `legacy-bios`.
    pub boot_mode: Option<String>,
    /// Whether it drives the elastic network adapter.
    pub ena: Option<bool>,
    /// Whether it drives the network adapter of older types (SR-IOV): `simple`.
    pub sriov: Option<String>,
    /// The trusted platform module that it wants: `v2.0`.
    pub tpm: Option<String>,
    /// The instance metadata service that it wants: `v2.0` allows no other.
    pub imds: Option<String>,
}

/// What the root disk of a machine is like. What is `None` is left to the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootDisk {
    /// Its type: `gp3`.
    pub kind: Option<String>,
    /// Size in bytes; that of the snapshot if not set.
    pub size: Option<u64>,
    /// Operations per second.
    pub iops: Option<u32>,
    /// MiB per second.
    pub throughput: Option<u32>,
}

/// A request for a writable disk that begins as a copy of a base image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateVolume {
    /// What to copy.
    pub base: BaseId,
    /// Where to make it.
    pub region: Region,
    /// The snapshot that the base's root disk is made of, where the cloud keeps that apart.
    #[serde(default)]
    pub snapshot: Option<SnapshotId>,
}

/// A request for a copy of a base image's bytes that this account may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnBase {
    /// The base image, which is another account's.
    pub base: BaseId,
    /// Where it is, and the copy will be.
    pub region: Region,
}

/// A copy of a base image's bytes that this account may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedBase {
    /// The snapshot that its root disk is made of.
    pub snapshot: SnapshotId,
}

/// A writable disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// The cloud's own id.
    pub id: VolumeId,
    /// Where it is.
    pub region: Region,
    /// Size in bytes.
    pub size: u64,
}

/// A request to make a volume a disk of the machine that bakes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachVolume {
    /// The volume.
    pub volume: VolumeId,
    /// Where it is.
    pub region: Region,
}

/// A volume that is a disk of this machine, under whichever name its kernel gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The volume.
    pub volume: VolumeId,
    /// The machine.
    pub machine: String,
    /// The device name that the cloud was asked to attach it by.
    pub device: String,
    /// The disks that were there before. Empty if that is not known.
    pub before: BTreeSet<String>,
}

/// A disk that was unmounted, checked and written through; nothing writes to it any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The volume that it is on.
    pub volume: VolumeId,
    /// Where that volume is.
    pub region: Region,
    /// Size in bytes.
    pub size: u64,
    /// Programs that a package had started, which sealing ended; one line each.
    pub ended: Vec<String>,
}

/// A request to keep the bytes of a sealed disk for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateSnapshot {
    /// The sealed volume.
    pub volume: VolumeId,
    /// Where it is.
    pub region: Region,
    /// For people.
    pub description: String,
    /// What to tag it with from the start.
    #[serde(default)]
    pub tags: Tags,
}

/// The immutable result of leaving the volume context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The cloud's own id.
    pub id: SnapshotId,
    /// Where it is.
    pub region: Region,
    /// Size in bytes.
    pub size: u64,
}

/// A request to make an image of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterImage {
    /// The image's name, unique in its region.
    pub name: String,
    /// For people.
    pub description: String,
    /// Its root disk.
    pub snapshot: SnapshotId,
    /// Where to register it.
    pub region: Region,
    /// What it runs on.
    pub architecture: Architecture,
    /// The base image it was made from.
    pub base: BaseId,
    /// What was installed on request.
    pub packages: Vec<Package>,
    /// What to tag it with from the start.
    #[serde(default)]
    pub tags: Tags,
    /// What the machines are like that it boots on.
    #[serde(default)]
    pub machine: Machine,
    /// What their root disk is like.
    #[serde(default)]
    pub disk: RootDisk,
}

/// An image that can be booted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The cloud's own id.
    pub id: ImageId,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub region: Region,
    /// How its root disk is kept: `local`, `ebs` or `s3`.
    pub store: String,
    /// Whose it is, where the cloud has accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
}

/// A request to make the same image in another region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyImage {
    /// What to copy.
    pub image: ImageId,
    /// Where it is.
    pub from: Region,
    /// Where the copy goes.
    pub region: Region,
    /// The copy's name, unique in its region.
    pub name: String,
    /// Tags of the copy and of what holds its bytes.
    pub tags: Tags,
    /// Whose the copy will be; the bake's own account if not set.
    #[serde(default)]
    pub account: Option<Account>,
    /// How the copy's bytes are encrypted.
    #[serde(default)]
    pub encryption: Encryption,
}

/// How the bytes of a copy are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encryption {
    /// As those of what is copied.
    #[default]
    Inherit,
    /// With the account's default key.
    DefaultKey,
    /// With this key, in the words of the cloud.
    Key(String),
    /// Not at all. What is encrypted cannot be copied so.
    Plain,
}

/// A request to let other accounts use an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareImage {
    /// The image.
    pub image: ImageId,
    /// Where it is.
    pub region: Region,
    /// Who may use it, and the bytes it is made of. Those who may already stay.
    pub with: Vec<Account>,
}

/// A request to say how long an image is good, and to keep it from being removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardImage {
    /// The image.
    pub image: ImageId,
    /// Where it is.
    pub region: Region,
    /// Whose it is, where the cloud has accounts.
    #[serde(default)]
    pub account: Option<Account>,
    /// Seconds after which others do not find it any more.
    pub deprecate_after: Option<u64>,
    /// Whether it cannot be removed before somebody takes that back.
    pub protect: bool,
}

/// Who may use an image, as it was read back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// All of them.
    pub with: Vec<Account>,
}

/// Something that carries tags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Taggable {
    /// A snapshot.
    Snapshot(SnapshotId),
    /// An image.
    Image(ImageId),
}

/// A request to set tags. Tags of other names stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagResource {
    /// What to tag.
    pub resource: Taggable,
    /// Where it is.
    pub region: Region,
    /// What to set.
    pub tags: Tags,
}

/// The tags of a resource as they were read back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tagged {
    /// All of them.
    pub tags: Tags,
}

/// One installed package, as the root's package database names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// The epoch, if the version has one.
    pub epoch: Option<String>,
    /// The upstream version.
    pub version: String,
    /// The distribution's revision; `0` where the version has none, as Aminator's users expect.
    pub release: String,
    /// The package's architecture in the distribution's words: `amd64`, `all`.
    pub architecture: String,
}

impl Package {
    /// Takes a Debian version apart: `[epoch:]upstream[-revision]` (Debian policy 5.6.12).
    ///
    /// The revision begins after the *last* dash, since the upstream version may hold dashes itself.
    pub fn from_debian(name: &str, version: &str, architecture: &str) -> Self {
        let (epoch, rest) = match version.split_once(':') {
            Some((epoch, rest)) => (Some(epoch.to_owned()), rest),
            None => (None, version),
        };
        let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, "0"));
        Self {
            name: name.to_owned(),
            epoch,
            version: upstream.to_owned(),
            release: revision.to_owned(),
            architecture: architecture.to_owned(),
        }
    }

    /// Returns the version with its epoch, as the distribution writes it: `1:2.0`.
    pub fn version_with_epoch(&self) -> String {
        match &self.epoch {
            Some(epoch) => format!("{epoch}:{}", self.version),
            None => self.version.clone(),
        }
    }

    /// Returns what Asgard and Spinnaker know an image's content by: name, version and release.
    ///
    /// Version and release hold no dash in it, so that [`AppVersion::parse`] takes it apart again: a Debian version may have
    /// some (`2023-01-15`), which become `_`, a character that no Debian version has.
    pub fn appversion(&self) -> String {
        let without_dash = |text: &str| text.replace('-', "_");
        format!("{}-{}-{}", self.name, without_dash(&self.version_with_epoch()), without_dash(&self.release))
    }
}

/// The parts of an `appversion` tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppVersion {
    /// Name of the package.
    pub name: String,
    /// Its version, with the epoch if it has one.
    pub version: String,
    /// Its release.
    pub release: String,
}

impl AppVersion {
    /// Takes an `appversion` apart at its last two dashes; `None` for a text that is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(3, '-').filter(|part| !part.is_empty());
        let (release, version, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { name: name.into(), version: version.into(), release: release.into() })
    }
}

/// What provisioning did, by the root's own package database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// The requested packages, in the order of the request.
    pub requested: Vec<Package>,
    /// The one that names the image.
    pub main: Package,
    /// What differs from the base.
    pub changes: PackageChanges,
}

/// The package database before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageChanges {
    /// Packages that were not there before.
    pub added: Vec<Package>,
    /// Packages whose version is another one now; the new one is given.
    pub changed: Vec<Package>,
    /// Packages that are gone.
    pub removed: Vec<Package>,
}

impl PackageChanges {
    /// Compares two states of a package database. Packages are the same if name and architecture are.
    pub fn between(before: &[Package], after: &[Package]) -> Self {
        let key = |package: &Package| (package.name.clone(), package.architecture.clone());
        let old: BTreeMap<_, _> = before.iter().map(|package| (key(package), package)).collect();
        let new: BTreeMap<_, _> = after.iter().map(|package| (key(package), package)).collect();
        let mut changes = Self::default();
        for (key, package) in &new {
            match old.get(key) {
                None => changes.added.push((*package).clone()),
                Some(earlier) if earlier != package => changes.changed.push((*package).clone()),
                Some(_) => {}
            }
        }
        changes.removed = old.iter().filter(|(key, _)| !new.contains_key(*key)).map(|(_, p)| (*p).clone()).collect();
        changes
    }
}

/// Names and tags of what the bake makes: rendered once, after the package database has spoken, and frozen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// What was made, as a hash: the base image and the packages that are in it now.
    pub content_key: String,
    /// Description of the snapshot.
    pub description: String,
    /// Which finalizers run, as far as that is decided by what is known now.
    pub runs: BTreeMap<String, bool>,
    /// What was rendered for each finalizer that runs, by its name in the set.
    pub finalizers: BTreeMap<String, Rendered>,
    /// Names that are not what was wanted, because that was too long or not legal.
    pub renamed: Vec<Renamed>,
}

impl Identity {
    /// Returns the tags that the bake's images carry.
    pub fn image_tags(&self) -> Tags {
        let tables = self.finalizers.values().filter_map(|rendered| rendered.tags.get(Rendered::IMAGE));
        tables.flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Returns the tags that something carries from the start: those of the finalizers of which it is decided that they run.
    pub fn tags_at_creation(&self, table: &str) -> Tags {
        let running = self.finalizers.iter().filter(|(name, _)| self.runs.get(*name) == Some(&true));
        let tables = running.filter_map(|(_, rendered)| rendered.tags.get(table));
        tables.flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// What was rendered for one finalizer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendered {
    /// Texts by their key: `image_name`, `description`.
    pub texts: BTreeMap<String, String>,
    /// Tags by what they are for: `snapshot`, `image`.
    pub tags: BTreeMap<String, Tags>,
}

impl Rendered {
    /// What the tags of snapshots are called.
    pub const SNAPSHOT: &'static str = "snapshot";
    /// What the tags of images are called.
    pub const IMAGE: &'static str = "image";
}

/// A name that had to be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    /// Whose name it is.
    pub finalizer: String,
    /// What its template gave.
    pub wanted: String,
    /// What it is called instead.
    pub given: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_versions_are_taken_apart() {
        let parts = |version: &str| {
            let package = Package::from_debian("foo", version, "all");
            (package.epoch, package.version, package.release)
        };
        assert_eq!(parts("2.10-3"), (None, "2.10".into(), "3".into()));
        assert_eq!(parts("1:2.0~rc1+b2-3"), (Some("1".into()), "2.0~rc1+b2".into(), "3".into()));
        assert_eq!(parts("1.0"), (None, "1.0".into(), "0".into()));
        assert_eq!(parts("2023-01-15-1"), (None, "2023-01-15".into(), "1".into()));
    }

    #[test]
    fn changes_name_what_was_added_changed_and_removed() {
        let package = |name: &str, version: &str| Package::from_debian(name, version, "amd64");
        let before = [package("kept", "1"), package("old", "1"), package("grown", "1")];
        let after = [package("kept", "1"), package("grown", "2"), package("new", "1")];
        let changes = PackageChanges::between(&before, &after);
        assert_eq!(changes.added, [package("new", "1")]);
        assert_eq!(changes.changed, [package("grown", "2")]);
        assert_eq!(changes.removed, [package("old", "1")]);
    }
}
