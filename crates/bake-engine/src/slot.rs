//! Slots: how much of each sort of work runs at once.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a step mostly uses, which decides how many like it run at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slot {
    /// Short calls and light work.
    #[default]
    Api,
    /// Copying, checking and hashing on local disks.
    LocalIo,
    /// Installing packages.
    Chroot,
    /// Sending blocks.
    Upload,
}

/// How many steps of each sort run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLimits {
    /// For [`Slot::Api`].
    pub api: usize,
    /// For [`Slot::LocalIo`].
    pub local_io: usize,
    /// For [`Slot::Chroot`].
    pub chroot: usize,
    /// For [`Slot::Upload`].
    pub upload: usize,
}

impl Default for SlotLimits {
    fn default() -> SlotLimits {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        SlotLimits { api: 64, local_io: cores, chroot: 2, upload: 16 }
    }
}

#[derive(Debug)]
pub(crate) struct Slots {
    api: Arc<Semaphore>,
    local_io: Arc<Semaphore>,
    chroot: Arc<Semaphore>,
    upload: Arc<Semaphore>,
}

impl Slots {
    pub(crate) fn new(limits: SlotLimits) -> Slots {
        // No limit of none: a step that can never start would hang the run.
        let semaphore = |limit: usize| Arc::new(Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS)));
        Slots {
            api: semaphore(limits.api),
            local_io: semaphore(limits.local_io),
            chroot: semaphore(limits.chroot),
            upload: semaphore(limits.upload),
        }
    }

    /// Returns the place of one step, without a slot yet.
    pub(crate) fn seat(&self, slot: Slot) -> Seat {
        let semaphore = match slot {
            Slot::Api => &self.api,
            Slot::LocalIo => &self.local_io,
            Slot::Chroot => &self.chroot,
            Slot::Upload => &self.upload,
        };
        Seat { semaphore: Arc::clone(semaphore), held: Arc::default() }
    }
}

/// A step's claim to a slot: given up while it waits, taken again before it works.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    semaphore: Arc<Semaphore>,
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Seat {
    pub(crate) async fn take(&self) {
        let permit = Arc::clone(&self.semaphore).acquire_owned().await.expect("slots are never closed");
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
    }

    /// Gives the slot up and says whether there was one.
    pub(crate) fn leave(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }
}
