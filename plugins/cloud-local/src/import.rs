//! Putting disk files that come from elsewhere into the store.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bake_core::{Architecture, Region};
use bake_linux::{HostCommand, HostError};
use sha2::{Digest, Sha256};

use crate::bases::NewBase;
use crate::disk;
use crate::error::{StoreError, StoreResult};
use crate::export::{CONVERT_LIMIT, DiskFormat};
use crate::program::{Listener, Progress, blocking, run};
use crate::record::BaseRecord;
use crate::store::{Maker, Store};

/// A disk file to import.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The file.
    pub file: PathBuf,
    /// What it is; `None` looks at its first bytes.
    pub format: Option<DiskFormat>,
    /// The name the base image gets.
    pub name: String,
    /// The SHA-256 checksum of the file, in hexadecimal digits; it is refused if it has another one.
    pub checksum: Option<String>,
    /// What the disk runs on.
    pub architecture: Architecture,
}

/// Smallest disk: a root filesystem with anything in it is larger.
const SMALLEST: u64 = 1 << 20;
/// Largest disk: ext4's largest file. A header that claims more is broken or hostile.
const LARGEST: u64 = 16 << 40;
const SECTOR: u64 = 512;
/// What `qemu-img check` ends with if it found clusters that nobody uses, and nothing else (qemu-img(1)).
const LEAKS_ONLY: i32 = 3;

impl Store {
    /// Copies a disk file into the store as a base image.
    pub async fn import(
        &self,
        region: &Region,
        options: &ImportOptions,
        listen: Listener<'_>,
    ) -> StoreResult<BaseRecord> {
        let file = std::path::absolute(&options.file).map_err(StoreError::io("find", &options.file))?;
        let checksum = options.checksum.as_ref().map(|text| text.to_ascii_lowercase());
        let new = NewBase {
            name: options.name.clone(),
            architecture: options.architecture.clone(),
            source: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            checksum: checksum.clone(),
        };
        let format = check_file(&file, options.format)?;
        let draft = self.begin_base(region, &new, Maker::outside_runs()?)?;
        if let Some(expected) = checksum {
            listen(Progress::Doing("checking the checksum"));
            let file = file.clone();
            blocking(move || check_sum(&file, &expected)).await?;
        }
        listen(Progress::Doing("copying the disk"));
        match format {
            DiskFormat::Raw => {
                let (from, to) = (file.clone(), draft.disk());
                blocking(move || copy_raw(&from, &to)).await?;
            }
            DiskFormat::Qcow2 => {
                check_qcow2(&file).await?;
                convert_qcow2(&file, &draft.disk()).await?;
            }
        }
        let store = self.clone();
        blocking(move || draft.finish(&store)).await
    }
}

/// Looks at a file before anything is done with it.
fn check_file(path: &Path, wanted: Option<DiskFormat>) -> StoreResult<DiskFormat> {
    let refuse = |reason: String, hint| StoreError::NotImportable { path: path.to_owned(), reason, hint };
    // Not blocking: opening a pipe would wait for somebody to write to it.
    let opened = File::options().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path);
    let file = opened.map_err(StoreError::io("open", path))?;
    let about = file.metadata().map_err(StoreError::io("look at", path))?;
    if !about.is_file() {
        return Err(refuse("it is no regular file".into(), None));
    }
    let mut head = [0; HEAD];
    let length = read_head(&file, &mut head).map_err(StoreError::io("read", path))?;
    let head = &head[..length];
    let format = match (wanted, recognise(head)) {
        (None | Some(DiskFormat::Qcow2), Found::Qcow2) => DiskFormat::Qcow2,
        (None | Some(DiskFormat::Raw), Found::NothingKnown) => DiskFormat::Raw,
        (Some(DiskFormat::Raw), Found::Qcow2) => {
            return Err(refuse("it is a qcow2 file, not a raw disk".into(), Some("leave `--disk-format` away")));
        }
        (Some(DiskFormat::Qcow2), _) => return Err(refuse("it is not a qcow2 file".into(), None)),
        (_, Found::Compressed(how)) => {
            return Err(refuse(format!("it is compressed with {how}"), Some("decompress it first")));
        }
        (_, Found::Foreign(format)) => {
            let hint = "convert it first: `qemu-img convert -O qcow2 FILE FILE.qcow2`";
            return Err(refuse(format!("it is a {format} file"), Some(hint)));
        }
    };
    let size = match format {
        DiskFormat::Raw => about.len(),
        DiskFormat::Qcow2 => Qcow2Header::parse(head)
            .and_then(|header| header.check())
            .map_err(|(reason, hint)| refuse(reason.into(), hint))?,
    };
    if !(SMALLEST..=LARGEST).contains(&size) || size % SECTOR != 0 {
        return Err(refuse(
            format!("a disk of {size} bytes is none: 1 MiB to 16 TiB in whole sectors of 512 bytes are"),
            None,
        ));
    }
    Ok(format)
}

