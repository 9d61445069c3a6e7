//! Which of this machine's disks is an attached volume.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use bake_core::VolumeId;
use bake_engine::wait::{Pace, until};
use bake_engine::{Class, Failure, StepError, StepResult};
use tokio_util::sync::CancellationToken;

use crate::{DeviceName, Host, SeenDisk, VendorData};

/// What is looked for.
#[derive(Clone, Debug)]
pub struct Sought {
    /// The volume that was attached.
    pub volume: VolumeId,
    /// Its size in bytes.
    pub size: u64,
    /// The device name that it was attached by.
    pub name: DeviceName,
    /// The disks that were there before it was attached. They are not it, unless their serial says so.
    pub before: BTreeSet<String>,
}

/// A disk that is the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The kernel's name.
    pub name: String,
    /// Its node.
    pub path: PathBuf,
    /// How it was told from others.
    pub evidence: Evidence,
}

/// How a disk was told from others, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Its serial is the volume's id.
    Serial,
    /// Its controller says what name it was attached by.
    VendorName,
    /// It is new, of the right size, and has the name that it was attached by, as Xen calls it.
    XenName,
}

/// No disk is the volume, or not certainly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {}", Seen(seen))]
pub struct NotFound {
    /// Why not.
    pub why: String,
    /// The disks that there are.
    pub seen: Vec<SeenDisk>,
}

impl Failure for NotFound {
    fn class(&self) -> Class {
        Class::Transient
    }
}

/// Lists disks for a message.
struct Seen<'a>(&'a [SeenDisk]);

impl fmt::Display for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("there are no disks");
        }
        for (index, disk) in self.0.iter().enumerate() {
            let serial = disk.serial.as_ref().map_or("no serial".into(), |serial| format!("serial `{serial}`"));
            let start = if index == 0 { "there are " } else { ", " };
            write!(f, "{start}`{}` ({serial}, {} bytes)", disk.name, disk.size)?;
        }
        Ok(())
    }
}

/// Waits until an attached volume is there as a disk.
///
/// # Errors
///
/// Fails when it is not there in time, with the disks that are, and when the kernel's lists cannot be read.
pub async fn find(
    host: &Host,
    vendor: &dyn VendorData,
    sought: &Sought,
    pace: Pace,
    cancel: &CancellationToken,
) -> StepResult<Found> {
    let what = format!("the disk of `{}`, attached as `{}`", sought.volume, sought.name);
    let probe = || async {
        let disks = host.disks().map_err(|error| StepError::wrap(Class::Permanent, error))?;
        Ok(Some(look(disks, vendor, sought)?))
    };
    let found = until(&what, pace, cancel, probe).await;
    found.map_err(|error| match error.class() {
        Class::Transient => error.hint("`lsblk -o NAME,SIZE,SERIAL` shows the disks of this machine"),
        _ => error,
    })
}

/// Looks once among the disks that there are. Their order says nothing.
///
/// # Errors
///
/// Fails when none is it, when it is not ready, or when several might be it.
pub fn look(disks: Vec<SeenDisk>, vendor: &dyn VendorData, sought: &Sought) -> Result<Found, NotFound> {
    let best = [Evidence::Serial, Evidence::VendorName, Evidence::XenName].into_iter().find_map(|evidence| {
        let fitting: Vec<_> = disks.iter().filter(|disk| evidence.fits(disk, vendor, sought)).collect();
        (!fitting.is_empty()).then_some((evidence, fitting))
    });
    let outcome = match best {
        None => Err("no disk is it".to_owned()),
        Some((evidence, fitting)) => ready(&fitting, sought.size).map(|(name, path)| Found { name, path, evidence }),
    };
    outcome.map_err(|why| NotFound { why, seen: disks })
}

/// Returns the one disk that has the volume's size and a node.
fn ready(fitting: &[&SeenDisk], size: u64) -> Result<(String, PathBuf), String> {
    let sized: Vec<_> = fitting.iter().filter(|disk| disk.size == size).collect();
    match sized.as_slice() {
        [] => Err(format!("{} is not of {size} bytes", names(fitting.iter().map(|disk| &disk.name)))),
        [disk] => match &disk.node {
            Some(node) => Ok((disk.name.clone(), node.clone())),
            None => Err(format!("`{}` has no node in `/dev`", disk.name)),
        },
        several => Err(format!("each of {} might be it", names(several.iter().map(|disk| &disk.name)))),
    }
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Evidence {
    /// Tells whether a disk is what this kind of evidence points at.
    fn fits(self, disk: &SeenDisk, vendor: &dyn VendorData, sought: &Sought) -> bool {
        let volume = disk.serial.as_deref().and_then(volume_of_serial);
        let new = !sought.before.contains(&disk.name);
        match self {
            Self::Serial => volume.is_some() && volume == volume_of_serial(sought.volume.as_str()),
            // A disk that says which volume it is, is not another one, however it was attached.
            Self::VendorName => {
                let named = || Some(sought.name.is_slot_of(&vendor.requested_name(disk.node.as_deref()?)?));
                disk.is_nvme() && volume.is_none() && new && named().unwrap_or(false)
            }
            Self::XenName => new && sought.name.xen_names().contains(&disk.name),
        }
    }
}

/// Reads the volume's id off a serial, where it is one: serials lack the dash.
fn volume_of_serial(serial: &str) -> Option<&str> {
    let rest = serial.strip_prefix("vol")?;
    Some(rest.strip_prefix('-').unwrap_or(rest))
}
