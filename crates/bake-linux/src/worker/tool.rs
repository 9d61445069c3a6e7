//! Programs of the host that the worker needs: the filesystem checkers.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Attempt, OpenError, SealError, SystemError};
use crate::filesystem::{Check, FilesystemKind};

/// The lines at the end of a checker's output that say what is wrong.
const LAST_LINES: usize = 5;

/// Why there is no clean bill of health.
#[derive(Debug)]
pub(super) enum CheckError {
    MissingTool { tool: &'static str },
    Damaged { tool: &'static str, report: String },
    System(SystemError),
}

impl From<SystemError> for CheckError {
    fn from(error: SystemError) -> CheckError {
        CheckError::System(error)
    }
}

/// The Debian package of a checker.
pub(crate) fn package_of(tool: &str) -> &'static str {
    match tool {
        "xfs_repair" => "xfsprogs",
        _ => "e2fsprogs",
    }
}

impl From<CheckError> for OpenError {
    fn from(error: CheckError) -> OpenError {
        match error {
            CheckError::MissingTool { tool } => {
                OpenError::MissingTool { tool: tool.to_owned(), package: package_of(tool).to_owned() }
            }
            CheckError::Damaged { tool, report } => OpenError::Damaged { tool: tool.to_owned(), report },
            CheckError::System(error) => OpenError::System(error),
        }
    }
}

impl From<CheckError> for SealError {
    fn from(error: CheckError) -> SealError {
        match error {
            CheckError::MissingTool { tool } => {
                let missing = Err::<(), _>(rustix::io::Errno::NOENT).attempt(format!("run `{tool}`"));
                SealError::System(missing.expect_err("is an error"))
            }
            CheckError::Damaged { tool, report } => SealError::Damaged { tool: tool.to_owned(), report },
            CheckError::System(error) => SealError::System(error),
        }
    }
}

/// Checks a filesystem before it is mounted. Changes nothing on it but for replaying a journal, as mounting would.
pub(super) fn check_before(kind: FilesystemKind, device: &Path) -> Result<Check, CheckError> {
    match kind {
        FilesystemKind::Ext4 => {
            // The journal only: a full `-p` "repairs" damage by dropping files.
            let replay = run("e2fsck", &["-p", "-E", "journal_only"], device)?;
            if let Some(reason) = too_old(&replay) {
                return Ok(Check::Skipped(reason));
            }
            replay.expect_zero()?;
            check_after(kind, device)
        }
        FilesystemKind::Xfs => {
            // Asked for now rather than missed at the end of the bake.
            run("xfs_repair", &["-V"], Path::new(""))?.expect_zero()?;
            Ok(Check::Skipped("the kernel replays the log of xfs when it mounts; it is checked when sealed".to_owned()))
        }
        FilesystemKind::Btrfs => Ok(Check::Skipped("btrfs is not checked".to_owned())),
    }
}

/// Checks an unmounted filesystem, and changes nothing.
pub(super) fn check_after(kind: FilesystemKind, device: &Path) -> Result<Check, CheckError> {
    let report = match kind {
        FilesystemKind::Ext4 => run("e2fsck", &["-f", "-n"], device)?,
        FilesystemKind::Xfs => run("xfs_repair", &["-n"], device)?,
        FilesystemKind::Btrfs => return Ok(Check::Skipped("btrfs is not checked".to_owned())),
    };
    if let Some(reason) = too_old(&report) {
        return Ok(Check::Skipped(reason));
    }
    report.expect_zero()?;
    Ok(Check::Clean)
}

struct Report {
    tool: &'static str,
    code: Option<i32>,
    text: String,
}

impl Report {
    fn expect_zero(self) -> Result<(), CheckError> {
        match self.code {
            Some(0) => Ok(()),
            _ => Err(CheckError::Damaged { tool: self.tool, report: last_lines(&self.text) }),
        }
    }
}

/// A new image on an older host: the checker knows less than the kernel, which then has the say.
fn too_old(report: &Report) -> Option<String> {
    let too_old = report.code == Some(8) && report.text.contains("unsupported feature");
    too_old.then(|| format!("this host's {} does not know a feature of the filesystem", report.tool))
}

fn run(tool: &'static str, arguments: &[&str], device: &Path) -> Result<Report, CheckError> {
    let mut command = Command::new(tool);
    command.args(arguments).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
    if !device.as_os_str().is_empty() {
        command.arg(device);
    }
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(CheckError::MissingTool { tool }),
        Err(error) => {
            return Err(Err::<(), _>(error).attempt(format!("run `{tool}`")).expect_err("is an error").into());
        }
    };
    let text = [output.stdout, output.stderr].concat();
    Ok(Report { tool, code: output.status.code(), text: String::from_utf8_lossy(&text).into_owned() })
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_report_is_what_counts() {
        let text = (1..9).map(|n| format!("line {n}\n\n")).collect::<String>();
        insta::assert_snapshot!(last_lines(&text), @"line 4 / line 5 / line 6 / line 7 / line 8");
        assert_eq!(last_lines(""), "");
    }

    #[test]
    fn an_old_checker_is_no_damage() {
        let report = |code, text: &str| Report { tool: "e2fsck", code: Some(code), text: text.to_owned() };
        assert!(too_old(&report(8, "d.img has unsupported feature(s): FEATURE_C12")).is_some());
        assert!(too_old(&report(8, "Bad magic number in super-block")).is_none());
        assert!(too_old(&report(4, "unsupported feature")).is_none());
    }
}
