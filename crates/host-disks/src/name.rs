//! Device names to attach volumes by: which are free, and who holds one.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io;

use bake_engine::{Class, StepError, StepResult};
use serde::{Deserialize, Serialize};

use crate::Host;

/// By how many letters some Xen kernels call a disk too high: they keep the first four for disks that pose as older ones.
const SHIFT: u8 = 4;

/// A name to attach a volume by: of a whole disk, never of a partition. Kernels may call the disk otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceName {
    series: Series,
    letters: String,
}

/// How a name begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Series {
    Sd,
    Xvd,
}

/// A text that is no name of a whole disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no device name of a whole disk, such as `/dev/sdf`")]
pub struct InvalidName(String);

/// A device name that no other bake of this host uses. Dropping it, or dying, lets go of it.
#[derive(Debug)]
#[must_use = "dropping a `HeldName` lets go of the name"]
pub struct HeldName {
    name: DeviceName,
    _lock: File,
}

/// The device names of this machine.
#[derive(Clone, Debug)]
pub struct DeviceNames {
    host: Host,
}

/// Why names could not be had.
#[derive(Default)]
struct Taken {
    attached: u32,
    present: u32,
    refused: u32,
    held: u32,
}

impl DeviceName {
    /// Returns all names that are tried, in order: those that the cloud's documentation recommends, and when they run out those
    /// of two letters.
    pub fn all() -> impl Iterator<Item = Self> {
        let one = ('f'..='p').map(|letter| Self { series: Series::Sd, letters: letter.into() });
        let two = ('b'..='c').flat_map(|first| ('a'..='z').map(move |second| format!("{first}{second}")));
        one.chain(two.map(|letters| Self { series: Series::Xvd, letters }))
    }

    /// Tells whether a name means the same disk, with `/dev/` or without, as `sd` or as `xvd`, or a partition of it.
    pub(crate) fn is_slot_of(&self, name: &str) -> bool {
        split(name).is_some_and(|(_, letters, _)| letters == self.letters)
    }

    /// Returns what Xen kernels may call the disk.
    pub(crate) fn xen_names(&self) -> Vec<String> {
        let mut names = vec![format!("xvd{}", self.letters)];
        if let (Series::Sd, [letter @ b'a'..=b'v']) = (self.series, self.letters.as_bytes()) {
            names.push(format!("xvd{}", char::from(letter + SHIFT)));
        }
        names
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let series = match self.series {
            Series::Sd => "sd",
            Series::Xvd => "xvd",
        };
        write!(f, "/dev/{series}{}", self.letters)
    }
}

impl TryFrom<String> for DeviceName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        match split(&text) {
            Some((series, letters, "")) => Ok(Self { series, letters: letters.to_owned() }),
            _ => Err(InvalidName(text)),
        }
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> Self {
        name.to_string()
    }
}

/// Takes a name apart: its series, its letters, and the number of a partition.
fn split(name: &str) -> Option<(Series, &str, &str)> {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let sd = name.strip_prefix("sd").map(|rest| (Series::Sd, rest));
    let (series, rest) = sd.or_else(|| name.strip_prefix("xvd").map(|rest| (Series::Xvd, rest)))?;
    let (letters, number) = rest.split_at(rest.bytes().take_while(u8::is_ascii_lowercase).count());
    let well = !letters.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    well.then_some((series, letters, number))
}

impl HeldName {
    /// Returns the name.
    pub fn name(&self) -> &DeviceName {
        &self.name
    }
}

impl DeviceNames {
    /// Returns the names of a host.
    pub fn new(host: Host) -> Self {
        Self { host }
    }

    /// Takes a name that is free, and holds it against all other bakes of this host.
    ///
    /// `mapped` asks the cloud by which names volumes are attached to this machine, in whichever state: one that is still being
    /// detached has its name, though the kernel shows no disk any more. `refused` are the names that the cloud would not attach
    /// by although they looked free.
    ///
    /// # Errors
    ///
    /// Fails with [`Class::Transient`] when none is free, and when the cloud or the locks cannot be asked.
    pub async fn take<F>(&self, mapped: impl Fn() -> F, refused: &BTreeSet<DeviceName>) -> StepResult<HeldName>
    where
        F: Future<Output = StepResult<Vec<String>>>,
    {
        let (mut attached, mut present) = (mapped().await?, self.present()?);
        let mut taken = Taken::default();
        for name in DeviceName::all() {
            if !taken.is_free(&name, &attached, &present, refused) {
                continue;
            }
            let Some(lock) = self.lock(&name)? else {
                taken.held += 1;
                continue;
            };
            // Asked again now that it is ours: whoever held it before may just have attached a volume by it.
            (attached, present) = (mapped().await?, self.present()?);
            if taken.is_free(&name, &attached, &present, refused) {
                return Ok(HeldName { name, _lock: lock });
            }
        }
        Err(StepError::transient(taken.to_string()).hint("detach volumes that nobody uses from this machine"))
    }

    fn present(&self) -> StepResult<Vec<String>> {
        self.host.device_names().map_err(|error| StepError::wrap(Class::Permanent, error))
    }

    /// Locks a name; `None` when another bake has it. The file stays: to remove it would let two bakes lock two files of one name.
    fn lock(&self, name: &DeviceName) -> StepResult<Option<File>> {
        let path = self.host.locks().join(format!("{}.lock", name.to_string().trim_start_matches("/dev/")));
        let failed = |error: io::Error| {
            StepError::permanent(format!("cannot lock the device name `{name}` by `{}`", path.display())).because(error)
        };
        std::fs::create_dir_all(self.host.locks()).map_err(failed)?;
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

impl Taken {
    /// Tells whether a name is free as far as the cloud and the kernel know, and counts why not.
    fn is_free(
        &mut self,
        name: &DeviceName,
        attached: &[String],
        present: &[String],
        refused: &BTreeSet<DeviceName>,
    ) -> bool {
        let has_it = |names: &[String]| names.iter().any(|other| name.is_slot_of(other));
        let reason = if has_it(attached) {
            &mut self.attached
        } else if has_it(present) {
            &mut self.present
        } else if refused.contains(name) {
            &mut self.refused
        } else {
            return true;
        };
        *reason += 1;
        false
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attached, present, refused, held } = self;
        write!(
            f,
            "no device name is free: {attached} have attached volumes, {present} are there as devices, {held} are held by \
             other bakes, {refused} were refused by the cloud"
        )
    }
}
