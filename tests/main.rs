//! Whole-program tests: the `bake` that users run, on real disks, with real packages, in folders of their own.

mod baking;
mod cancelled;
#[cfg(feature = "ec2")]
mod ec2;
#[cfg(feature = "ec2")]
mod ec2_attached;
#[cfg(feature = "ec2")]
mod ec2_faults;
#[cfg(feature = "ec2")]
mod ec2_many;
#[cfg(feature = "ec2")]
mod ec2_preflight;
#[cfg(feature = "ec2")]
mod ec2_snapshots;
mod environments;
mod failing;
mod house;
mod isolation;
mod killed;
mod resumed;
mod runs;
