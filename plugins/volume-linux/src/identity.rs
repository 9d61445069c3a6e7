//! The identity of a machine (machine-id(5)), which no image may have: all that boot from it would share one, and with it
//! their addresses.
//!
//! Packages such as systemd and dbus make one when they are installed. What the base had is the base's own and stays.

use bake_core::Root;
use bake_engine::{Classify, StepContext, StepResult};
use bake_linux::{RootError, RootPath};

use crate::SandboxRoot;

/// Read by systemd; empty means that the first boot makes one.
const SYSTEMD: &str = "/etc/machine-id";
/// D-Bus' own copy; absent means the same.
const DBUS: &str = "/var/lib/dbus/machine-id";

/// Which identities a root had when it was opened.
pub(crate) struct MachineIdentity {
    systemd: bool,
    dbus: bool,
}

impl MachineIdentity {
    pub(crate) async fn of(root: &mut SandboxRoot) -> StepResult<Self> {
        Ok(Self { systemd: has_content(root, SYSTEMD).await?, dbus: has_content(root, DBUS).await? })
    }

    /// Takes away what was not there before.
    pub(crate) async fn forget_new(&self, root: &mut SandboxRoot, cx: &StepContext) -> StepResult<()> {
        if has_content(root, SYSTEMD).await? && !self.systemd {
            root.write(&RootPath::new(SYSTEMD).permanent()?, b"", 0o444).await.permanent()?;
            cx.log("emptied `/etc/machine-id`, which a package had made");
        }
        // A link to the other file has lost its content with it, and stays.
        if has_content(root, DBUS).await? && !self.dbus {
            root.remove(&RootPath::new(DBUS).permanent()?).await.permanent()?;
            cx.log("removed `/var/lib/dbus/machine-id`, which a package had made");
        }
        Ok(())
    }
}

/// Tells whether a file names a machine. Empty and `uninitialized` both ask the first boot to make a name; what is no file, or
/// a link that leads to none, has none either.
async fn has_content(root: &mut SandboxRoot, path: &str) -> StepResult<bool> {
    match root.read(&RootPath::new(path).permanent()?).await {
        Ok(content) => Ok(content.is_some_and(|content| !matches!(content.trim_ascii(), b"" | b"uninitialized"))),
        Err(RootError::Unusable { .. }) => Ok(false),
        Err(error) => Err(error).permanent(),
    }
}
