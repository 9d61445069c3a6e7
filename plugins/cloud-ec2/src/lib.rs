//! Amazon EC2 as a cloud: AMIs, EBS snapshots, and volumes.
//!
//! Start with `aws::Ec2Cloud`. There is a file for each kind of change: `disks` and `snapshots` (a disk file with the bytes of the
//! base's snapshot, and what was changed in it, uploaded through the EBS direct API), `images`, `copies`, `sharing`,
//! `tagging`. `connection` is how AWS is reached, `calls` how it is spoken to, and `failures` what its errors mean.
//!
//! This is the only plugin that names an AWS crate, and without its feature `aws` not even this one does: what may be written in
//! files is known to every `bake`, and the rest to those that can do it.

// The futures of the AWS crates nest deeper than the compiler looks by itself.
#![recursion_limit = "256"]

#[cfg(feature = "aws")]
mod aws;
mod settings;

#[cfg(feature = "aws")]
pub use aws::{
    Address, Ec2Cloud, Folders, Keys, Made, MadeAttachment, MadeDisk, SnapshotTransfers, UploadSnapshot,
    UploadedSnapshot, build, register,
};
pub use settings::{Ec2Settings, INFO, Way};
