//! Plugins in memory, for whole bakes in milliseconds.
//!
//! [`Fakes`] is one of each, ready to bake; [`FakeCloud`] can fail, lose an answer or cancel the run at any of its calls,
//! and tells what is [alive](FakeCloud::alive) afterwards. Each of them passes the same [contract](crate::contract) tests
//! as the real plugins.

mod bench;
mod blockdevice;
mod cloud;
mod finalizer;
mod kinds;
mod provisioner;
mod root;
mod volumes;

pub use bench::{Baked, Fakes};
pub(crate) use bench::{memory_folder, run_spec};
pub use blockdevice::FakeBlockDevice;
pub use cloud::{FakeCloud, Fault, Lacks};
pub use finalizer::FakeFinalizer;
pub use provisioner::FakeProvisioner;
pub use root::{FakeRoot, Files, Reply};
pub use volumes::FakeVolumes;
