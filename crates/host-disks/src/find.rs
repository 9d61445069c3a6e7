//! Which of this machine's disks is an attached volume.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bake_core::VolumeId;
use bake_engine::{Class, Failure, StepContext, StepError, StepResult};
use tokio::time::Instant;

use crate::{DeviceName, Host, SeenDisk};

/// How often to look at first: a look is a few small files of the kernel's.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// How often to look when it takes long.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

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

/// Waits until an attached volume is there as a disk, for as long as `limit`.
///
/// # Errors
///
/// Fails when it is not there in time, with the disks that are, and when the kernel's lists cannot be read.
pub async fn find(cx: &StepContext, host: &Host, sought: &Sought, limit: Duration) -> StepResult<Found> {
    let (deadline, mut pause) = (Instant::now() + limit, FIRST_PAUSE);
    loop {
        let disks = host.disks().map_err(|error| StepError::wrap(Class::Permanent, error))?;
        let missing = match look(disks, sought) {
            Ok(found) => return Ok(found),
            Err(missing) => missing,
        };
        if Instant::now() >= deadline {
            let what = format!("the disk of `{}`, attached as `{}`", sought.volume, sought.name);
            return Err(StepError::wrap(Class::Transient, missing)
                .context(format!("waited {limit:?} for {what}"))
                .hint("`lsblk -o NAME,SIZE,SERIAL` shows the disks of this machine"));
        }
        cx.pause(pause).await?;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Looks once among the disks that there are. Their order says nothing.
///
/// # Errors
///
/// Fails when none is it, when it is not ready, or when several might be it.
pub fn look(disks: Vec<SeenDisk>, sought: &Sought) -> Result<Found, NotFound> {
    let best = [Evidence::Serial, Evidence::XenName].into_iter().find_map(|evidence| {
        let fitting: Vec<_> = disks.iter().filter(|disk| evidence.fits(disk, sought)).collect();
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
    fn fits(self, disk: &SeenDisk, sought: &Sought) -> bool {
        match self {
            Self::Serial => {
                let volume = disk.serial.as_deref().and_then(volume_of_serial);
                volume.is_some() && volume == volume_of_serial(sought.volume.as_str())
            }
            Self::XenName => !sought.before.contains(&disk.name) && sought.name.xen_names().contains(&disk.name),
        }
    }
}

/// Reads the volume's id off a serial, where it is one: serials lack the dash.
fn volume_of_serial(serial: &str) -> Option<&str> {
    let rest = serial.strip_prefix("vol")?;
    Some(rest.strip_prefix('-').unwrap_or(rest))
}
