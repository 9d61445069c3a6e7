//! What this host lacks, told before anything is touched.

/// What the host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostReport {
    /// The kernel's release, as `uname -r` shows it.
    pub kernel: String,
}

/// Everything the host lacks, in one go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this host cannot bake: {}", missing.join("; "))]
pub struct PreflightError {
    /// One line for each thing, with what to do about it.
    pub missing: Vec<String>,
}

/// Tells what this host lacks (root, loop module, kernel version, check programs), before anything is touched.
pub fn preflight() -> Result<HostReport, PreflightError> {
    unimplemented!()
}
