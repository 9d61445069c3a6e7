//! Amazon EC2 as a cloud: AMIs, EBS snapshots, and volumes.
//!
//! Start with [`Ec2Cloud`]. There is a file for each kind of change: `disks` and `snapshots` (a disk file with the bytes of the
//! base's snapshot, and what was changed in it, uploaded through the EBS direct API), `images`, `copies`, `sharing`,
//! `tagging`. `connection` is how AWS is reached, `calls` how it is spoken to, and `failures` what its errors mean.
//!
//! This is the only plugin that names an AWS crate.

mod base;
mod blocks;
mod cache;
mod calls;
mod cloud;
mod connection;
mod context;
mod copies;
mod disks;
mod failures;
mod images;
mod scraps;
mod settings;
mod sharing;
mod snapshots;
mod tagging;
mod waiting;

pub use cloud::{Ec2Cloud, build, register};
pub use connection::{Address, Keys};
pub use context::Folders;
pub use disks::MadeDisk;
pub use images::Made;
pub use settings::{Ec2Settings, INFO, Way};
