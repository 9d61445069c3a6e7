//! What a plugin is: one trait for each kind, with its contract.
//!
//! All plugin code runs in the process of `bake` itself; what must happen with root's rights inside an image goes through
//! [`Root`]. A plugin never prints and never reads the process's environment: all it needs reaches it through its settings.

mod ahead;
mod blockdevice;
mod cloud;
mod finalizer;
mod provisioner;
mod volume;

pub use ahead::{Ahead, CopyTarget, Wishes};
pub use blockdevice::{BlockDevice, Disk, Medium};
pub use cloud::{BaseQuery, Cloud, CloudKinds, Scrap, ScrapKind, VolumeKinds};
pub(crate) use finalizer::pointer;
pub use finalizer::{BakeHandles, Finalizer, ImageName, Images, Needs, PlanError, TagTemplates, Templates};
pub use provisioner::Provisioner;
pub use volume::{OpenVolume, Root, Volumes};
