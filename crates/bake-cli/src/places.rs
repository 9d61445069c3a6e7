//! Where `bake` keeps things on this machine.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use bake_engine::{Journal, RunId};
use host_disks::Host;

use crate::exit::Exit;
use crate::failure::Advice;

/// The folders of one installation.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Journal and logs of runs.
    state: PathBuf,
    /// What can be fetched again.
    #[cfg_attr(not(feature = "ec2"), expect(dead_code, reason = "only base snapshots of EC2 are fetched"))]
    cache: PathBuf,
    /// Locks of what runs now; empty after a boot.
    runtime: PathBuf,
    /// Where the `/sys`, `/dev` and `/run` of the machine are, whose disks are baked on.
    host: PathBuf,
}

/// The process that carries out a request.
pub(crate) struct Holder {
    pub(crate) process: i32,
    pub(crate) run: String,
}

impl Places {
    /// Takes what was set, and the usual places for the rest.
    pub(crate) fn new(setting: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let place = |name: &str, usual: &str| setting(name).unwrap_or_else(|| usual.into());
        Self {
            state: place("state_dir", "/var/lib/bake"),
            cache: place("cache_dir", "/var/cache/bake"),
            runtime: place("run_dir", "/run/bake"),
            host: place("host_root", "/"),
        }
    }

    /// Returns the path of the journal.
    pub(crate) fn journal(&self) -> PathBuf {
        self.state.join("journal.db")
    }

    /// Opens the journal for writing; makes it if there is none yet.
    pub(crate) fn open_journal(&self) -> anyhow::Result<Journal> {
        Journal::open(&self.journal()).map_err(|error| {
            let advice = Advice::of(Exit::Journal, format!("cannot open the journal `{}`", self.journal().display()));
            anyhow::Error::new(error).context(advice)
        })
    }

    /// Returns the folder of what the local cloud holds.
    pub(crate) fn store(&self) -> PathBuf {
        self.state.join("store")
    }

    /// Returns where EC2 keeps things on this machine: disks that are baked on, and the bytes of base snapshots.
    #[cfg(feature = "ec2")]
    pub(crate) fn ec2(&self) -> cloud_ec2::Folders {
        let (disks, cache) = (self.state.join("ec2/disks"), self.cache.join("ec2"));
        cloud_ec2::Folders { disks, cache, uploads: self.state.join("ec2/uploads"), host: self.host() }
    }

    /// Returns where the kernel of the machine that bakes shows its disks.
    pub(crate) fn host(&self) -> Host {
        Host::at(&self.host)
    }

    /// Returns the folder of a run's log files.
    pub(crate) fn logs(&self, run: &str) -> PathBuf {
        self.state.join("logs").join(run)
    }

    /// Refuses to carry out the same request twice at once. The lock goes with the process, however that ends; the file says
    /// which process holds it, and for which run.
    pub(crate) fn lock_request(&self, request_key: &str, run: &RunId) -> anyhow::Result<File> {
        let path = self.request_lock(request_key);
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot make `{}`", path.display()))?;
        match file.try_lock() {
            Ok(()) => {
                let holder = format!("{} {run}\n", std::process::id());
                file.set_len(0)
                    .and_then(|()| file.write_all(holder.as_bytes()))
                    .with_context(|| format!("cannot write `{}`", path.display()))?;
                Ok(file)
            }
            Err(TryLockError::WouldBlock) => Err(self.running(request_key).into()),
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock `{}`", path.display())),
        }
    }

    fn running(&self, request_key: &str) -> Advice {
        let Some(Holder { process, run }) = self.holder(request_key) else {
            return Advice::of(Exit::Running, "the same request is being carried out right now")
                .hint("`bake runs` lists it");
        };
        let message = format!("the same request is being carried out right now, by run {run} in process {process}");
        Advice::of(Exit::Running, message).hint(format!("wait for it, or stop it with `bake cancel {run}`"))
    }

    /// Tells who carries out a request right now.
    pub(crate) fn holder(&self, request_key: &str) -> Option<Holder> {
        if !self.is_locked(request_key) {
            return None;
        }
        let text = std::fs::read_to_string(self.request_lock(request_key)).ok()?;
        let (process, run) = text.trim_end().split_once(' ')?;
        Some(Holder { process: process.parse().ok()?, run: run.to_owned() })
    }

    /// Tells whether a request is being carried out right now. Somebody else's rights may hide that: then it says no.
    pub(crate) fn is_locked(&self, request_key: &str) -> bool {
        let file = File::open(self.request_lock(request_key));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Returns the file whose lock says that a request is being carried out.
    fn request_lock(&self, request_key: &str) -> PathBuf {
        self.runtime.join("requests").join(request_key)
    }

    /// Makes the folders that a bake needs.
    pub(crate) fn make(&self) -> anyhow::Result<()> {
        for folder in [&self.state, &self.runtime.join("requests")] {
            make_folder(folder)?;
        }
        Ok(())
    }
}

fn make_folder(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| {
        let refused = error.kind() == std::io::ErrorKind::PermissionDenied;
        let advice = Advice::usage(format!("cannot make the folder `{}`", folder.display()))
            .maybe_hint(refused.then(|| "run as root, or choose another place with `--state-dir`".into()));
        anyhow::Error::new(error).context(advice)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_stays_lies_in_the_state_folder() {
        let places = Places::new(|name| (name == "state_dir").then(|| "/srv/bake".into()));
        assert_eq!(places.journal(), Path::new("/srv/bake/journal.db"));
        assert_eq!(places.store(), Path::new("/srv/bake/store"));
        assert_eq!(places.request_lock("k"), Path::new("/run/bake/requests/k"));
    }
}
