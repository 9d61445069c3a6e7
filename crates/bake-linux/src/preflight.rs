//! What this host lacks, told before anything is touched.

use std::fs::File;
use std::path::Path;

use crate::worker::package_of;

/// The programs that check filesystems.
const TOOLS: [&str; 2] = ["e2fsck", "xfs_repair"];
/// The first kernel with `mount_setattr`, the youngest call that the sandbox needs.
const OLDEST_KERNEL: (u32, u32) = (5, 12);

/// What the host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostReport {
    /// The kernel's release, as `uname -r` shows it.
    pub kernel: String,
    /// What works only in part, with what to do about it.
    pub warnings: Vec<String>,
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
    let found = Found {
        is_root: rustix::process::geteuid().is_root(),
        can_mount: caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_SYS_ADMIN).unwrap_or(false),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        has_loop: File::open("/dev/loop-control").is_ok(),
        missing_tools: TOOLS.into_iter().filter(|tool| !is_installed(tool)).collect(),
    };
    found.judge()
}

fn is_installed(tool: &str) -> bool {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|folder| Path::new(folder).join(tool).exists())
}

struct Found {
    is_root: bool,
    can_mount: bool,
    kernel: String,
    has_loop: bool,
    missing_tools: Vec<&'static str>,
}

impl Found {
    fn judge(self) -> Result<HostReport, PreflightError> {
        let mut missing = Vec::new();
        let mut warnings = Vec::new();
        if !self.is_root {
            missing.push("not root (run it with `sudo`)".to_owned());
        } else if !self.can_mount {
            missing.push("root without CAP_SYS_ADMIN (start the container with `--privileged`)".to_owned());
        }
        if version(&self.kernel).is_none_or(|version| version < OLDEST_KERNEL) {
            let (major, minor) = OLDEST_KERNEL;
            missing.push(format!("kernel {} is too old ({major}.{minor} or later is needed)", self.kernel));
        }
        if !self.has_loop && self.is_root {
            missing.push("`/dev/loop-control` cannot be opened (run `modprobe loop`)".to_owned());
        }
        for tool in self.missing_tools {
            let package = package_of(tool);
            match tool {
                "e2fsck" => missing.push(format!("`{tool}` is not installed (install the package `{package}`)")),
                _ => warnings.push(format!("no images with xfs: `{tool}` is not installed (package `{package}`)")),
            }
        }
        if missing.is_empty() {
            Ok(HostReport { kernel: self.kernel, warnings })
        } else {
            Err(PreflightError { missing })
        }
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_said_at_once() {
        let found = Found {
            is_root: true,
            can_mount: false,
            kernel: "4.19.0-27-amd64".to_owned(),
            has_loop: false,
            missing_tools: TOOLS.into(),
        };
        let error = found.judge().unwrap_err();
        insta::assert_snapshot!(error.missing.join("\n"), @r"
        root without CAP_SYS_ADMIN (start the container with `--privileged`)
        kernel 4.19.0-27-amd64 is too old (5.12 or later is needed)
        `/dev/loop-control` cannot be opened (run `modprobe loop`)
        `e2fsck` is not installed (install the package `e2fsprogs`)
        ");
    }

    #[test]
    fn xfs_is_not_needed_by_everybody() {
        let found = Found {
            is_root: true,
            can_mount: true,
            kernel: "6.1.0".to_owned(),
            has_loop: true,
            missing_tools: vec!["xfs_repair"],
        };
        insta::assert_snapshot!(
            found.judge().unwrap().warnings.join("\n"),
            @"no images with xfs: `xfs_repair` is not installed (package `xfsprogs`)"
        );
    }

    #[test]
    fn releases_come_in_many_forms() {
        assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version("5.15-rc1"), Some((5, 15)));
        assert_eq!(version("6"), None);
        assert_eq!(version(""), None);
    }
}
