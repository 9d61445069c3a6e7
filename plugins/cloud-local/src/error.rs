//! What can go wrong in the store, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use bake_core::Region;
use bake_engine::{Class, Failure};
use bake_linux::HostError;
use bake_linux::copy::CloneError;

use crate::shelf::Shelf;
use bake_core::TagError;

/// The result of anything the store does.
pub type StoreResult<T> = Result<T, StoreError>;

/// Why the store refused or failed. What was being made is gone again.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk or its permissions said no.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was tried: `create the folder`.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A disk could not be copied.
    #[error("cannot copy the disk to `{}`", path.display())]
    Copy {
        /// The copy.
        path: PathBuf,
        /// Why.
        source: CloneError,
    },
    /// A record is broken.
    #[error("the record `{}` cannot be read", path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// Where in it, and why.
        source: serde_json::Error,
    },
    /// A record comes from a newer program.
    #[error("the record `{}` has version {found}, and this program knows versions up to {known}", path.display())]
    NewerRecord {
        /// The record.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that can be read.
        known: u32,
    },
    /// A region's name cannot be a folder.
    #[error("`{0}` cannot name a region: letters, digits, `.`, `_` and `-` can, beginning with a letter or a digit")]
    RegionName(String),
    /// A name cannot be given to an image.
    #[error("`{name}` cannot name an image: {reason}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Another image has the name.
    #[error("the name `{name}` is taken in region `{region}` by the {holder} `{id}`")]
    NameTaken {
        /// The name.
        name: String,
        /// Where.
        region: Region,
        /// What has it.
        holder: &'static str,
        /// Its id.
        id: String,
        /// How another name is given.
        hint: &'static str,
    },
    /// Nothing has that id or name.
    #[error("there is no {what} `{wanted}` in region `{region}`")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// Its id or name.
        wanted: String,
        /// Where.
        region: Region,
        /// What was probably meant.
        similar: Option<String>,
        /// What there is, newest first, a line each.
        candidates: Vec<String>,
    },
    /// The snapshot that an image was made of is gone, or has no bytes.
    #[error("the image `{image}` in region `{region}` has lost its disk")]
    ImageWithoutDisk {
        /// The image's id.
        image: String,
        /// Where.
        region: Region,
    },
    /// Several have that name.
    #[error("{} in region `{region}` are called `{wanted}`", candidates.len())]
    Ambiguous {
        /// The name.
        wanted: String,
        /// Where.
        region: Region,
        /// Those that have it, a line each.
        candidates: Vec<String>,
    },
    /// No base was asked for, and there are several.
    #[error("region `{region}` has {} base images, and none was chosen", candidates.len())]
    NoBaseChosen {
        /// Where.
        region: Region,
        /// What there is, newest first, a line each.
        candidates: Vec<String>,
    },
    /// There is nothing to start from.
    #[error("region `{region}` of the store `{}` has no base image", store.display())]
    NoBases {
        /// Where.
        region: Region,
        /// The store.
        store: PathBuf,
    },
    /// Another process makes the same thing at this moment.
    #[error("another process is making `{0}`")]
    BeingMade(String),
    /// The volume has no bytes yet.
    #[error("volume `{0}` is not complete yet")]
    VolumeIncomplete(String),
    /// Somebody has the volume's disk open.
    #[error("volume `{0}` is in use")]
    VolumeInUse(String),
    /// A snapshot was taken of the volume; its bytes must stay.
    #[error("volume `{0}` is sealed: a snapshot was taken of it")]
    VolumeSealed(String),
    /// Something that a run made belongs to another run.
    #[error("`{id}` belongs to run `{found}`, not to `{expected}`")]
    NotOurs {
        /// What.
        id: String,
        /// The run that asked.
        expected: String,
        /// The run on its tag.
        found: String,
    },
    /// Tags that EC2 would not take either.
    #[error(transparent)]
    Tags(#[from] TagError),
    /// The work was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// A program of the host is missing or failed.
    #[error("cannot {action}")]
    Program {
        /// What it was for.
        action: &'static str,
        /// Why.
        source: HostError,
    },
    /// A file is not a disk image that can be imported.
    #[error("`{}` cannot be imported: {reason}", path.display())]
    NotImportable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// A file is not the one that was meant.
    #[error("`{}` has the SHA-256 checksum `{found}`, not `{expected}`", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The target of an export is a device, a pipe, a link or a folder.
    #[error("`{}` is no plain file, and will not be replaced by one", .0.display())]
    NotAFile(PathBuf),
    /// The target of an export is there already.
    #[error("`{}` is there already", .0.display())]
    Exists(PathBuf),
    /// A base image cannot be made as asked.
    #[error("cannot make a base image: {reason}")]
    CannotCreate {
        /// Why.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
        /// What the program that failed said last.
        lines: Vec<String>,
    },
    /// A partition table could not be written.
    #[error("cannot write the partition table of `{}`", path.display())]
    PartitionTable {
        /// The disk.
        path: PathBuf,
        /// Why.
        source: gptman::Error,
    },
}

