//! A cloud on the local disk: base images, volumes, snapshots and images in a folder.
//!
//! It needs no account and no network, and it is what `bake` uses when nobody names another cloud. Start with [`Store`],
//! the folder and everything that can be done with it; [`LocalCloud`] shows it to a bake as a cloud like any other.
//!
//! ```text
//! STORE/REGION/bases/base-…/{base.json, disk.raw}
//! STORE/REGION/volumes/vol-…/{volume.json, disk.raw}
//! STORE/REGION/snapshots/snap-…/{snapshot.json, disk.raw}
//! STORE/REGION/images/img-…/image.json
//! ```
//!
//! - A thing appears all at once, by a rename, or not at all. What a killed process leaves is invisible, and removed by
//!   the next one that makes something of the kind.
//! - The id of a thing comes from the token of the operation that makes it, so the same operation, sent again by any
//!   process, gives the same thing.
//! - A snapshot is another name (a hard link) of its volume's disk, which is sealed by then. It costs nothing, and it stays when the
//!   volume goes.
//! - A copy of an image in another region is a snapshot and an image like any other, and so another name of the same bytes.
//!   Two regions are never locked at once.
//! - Whoever works on the disk of a volume holds a `flock` on the open file, exclusive, from opening to closing; its child
//!   processes inherit it. A volume that is locked is neither deleted nor snapshotted.
//! - The lock of a region, a file, is held while names are given and tags are changed.

mod apt_sources;
mod bases;
mod cloud;
mod copies;
mod debian;
mod disk;
mod error;
mod export;
mod images;
mod import;
mod making;
mod mutations;
mod partition;
mod program;
mod random;
mod record;
mod scraps;
mod shelf;
mod snapshots;
mod store;
#[cfg(test)]
mod testing;
mod volumes;

pub use cloud::{INFO, LocalCloud, LocalSettings, build};
pub use debian::{DebianOptions, Variant};
pub use error::{StoreError, StoreResult};
pub use export::{DiskFormat, IfThere};
pub use import::ImportOptions;
pub use mutations::{MadeCopy, MadeLocally, register};
pub use program::{Listener, Progress};
pub use record::{BaseRecord, ImageRecord, SnapshotRecord, VolumeRecord};
pub use store::{Maker, Removed, Store};

#[cfg(test)]
use bases::NewBase;
