//! Everything that speaks to AWS.

mod attachments;
mod base;
mod blocks;
mod cache;
mod calls;
mod cloud;
mod connection;
mod context;
mod copies;
mod disks;
mod guarding;
mod images;
mod instance;
mod own_base;
mod preflight;
mod scraps;
mod sharing;
mod snapshots;
mod tagging;
mod transfer;
mod volumes;
mod waiting;

pub use attachments::MadeAttachment;
pub use cloud::{Ec2Cloud, build, register};
pub use connection::{Address, Keys};
pub use context::Folders;
pub use disks::MadeDisk;
pub use images::Made;
pub use transfer::{SnapshotTransfers, UploadSnapshot, UploadedSnapshot};