impl StoreError {
    /// Says what was tried with which file: `fs::write(…).map_err(StoreError::io("write", path))`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

impl Failure for StoreError {
    fn class(&self) -> Class {
        match self {
            Self::BeingMade(_) | Self::VolumeIncomplete(_) => Class::Transient,
            Self::VolumeInUse(_) => Class::InUse,
            Self::Cancelled => Class::Cancelled,
            Self::Io { .. }
            | Self::Copy { .. }
            | Self::Record { .. }
            | Self::NewerRecord { .. }
            | Self::RegionName(_)
            | Self::Name { .. }
            | Self::NameTaken { .. }
            | Self::NotFound { .. }
            | Self::ImageWithoutDisk { .. }
            | Self::Ambiguous { .. }
            | Self::NoBaseChosen { .. }
            | Self::NoBases { .. }
            | Self::VolumeSealed(_)
            | Self::NotOurs { .. }
            | Self::Tags(_)
            | Self::Program { .. }
            | Self::NotImportable { .. }
            | Self::Checksum { .. }
            | Self::Exists(_)
            | Self::NotAFile(_)
            | Self::CannotCreate { .. }
            | Self::PartitionTable { .. } => Class::Permanent,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Io { path, source, .. } => return io_hint(path, source),
            Self::Copy { path, source: CloneError::System(source) } => return io_hint(path, source),
            Self::Copy { path, .. } => full_hint(path),
            Self::Record { path, .. } => {
                let folder = path.parent().unwrap_or(path);
                format!("mend the record, or remove `{}` if nobody needs it", folder.display())
            }
            Self::NewerRecord { .. } => "use the newer `bake` that wrote it".into(),
            Self::NameTaken { hint, .. } => (*hint).into(),
            Self::NotFound { similar: Some(similar), .. } => format!("did you mean `{similar}`?"),
            Self::NotFound { what, candidates, .. } if candidates.is_empty() && *what == Shelf::Bases.word() => {
                CREATE_HINT.into()
            }
            Self::ImageWithoutDisk { image, region } => {
                format!("remove it with `bake image rm {image} --region {region}`, and bake it again")
            }
            Self::Ambiguous { .. } => "give the id instead".into(),
            Self::NoBaseChosen { .. } => "choose one with `--base NAME`".into(),
            Self::NoBases { .. } => CREATE_HINT.into(),
            Self::Program { source: HostError::Missing { program }, .. } => {
                format!("install it: `apt-get install {}`", debian_package(program))
            }
            Self::NotImportable { hint, .. } => return hint.map(Into::into),
            Self::CannotCreate { hint, .. } => return hint.clone(),
            Self::NotAFile(_) => "choose a path where there is nothing yet, or a plain file".into(),
            Self::Exists(_) => "choose another file, or pass `--force` to replace it".into(),
            Self::RegionName(_)
            | Self::Name { .. }
            | Self::NotFound { .. }
            | Self::BeingMade(_)
            | Self::VolumeIncomplete(_)
            | Self::VolumeInUse(_)
            | Self::VolumeSealed(_)
            | Self::NotOurs { .. }
            | Self::Tags(_)
            | Self::Cancelled
            | Self::Program { .. }
            | Self::Checksum { .. }
            | Self::PartitionTable { .. } => return None,
        })
    }

    fn details(&self) -> Vec<String> {
        match self {
            Self::NotFound { candidates, .. }
            | Self::Ambiguous { candidates, .. }
            | Self::NoBaseChosen { candidates, .. } => candidates.clone(),
            Self::CannotCreate { lines, .. } => lines.clone(),
            _ => Vec::new(),
        }
    }
}

const CREATE_HINT: &str = "make one with `bake base create debian --suite bookworm`";

fn io_hint(path: &Path, source: &io::Error) -> Option<String> {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(full_hint(path)),
        io::ErrorKind::PermissionDenied => {
            Some("run it as root, or keep the store where you may write with `--state-dir`".into())
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            Some("keep the store on a disk that can be written with `--state-dir`".into())
        }
        _ => None,
    }
}

pub(crate) fn full_hint(path: &Path) -> String {
    let lasting = lasting(path).display();
    format!("free some space on the disk of `{lasting}`, or keep the store on a larger one with `--state-dir`")
}

/// The part of a path that is still there when what was being made is gone.
fn lasting(path: &Path) -> &Path {
    let hidden = |part: &Path| part.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let made = path.ancestors().filter(|part| hidden(part)).last();
    made.and_then(Path::parent).unwrap_or(path)
}

/// The Debian package that brings a program.
fn debian_package(program: &str) -> &str {
    match program {
        "qemu-img" => "qemu-utils",
        "mkfs.ext4" => "e2fsprogs",
        "unshare" => "util-linux",
        "apt-get" | "apt-config" => "apt",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::message;

    #[test]
    fn a_full_disk_says_what_was_tried_and_what_to_do() {
        let path = Path::new("/store/here/volumes/.making-vol-1/volume.json");
        let error = StoreError::io("write", path)(io::Error::from(io::ErrorKind::StorageFull));
        insta::assert_snapshot!(message(&error), @"
        cannot write `/store/here/volumes/.making-vol-1/volume.json`: no storage space
        hint: free some space on the disk of `/store/here/volumes`, or keep the store on a larger one with `--state-dir`
        ");
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let source = HostError::Missing { program: "qemu-img".into() };
        let error = StoreError::Program { action: "convert the qcow2 file", source };
        insta::assert_snapshot!(message(&error), @"
        cannot convert the qcow2 file: `qemu-img` is not installed on this host
        hint: install it: `apt-get install qemu-utils`
        ");
    }
}
