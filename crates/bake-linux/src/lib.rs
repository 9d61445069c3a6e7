//! Kernel resources of one bake, owned by a child process: sandbox, loop devices, mounts, files inside a root.
//!
//! Start with [`Sandbox::start`], then [`Sandbox::open`] a disk, [`Root::run`] commands in it, and [`Root::seal`] it.
//! Nothing this crate makes outlives the process that asked for it, even when that process is killed:
//!
//! ```text
//! bake            the host's namespaces; holds one end of a socket
//! └─ init         process 1 of new mount, PID, IPC and UTS namespaces; ends when the socket hangs up
//!    └─ worker    the host's tree, read-only; holds the loop device and the mount of the volume
//!       └─ commands   a third mount namespace whose root *is* the image
//! ```
//!
//! The child is this very program, executed again, so `main` must begin with [`enter_if_sandbox`].
//!
//! Outside the sandbox, [`HostCommand`] runs the host's own programs, and [`copy`] clones disk files.
//!
//! Design: `docs/design/0003-kernel-resources.md`.

mod client;
mod command;
pub mod copy;
mod entry;
mod error;
mod filesystem;
mod holders;
mod host_command;
mod init;
mod kernel;
mod layout;
mod loop_device;
mod mounts;
mod open;
mod preflight;
mod root;
mod root_path;
mod run;
mod sandbox;
mod sealed;
mod spawn;
mod wire;
mod worker;

pub use command::{Capabilities, Command, Network, Outcome, OutputSink, Stdin, Sync};
pub use entry::{Entry, enter_if_sandbox, set_entry};
pub use error::{Errno, OpenError, RootError, RunError, SandboxError, SandboxLost, SealError, SystemError};
pub use filesystem::{Check, Filesystem, FilesystemKind, Space};
pub use holders::{Holder, HolderScope, Holding};
pub use host_command::{HostCommand, HostError, HostOutput};
pub use layout::{Candidate, LayoutError, PartitionChoice, Purpose, RootPartition, find_root};
pub use loop_device::LoopDevice;
pub use open::OpenOptions;
pub use preflight::{HostReport, PreflightError, preflight};
pub use root::{EntryKind, Root, RootEntry};
pub use root_path::{RootPath, RootPathError};
pub use sandbox::{Sandbox, SandboxOptions};
pub use sealed::{SealOptions, SealedDisk, Trim};
