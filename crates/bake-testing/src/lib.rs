//! Fakes, contract tests, and the packages and base images that tests bake with.
//!
//! What a bake needs of the world is made here for real, offline and in seconds: Debian packages
//! ([`packages`]), a tiny Debian whose `apt-get` works and disks that hold it ([`base`]). What a bake must leave
//! alone is watched by [`host`], and [`image`] looks into what it made without help from the code under test.
//!
//! For whole bakes in milliseconds, [`fake`] has a plugin of each kind in memory. Every plugin, real or fake, is held to
//! what its trait promises by the tests in [`contract`].
//!
//! Start with [`base::disk`], [`packages::standard`] and [`image::inspect`], or with [`fake::Fakes`]. A test that needs
//! root, or programs that not every machine has, begins with [`needs!`].
//!
//! Everything here panics, with the whole story, where a library would return an error: it speaks to tests.
//! Fixtures are cached in `target/fixtures` and shared by all test processes; delete that folder at will.

pub mod base;
pub mod contract;
pub mod fake;
mod fixture;
pub mod host;
pub mod image;
pub mod packages;
mod run;
pub mod skip;

pub use fixture::{copy_disk, copy_tree};
pub use host::host_packages;
