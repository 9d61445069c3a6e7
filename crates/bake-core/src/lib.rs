//! The domain of `bake`: what plugins are, what a bake handles, and the recipe that turns an environment into a plan.
//!
//! Start with [`Bake::plan`]: the whole bake on one screen. The kinds of plugin are in [`plugin`], each with its contract
//! on its trait; the data that steps hand to each other is at the top of this crate ([`BaseImage`], [`Installed`],
//! [`Snapshot`], [`Image`], …). Nothing here prints, reads the environment of the process, or knows a cloud.
//!
//! Design: `ARCHITECTURE.md` and `docs/design/0001-the-house.md`.

mod bake;
mod identity;
mod ids;
mod image_name;
mod known;
mod model;
pub mod plugin;
mod request;
mod tag_limits;
mod template;

pub use bake::{Bake, Composition, FinalizerUse, MediumMismatch, OnFailure, Planned, to_take_back};
pub use identity::{DEFAULT_DESCRIPTION, DEFAULT_NAME, DESCRIPTION};
pub use ids::{Account, Architecture, BaseId, ImageId, Region, SnapshotId, VolumeId};
pub use image_name::TooShort;
pub use known::{Explanation, Facts, Known, Moment, NAMES, Name, NameUse, VariableError, find_name};
pub use model::{
    AppVersion, AttachVolume, Attachment, BaseImage, CopyImage, CreateSnapshot, CreateVolume, Encryption, GuardImage,
    Identity, Image, Installed, Machine, OwnBase, OwnedBase, Package, PackageChanges, RegisterImage, Renamed, Rendered,
    RootDisk, Sealed, ShareImage, Shared, Snapshot, TagResource, Taggable, Tagged, Tags, Volume,
};
pub use plugin::{
    Ahead, BakeHandles, BaseQuery, BlockDevice, Cloud, CloudKinds, CopyTarget, Disk, Finalizer, ImageName, Images,
    Medium, Needs, OpenVolume, PlanError, Provisioner, Root, Scrap, ScrapKind, TagTemplates, Templates, VolumeKinds,
    Volumes, Wishes,
};
pub use request::{PackageRequest, PackageSpec, RequestError};
pub use tag_limits::{TagError, check_tags};
pub use template::TemplateError;
