//! What the traits of plugins promise, as tests that every plugin and every fake runs.
//!
//! One function for each kind of plugin. It takes a closure that makes a fresh plugin with a fresh state, and calls it for
//! every promise anew. A broken promise is a panic; which one it was, is the last `promise:` line of the test's output.
//!
//! ```no_run
//! # use bake_testing::{contract, fake};
//! #[tokio::test]
//! # async fn hidden() {}
//! # async fn
//! keeps_the_contract() {
//!     contract::finalizer(|_cloud| Ok(std::sync::Arc::new(fake::FakeFinalizer::look()))).await;
//! }
//! ```

mod blockdevice;
mod cloud;
mod finalizer;
mod process;
mod provisioner;
mod volumes;

use bake_engine::{Cancel, StepContext};

pub use blockdevice::{DiskCase, blockdevice};
pub use cloud::{CloudWorld, cloud};
pub use finalizer::{finalizer, finalizer_with};
pub use provisioner::{ProvisionerCase, provisioner};
pub use volumes::{VolumeCase, volumes};

/// Says what is tried next. Tests print it only if they fail.
fn promise(text: &str) {
    eprintln!("promise: {text}");
}

/// A context outside any run.
fn cx() -> StepContext {
    StepContext::detached("contract", &Cancel::new())
}
