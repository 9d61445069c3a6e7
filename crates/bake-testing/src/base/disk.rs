use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::apt_root;
use crate::fixture::cached;
use crate::image::{Access, Filesystem as Found, mounted};
use crate::run::{or_panic, run};

const MIB: u64 = 1 << 20;

/// What a disk looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOptions {
    /// The partition table.
    pub table: Table,
    /// The filesystem of each root.
    pub filesystem: Filesystem,
    /// How many partitions hold a whole root; with more than one, nobody can tell which is meant.
    pub roots: u32,
    /// The size of the whole disk.
    pub size_mib: u64,
}

/// A kind of partition table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// As clouds have it: the roots are partitions 1 and up, and 14 is a small one for the boot loader.
    Gpt,
    /// The roots are primary partitions.
    Mbr,
    /// None: the filesystem is the disk.
    Bare,
}

/// A kind of filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filesystem {
    /// ext4, with a journal.
    Ext4,
    /// xfs, which takes 300 MiB at least, and which needs loop devices to be made.
    Xfs,
}

impl Default for DiskOptions {
    /// A GPT disk of 192 MiB with one ext4 root.
    fn default() -> Self {
        Self { table: Table::Gpt, filesystem: Filesystem::Ext4, roots: 1, size_mib: 192 }
    }
}

impl DiskOptions {
    /// A disk with an MBR.
    pub fn mbr() -> Self {
        Self { table: Table::Mbr, ..Self::default() }
    }

    /// A disk that is a filesystem.
    pub fn bare() -> Self {
        Self { table: Table::Bare, ..Self::default() }
    }

    /// A disk whose root is xfs.
    pub fn xfs() -> Self {
        Self { filesystem: Filesystem::Xfs, size_mib: 400, ..Self::default() }
    }

    /// A disk with two partitions that could be the root.
    pub fn two_roots() -> Self {
        Self { roots: 2, ..Self::default() }
    }

    /// Sets the size of the whole disk.
    pub fn size_mib(self, size_mib: u64) -> Self {
        Self { size_mib, ..self }
    }

    /// Where each root is: offset and size, in MiB.
    fn places(&self) -> Vec<(u64, u64)> {
        // The boot loader's partition, and the copy of the GPT at the end.
        let (start, end) = match self.table {
            Table::Gpt => (2, self.size_mib - 1),
            Table::Mbr => (1, self.size_mib),
            Table::Bare => (0, self.size_mib),
        };
        let size = (end - start) / u64::from(self.roots);
        (0..u64::from(self.roots)).map(|n| (start + n * size, size)).collect()
    }
}

/// Returns a disk file with [`apt_root`] on it, shared by all tests: take a [`copy_disk`](crate::copy_disk) to change it.
///
/// Needs root, so that the owners of its files are right.
#[track_caller]
pub fn disk(options: &DiskOptions) -> PathBuf {
    let DiskOptions { table, filesystem, roots, size_mib } = options;
    let name = format!("disk-{table:?}-{filesystem:?}-{roots}-{size_mib}").to_lowercase();
    let recipe = [include_str!("disk.rs"), include_str!("root.rs")];
    or_panic(cached(&name, &recipe, |file| make(options, file)))
}

fn make(options: &DiskOptions, file: &Path) -> Result<()> {
    ensure!(options.roots >= 1 && (options.roots == 1 || options.table != Table::Bare), "a bare disk has one root");
    let disk = File::create(file).with_context(|| format!("cannot make `{}`", file.display()))?;
    disk.set_len(options.size_mib * MIB).context("cannot set the size of a disk")?;
    write_table(options, file)?;
    for (index, (offset, size)) in options.places().into_iter().enumerate() {
        match options.filesystem {
            Filesystem::Ext4 => write_ext4(file, offset, size, index)?,
            Filesystem::Xfs => write_xfs(file, offset, size, index)?,
        }
    }
    fs::set_permissions(file, fs::Permissions::from_mode(0o444)).context("cannot protect a disk")
}

fn write_table(options: &DiskOptions, file: &Path) -> Result<()> {
    let roots = options.places().into_iter().zip(1..);
    let script = match options.table {
        Table::Bare => return Ok(()),
        Table::Mbr => {
            let lines = roots.map(|((offset, size), _)| format!("start={offset}MiB, size={size}MiB, type=83\n"));
            format!("label: dos\n{}", lines.collect::<String>())
        }
        Table::Gpt => {
            // The types by the Discoverable Partitions Specification: the root of this machine's architecture, BIOS boot.
            let root = match std::env::consts::ARCH {
                "x86_64" => "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709",
                "aarch64" => "B921B045-1DF0-41C3-AF44-4C6F280D3FAE",
                other => bail!("no partition type is known for {other}"),
            };
            let lines =
                roots.map(|((offset, size), n)| format!("{n} : start={offset}MiB, size={size}MiB, type={root}\n"));
            let boot = "14 : start=1MiB, size=1MiB, type=21686148-6449-6E6F-744E-656564454649\n";
            format!("label: gpt\n{}{boot}", lines.collect::<String>())
        }
    };
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let script_file = folder.path().join("script");
    fs::write(&script_file, script).context("cannot write the script of `sfdisk`")?;
    let sfdisk = ["-c", "exec sfdisk --quiet --no-reread --no-tell-kernel \"$1\" < \"$2\"", "sh"];
    run(Command::new("sh").args(sfdisk).args([file, &script_file])).map(drop)
}

