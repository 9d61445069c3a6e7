//! Taking an image's disk out of the store.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bake_core::Region;
use bake_linux::HostCommand;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::disk;
use crate::error::{StoreError, StoreResult};
use crate::program::{blocking, run};
use crate::record::ImageRecord;
use crate::store::Store;

/// Longer than any disk takes that fits a machine's own.
pub(crate) const CONVERT_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

/// How a disk is written to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFormat {
    /// The bytes of the disk. Empty ranges are holes.
    Raw,
    /// QEMU's format, which is small everywhere.
    Qcow2,
}

/// What happens if the target is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfThere {
    /// It stays, and the export fails.
    Refuse,
    /// It is replaced at once when the export is complete.
    Replace,
}

impl Store {
    /// Writes the disk of the image of that id or name to a file, which appears when it is complete.
    pub async fn export(
        &self,
        region: &Region,
        wanted: &str,
        format: DiskFormat,
        to: &Path,
        if_there: IfThere,
    ) -> StoreResult<ImageRecord> {
        let image = self.image(region, wanted)?;
        let disk = self.disk_of(region, &image.id)?;
        // Replacing a device or a pipe by a file would damage this machine, whatever the caller allows.
        if fs::symlink_metadata(to).is_ok_and(|there| !there.is_file()) {
            return Err(StoreError::NotAFile(to.to_owned()));
        }
        if if_there == IfThere::Refuse && fs::symlink_metadata(to).is_ok() {
            return Err(StoreError::Exists(to.to_owned()));
        }
        let temporary = Temporary::beside(to)?;
        match format {
            DiskFormat::Raw => {
                let path = temporary.path.clone();
                blocking(move || copy_raw(&disk, &path)).await?;
            }
            DiskFormat::Qcow2 => {
                let convert = HostCommand::new("qemu-img")
                    .args(["convert", "-q", "-f", "raw", "-O", "qcow2"])
                    .arg(&disk)
                    .arg(&temporary.path)
                    .time_limit(CONVERT_LIMIT);
                run("write the image as qcow2", convert).await?;
            }
        }
        let to = to.to_owned();
        blocking(move || temporary.appear(&to, if_there)).await?;
        Ok(image)
    }
}

fn copy_raw(disk: &Path, path: &Path) -> StoreResult<()> {
    let file = File::options().read(true).write(true).open(path).map_err(StoreError::io("open", path))?;
    disk::copy(disk, &file, path, |_, _| true)
}

/// A file that is removed unless it takes its place.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    fn beside(target: &Path) -> StoreResult<Self> {
        let target = std::path::absolute(target).map_err(StoreError::io("find", target))?;
        let (folder, name) = target.parent().zip(target.file_name()).ok_or_else(|| {
            let source = io::Error::new(io::ErrorKind::IsADirectory, "it is a folder");
            StoreError::Io { action: "write", path: target.clone(), source }
        })?;
        let path = folder.join(format!(".{}.{}.making", name.to_string_lossy(), std::process::id()));
        File::create_new(&path).map_err(StoreError::io("create", &path))?;
        Ok(Self { path })
    }

    fn appear(self, target: &Path, if_there: IfThere) -> StoreResult<()> {
        File::open(&self.path).and_then(|file| file.sync_all()).map_err(StoreError::io("sync", &self.path))?;
        let renamed = match if_there {
            IfThere::Replace => fs::rename(&self.path, target),
            IfThere::Refuse => {
                renameat_with(CWD, &self.path, CWD, target, RenameFlags::NOREPLACE).map_err(io::Error::from)
            }
        };
        renamed.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => StoreError::Exists(target.to_owned()),
            _ => StoreError::io("create", target)(error),
        })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is nothing under the old name any more.
        let _gone = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Shop, message};

    async fn export(shop: &Shop, format: DiskFormat, to: &Path, if_there: IfThere) -> StoreResult<ImageRecord> {
        shop.store.export(&shop.region, "hello", format, to, if_there).await
    }

    #[tokio::test]
    async fn raw_is_the_bytes_and_nothing_is_overwritten_unasked() {
        let shop = Shop::new();
        shop.baked("hello");
        let target = shop.folder.path().join("hello.raw");
        export(&shop, DiskFormat::Raw, &target, IfThere::Refuse).await.unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"bytes of the base");
        fs::write(&target, "precious").unwrap();
        let error = export(&shop, DiskFormat::Raw, &target, IfThere::Refuse).await.unwrap_err();
        insta::assert_snapshot!(message(&error), @"
        `[folder]/hello.raw` is there already
        hint: choose another file, or pass `--force` to replace it
        ");
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        export(&shop, DiskFormat::Raw, &target, IfThere::Replace).await.unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"bytes of the base");
        assert_eq!(fs::read_dir(shop.folder.path()).unwrap().count(), 2, "the store and the image");
    }

    #[tokio::test]
    async fn devices_and_links_are_never_replaced() {
        let shop = Shop::new();
        shop.baked("hello");
        let link = shop.folder.path().join("link");
        std::os::unix::fs::symlink("/dev/full", &link).unwrap();
        for target in [Path::new("/dev/full"), &link] {
            let error = export(&shop, DiskFormat::Raw, target, IfThere::Replace).await.unwrap_err();
            assert!(matches!(error, StoreError::NotAFile(_)), "{error}");
        }
        assert!(!fs::metadata("/dev/full").unwrap().is_file() && link.is_symlink());
    }

    #[tokio::test]
    async fn a_failed_export_leaves_nothing() {
        let shop = Shop::new();
        shop.baked("hello");
        let target = shop.folder.path().join("a folder");
        fs::create_dir(&target).unwrap();
        assert!(export(&shop, DiskFormat::Raw, &target, IfThere::Replace).await.is_err());
        assert_eq!(fs::read_dir(shop.folder.path()).unwrap().count(), 2);
        let error = export(&shop, DiskFormat::Raw, &shop.folder.path().join("no/where"), IfThere::Refuse).await;
        assert!(message(&error.unwrap_err()).contains("No such file"));
    }
}
