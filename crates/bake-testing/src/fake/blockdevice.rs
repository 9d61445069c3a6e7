use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bake_core::{Attachment, BlockDevice, Cloud, Disk, Medium, Volume, VolumeId};
use bake_engine::{Classify, StepContext, StepError, StepResult};

/// Disks of a [`FakeCloud`](super::FakeCloud): files without a name, empty at first. One that is open is refused.
#[derive(Clone, Default)]
pub struct FakeBlockDevice {
    disks: Arc<Mutex<HashMap<VolumeId, File>>>,
}

#[async_trait]
impl BlockDevice for FakeBlockDevice {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn medium(&self) -> Medium {
        Medium::Attached
    }

    async fn open(
        &self,
        _: StepContext,
        _: Arc<dyn Cloud>,
        volume: &Volume,
        _: Option<&Attachment>,
    ) -> StepResult<Disk> {
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match disks.get(&volume.id) {
            Some(file) => file,
            None => {
                let file =
                    tempfile::tempfile().and_then(|file| file.set_len(volume.size).map(|()| file)).permanent()?;
                disks.entry(volume.id.clone()).or_insert(file)
            }
        };
        // Opened anew, not shared: a lock belongs to an opening, and goes when that is closed.
        let path = format!("/proc/self/fd/{}", known.as_raw_fd()).into();
        let file = File::options().read(true).write(true).open(&path).permanent()?;
        match file.try_lock() {
            Ok(()) => Ok(Disk { file, path }),
            Err(_) => Err(StepError::permanent(format!("the disk of `{}` is in use", volume.id))),
        }
    }
}