/// The same in each copy of the disk, as it is with real base images, and another for each root of one disk.
fn filesystem_id(index: usize) -> String {
    format!("0ba4e000-0000-4000-8000-{index:012}")
}

fn write_ext4(disk: &Path, offset: u64, size: u64, index: usize) -> Result<()> {
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F", "-b", "4096", "-L", "root", "-U", &filesystem_id(index)]);
    mkfs.args(["-E", &format!("offset={},root_owner=0:0", offset * MIB), "-d"]).arg(apt_root());
    run(mkfs.arg(disk).arg(format!("{}k", size * 1024))).map(drop)
}

/// `mkfs.xfs` takes neither a folder nor an offset, so the filesystem is filled in a file of its own and copied.
fn write_xfs(disk: &Path, offset: u64, size: u64, index: usize) -> Result<()> {
    let folder = tempfile::tempdir_in(disk.parent().expect("a fixture has a folder")).context("no temporary folder")?;
    let filesystem = folder.path().join("xfs");
    File::create(&filesystem).and_then(|file| file.set_len(size * MIB)).context("cannot make a file")?;
    let id = format!("uuid={}", filesystem_id(index));
    run(Command::new("mkfs.xfs").args(["-q", "-L", "root", "-m", &id]).arg(&filesystem))?;
    let found = Found { kind: "xfs".into(), offset: 0, size: size * MIB };
    mounted(&filesystem, &found, Access::ReadWrite, |mount| {
        run(Command::new("cp").arg("-a").arg(apt_root().join(".")).arg(mount)).map(drop)
    })??;
    let place = [format!("of={}", disk.display()), format!("seek={offset}")];
    let copy = ["conv=sparse,notrunc", "bs=1M", "status=none"];
    run(Command::new("dd").arg(format!("if={}", filesystem.display())).args(place).args(copy)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::inspect;
    use crate::needs;
    use std::os::unix::fs::MetadataExt;

    fn holds_a_root(disk: &Path, filesystem: &str) {
        crate::image::check(disk);
        inspect(disk, |root| {
            assert_eq!(root.filesystem(), filesystem);
            assert_eq!(root.text("/etc/hostname"), "tiny\n");
            assert!(root.text("/etc/os-release").contains("ID=debian\n"));
            assert!(root.packages()["libc6"].is_installed());
            let tmp = fs::metadata(root.path().join("tmp")).unwrap();
            assert_eq!((tmp.mode() & 0o7777, tmp.uid()), (0o1777, 0));
        });
    }

    #[test]
    fn the_common_disk_has_a_root_and_a_boot_partition() {
        needs!(loops(), fixtures());
        let file = disk(&DiskOptions::default());
        assert_eq!(fs::metadata(&file).unwrap().len(), 192 * MIB);
        assert!(fs::metadata(&file).unwrap().blocks() * 512 < 64 * MIB, "it should be sparse");
        let table = run(Command::new("sfdisk").args(["--dump"]).arg(&file)).unwrap();
        assert_eq!(table.matches("start=").count(), 2, "{table}");
        holds_a_root(&file, "ext4");
    }

    #[test]
    fn the_other_tables_hold_the_same_root() {
        needs!(loops(), fixtures());
        holds_a_root(&disk(&DiskOptions::mbr()), "ext4");
        holds_a_root(&disk(&DiskOptions::bare().size_mib(128)), "ext4");
    }

    #[test]
    fn a_root_can_be_xfs() {
        needs!(loops(), fixtures());
        holds_a_root(&disk(&DiskOptions::xfs()), "xfs");
    }

    #[test]
    fn a_disk_with_two_roots_is_ambiguous() {
        needs!(root(), fixtures());
        let error = crate::image::only_filesystem(&disk(&DiskOptions::two_roots())).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("2 filesystems"), "{text}");
    }

    #[test]
    fn a_copy_can_be_written_and_is_as_sparse() {
        needs!(root(), fixtures());
        let (file, folder) = (disk(&DiskOptions::default()), tempfile::tempdir().unwrap());
        let copy = folder.path().join("copy");
        crate::copy_disk(&file, &copy);
        let (from, to) = (fs::metadata(&file).unwrap(), fs::metadata(&copy).unwrap());
        assert_eq!((from.mode() & 0o200, to.mode() & 0o200), (0, 0o200));
        assert_eq!(from.len(), to.len());
        assert!(to.blocks() <= from.blocks() * 11 / 10 + 2048, "{} became {}", from.blocks(), to.blocks());
    }
}
