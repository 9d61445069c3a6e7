//! A tiny Debian whose `apt-get` and `dpkg` are real, and disks that hold it.

mod disk;
mod root;

pub use disk::{DiskOptions, Filesystem, Table, disk};
pub use root::apt_root;