/// As much of a file as its kind is seen from: a qcow2 header has 104 bytes, and a disk's first sector 512.
const HEAD: usize = 512;

fn read_head(file: &File, head: &mut [u8; HEAD]) -> io::Result<usize> {
    let mut length = 0;
    while length < HEAD {
        match file.read_at(&mut head[length..], length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}

/// What the first bytes of a file look like.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Qcow2,
    Compressed(&'static str),
    Foreign(&'static str),
    /// A raw disk has no mark of its own.
    NothingKnown,
}

fn recognise(head: &[u8]) -> Found {
    const MARKS: [(&[u8], Found); 10] = [
        (b"QFI\xfb", Found::Qcow2),
        (b"\x1f\x8b", Found::Compressed("gzip")),
        (b"\xfd7zXZ\0", Found::Compressed("xz")),
        (b"\x28\xb5\x2f\xfd", Found::Compressed("zstd")),
        (b"BZh", Found::Compressed("bzip2")),
        (b"PK\x03\x04", Found::Compressed("zip")),
        (b"KDMV", Found::Foreign("VMDK")),
        (b"vhdxfile", Found::Foreign("VHDX")),
        (b"conectix", Found::Foreign("VHD")),
        (b"<<< ", Found::Foreign("VDI")),
    ];
    MARKS.into_iter().find(|(mark, _)| head.starts_with(mark)).map_or(Found::NothingKnown, |(_, found)| found)
}

/// What matters of a qcow2 header. It is read here, before any program opens the file, because opening is what a hostile
/// one wants: it may name other files of this host as its backing or its data file.
#[derive(Debug)]
struct Qcow2Header {
    version: u32,
    backing_file_offset: u64,
    size: u64,
    encryption: u32,
    incompatible_features: u64,
}

impl Qcow2Header {
    /// The bit of `incompatible_features` that says: the data is in another file.
    const EXTERNAL_DATA: u64 = 1 << 2;

    fn parse(head: &[u8]) -> Result<Self, Refusal> {
        const TRUNCATED: Refusal = ("its qcow2 header is cut off", None);
        let u32_at =
            |at: usize| head.get(at..at + 4).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")));
        let u64_at =
            |at: usize| head.get(at..at + 8).map(|bytes| u64::from_be_bytes(bytes.try_into().expect("eight bytes")));
        let version = u32_at(4).ok_or(TRUNCATED)?;
        Ok(Self {
            version,
            backing_file_offset: u64_at(8).ok_or(TRUNCATED)?,
            size: u64_at(24).ok_or(TRUNCATED)?,
            encryption: u32_at(32).ok_or(TRUNCATED)?,
            // Version 2 ends before it.
            incompatible_features: if version < 3 { 0 } else { u64_at(72).ok_or(TRUNCATED)? },
        })
    }

    /// Returns the size of the disk, unless the file wants more than itself.
    fn check(&self) -> Result<u64, Refusal> {
        const FLATTEN: Option<&str> =
            Some("write it into one file where it comes from: `qemu-img convert -O qcow2 FILE FLAT.qcow2`");
        if !(2..=3).contains(&self.version) {
            return Err(("its qcow2 version is not 2 or 3", None));
        }
        if self.backing_file_offset != 0 {
            return Err(("it is only a difference to another file, its backing file", FLATTEN));
        }
        if self.incompatible_features & Self::EXTERNAL_DATA != 0 {
            return Err(("it keeps its data in another file", FLATTEN));
        }
        if self.encryption != 0 {
            return Err(("it is encrypted", None));
        }
        Ok(self.size)
    }
}

/// A reason and a hint.
type Refusal = (&'static str, Option<&'static str>);

fn check_sum(path: &Path, expected: &str) -> StoreResult<()> {
    let found = sha256(path).map_err(StoreError::io("read", path))?;
    if found == expected {
        return Ok(());
    }
    Err(StoreError::Checksum { path: path.to_owned(), expected: expected.into(), found })
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    file.rewind()?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            length => hash.update(&buffer[..length]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn copy_raw(from: &Path, to: &Path) -> StoreResult<()> {
    let file = File::create_new(to).map_err(StoreError::io("create the disk", to))?;
    disk::copy(from, &file, to, |_, _| true)
}

/// Refuses a file whose tables point to what is not there: a download that broke off, for the most part.
///
/// `qemu-img convert` reads such ranges as zeros and reports success.
async fn check_qcow2(file: &Path) -> StoreResult<()> {
    let check = HostCommand::new("qemu-img").args(["check", "-q", "-f", "qcow2"]).arg(file).time_limit(CONVERT_LIMIT);
    match check.run().await {
        Ok(_) => Ok(()),
        // Space that nobody uses: wasteful, and harmless.
        Err(HostError::Failed { status, .. }) if status.code() == Some(LEAKS_ONLY) => Ok(()),
        Err(HostError::Failed { .. }) => Err(StoreError::NotImportable {
            path: file.to_owned(),
            reason: "its tables are damaged, or it is not complete".into(),
            hint: Some("download it again; `qemu-img check FILE` says more"),
        }),
        Err(source) => Err(StoreError::Program { action: "check the qcow2 file", source }),
    }
}

async fn convert_qcow2(from: &Path, to: &Path) -> StoreResult<()> {
    // Absolute paths: `qemu-img` takes `nbd:…` and its like for addresses.
    let convert = HostCommand::new("qemu-img")
        .args(["convert", "-q", "-f", "qcow2", "-O", "raw"])
        .arg(from)
        .arg(to)
        .time_limit(CONVERT_LIMIT);
    run("convert the qcow2 file", convert).await.map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    use super::*;
    use crate::testing::{Shop, lacks, message};

    async fn import(shop: &Shop, file: &Path, checksum: Option<&str>) -> StoreResult<BaseRecord> {
        let options = ImportOptions {
            file: file.into(),
            format: None,
            name: "imported".into(),
            checksum: checksum.map(Into::into),
            architecture: Architecture::of_this_machine(),
        };
        shop.store.import(&shop.region, &options, &|_| {}).await
    }

    /// 16 MiB with one byte in it.
    fn sparse_disk(shop: &Shop) -> PathBuf {
        let path = shop.file("disk.img", b"");
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(16 << 20).unwrap();
        file.write_all_at(b"x", 10 << 20).unwrap();
        path
    }

    fn qemu_img(arguments: &[&str], files: &[&Path]) {
        let done = Command::new("qemu-img").args(arguments).args(files).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    async fn refused(content: &[u8]) -> String {
        let shop = Shop::new();
        let file = shop.file("disk.img", content);
        let error = import(&shop, &file, None).await.unwrap_err();
        assert!(shop.store.bases(&shop.region).unwrap().is_empty());
        message(&error)
    }

    fn assert_is_the_sparse_disk(shop: &Shop, base: &BaseRecord) {
        let disk = shop.store.disk_of(&shop.region, &base.id).unwrap();
        let about = fs::metadata(&disk).unwrap();
        assert_eq!((about.len(), about.mode() & 0o777), (16 << 20, 0o400));
        assert!(about.blocks() * 512 < 1 << 20, "holes stay holes: {} blocks", about.blocks());
        let mut byte = [0; 3];
        File::open(&disk).unwrap().read_at(&mut byte, (10 << 20) - 1).unwrap();
        assert_eq!(&byte, b"\0x\0");
    }

    #[tokio::test]
    async fn a_raw_disk_is_copied_with_its_holes() {
        let shop = Shop::new();
        let file = sparse_disk(&shop);
        let checksum = sha256(&file).unwrap();
        let base = import(&shop, &file, Some(&checksum.to_uppercase())).await.unwrap();
        assert_eq!((base.size, base.checksum.as_deref()), (16 << 20, Some(checksum.as_str())));
        assert_is_the_sparse_disk(&shop, &base);
    }

    #[tokio::test]
    async fn a_qcow2_file_goes_in_and_comes_out() {
        if lacks("qemu-img") {
            return;
        }
        let shop = Shop::new();
        let (raw, qcow2) = (sparse_disk(&shop), shop.folder.path().join("disk.qcow2"));
        qemu_img(&["convert", "-f", "raw", "-O", "qcow2"], &[&raw, &qcow2]);
        let base = import(&shop, &qcow2, None).await.unwrap();
        assert_is_the_sparse_disk(&shop, &base);

        let volume = shop.volume(&base.id, "create");
        let snapshot = shop.snapshot(&volume.id, "snapshot");
        shop.register(&snapshot.id, "hello", "image").unwrap();
        let out = shop.folder.path().join("out.qcow2");
        let export = shop.store.export(&shop.region, "hello", DiskFormat::Qcow2, &out, crate::IfThere::Refuse);
        export.await.unwrap();
        qemu_img(&["compare", "-q"], &[&raw, &out]);
        assert!(fs::metadata(out).unwrap().len() < 1 << 20);
    }

    #[tokio::test]
    async fn a_qcow2_file_that_names_another_file_is_refused() {
        if lacks("qemu-img") {
            return;
        }
        let shop = Shop::new();
        let (raw, hostile) = (sparse_disk(&shop), shop.folder.path().join("hostile.qcow2"));
        qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b"], &[&raw, &hostile]);
        let error = import(&shop, &hostile, None).await.unwrap_err();
        insta::assert_snapshot!(message(&error), @"
        `[folder]/hostile.qcow2` cannot be imported: it is only a difference to another file, its backing file
        hint: write it into one file where it comes from: `qemu-img convert -O qcow2 FILE FLAT.qcow2`
        ");
        let data = format!("data_file={}", shop.folder.path().join("data").display());
        fs::remove_file(&hostile).unwrap();
        qemu_img(&["create", "-q", "-f", "qcow2", "-o", &data], &[&hostile, Path::new("1M")]);
        let error = import(&shop, &hostile, None).await.unwrap_err();
        assert!(message(&error).contains("it keeps its data in another file"));
        assert!(shop.store.bases(&shop.region).unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_qcow2_file_that_broke_off_is_refused() {
        if lacks("qemu-img") {
            return;
        }
        let shop = Shop::new();
        let raw = shop.file("disk.raw", &[7; 4 << 20]);
        let whole = shop.folder.path().join("disk.qcow2");
        qemu_img(&["convert", "-f", "raw", "-O", "qcow2"], &[&raw, &whole]);
        let bytes = fs::read(&whole).unwrap();
        let part = shop.file("part.qcow2", &bytes[..bytes.len() / 2]);
        let error = import(&shop, &part, None).await.unwrap_err();
        assert!(message(&error).contains("it is not complete"), "{error}");
        assert!(shop.store.bases(&shop.region).unwrap().is_empty());
        import(&shop, &whole, None).await.unwrap();
    }

    #[tokio::test]
    async fn a_pipe_is_refused_and_not_waited_for() {
        let shop = Shop::new();
        let pipe = shop.folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let error = import(&shop, &pipe, None).await.unwrap_err();
        assert!(message(&error).contains("it is no regular file"), "{error}");
    }

    #[tokio::test]
    async fn a_wrong_checksum_leaves_nothing() {
        let shop = Shop::new();
        let error = import(&shop, &sparse_disk(&shop), Some("00")).await.unwrap_err();
        assert!(message(&error).contains("checksum"));
        assert!(shop.store.bases(&shop.region).unwrap().is_empty());
        let shelf = shop.store.shelf(&shop.region, crate::shelf::Shelf::Bases).unwrap();
        assert_eq!(fs::read_dir(shelf).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_is_no_disk_is_refused_with_a_reason() {
        insta::assert_snapshot!(refused(b"").await, @"`[folder]/disk.img` cannot be imported: a disk of 0 bytes is none: 1 MiB to 16 TiB in whole sectors of 512 bytes are");
        insta::assert_snapshot!(refused(b"\x1f\x8b\x08rest").await, @"
        `[folder]/disk.img` cannot be imported: it is compressed with gzip
        hint: decompress it first
        ");
        insta::assert_snapshot!(refused(b"KDMV").await, @"
        `[folder]/disk.img` cannot be imported: it is a VMDK file
        hint: convert it first: `qemu-img convert -O qcow2 FILE FILE.qcow2`
        ");
        insta::assert_snapshot!(refused(b"QFI\xfb\0\0\0\x03").await, @"`[folder]/disk.img` cannot be imported: its qcow2 header is cut off");
        insta::assert_snapshot!(refused(&vec![7; (1 << 20) + 1]).await, @"`[folder]/disk.img` cannot be imported: a disk of 1048577 bytes is none: 1 MiB to 16 TiB in whole sectors of 512 bytes are");
    }

    proptest::proptest! {
        #[test]
        fn any_header_is_safe(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _either = Qcow2Header::parse(&bytes).and_then(|header| header.check());
        }
    }
}
