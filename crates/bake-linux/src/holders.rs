//! Who uses the volume.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Attempt, SystemError};

/// Longer command lines are cut in messages.
const LONGEST_COMMAND: usize = 120;

/// A process that keeps the volume in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its number, in the namespace that `scope` names.
    pub pid: u32,
    /// The command line, or the kernel's short name for it.
    pub command: String,
    /// The letter that `ps` shows: `S` sleeps, `D` waits for a disk.
    pub state: char,
    /// By what it holds the volume; empty for a process of the sandbox that does not.
    pub holding: Vec<Holding>,
    /// Where it was seen.
    pub scope: HolderScope,
}

/// Where a holder was seen, and so what its number means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HolderScope {
    /// A process of the sandbox; it can be ended by sealing.
    Sandbox,
    /// A process of the host; only its owner can end it.
    Host,
}

/// A way to keep a volume in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holding {
    /// Its working directory is there.
    WorkingDirectory,
    /// Its root directory is there.
    Root,
    /// It executes a program from there.
    Executable,
    /// It has this file open.
    File(String),
    /// It has this file mapped into its memory.
    Mapping(String),
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = match self.scope {
            HolderScope::Sandbox => "in the sandbox",
            HolderScope::Host => "on the host",
        };
        write!(f, "`{}` (pid {} {place}", self.command, self.pid)?;
        if let Some(holding) = self.holding.first() {
            write!(f, ", {holding}")?;
        }
        f.write_str(")")
    }
}

impl std::fmt::Display for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holding::WorkingDirectory => f.write_str("working directory"),
            Holding::Root => f.write_str("root directory"),
            Holding::Executable => f.write_str("program"),
            Holding::File(path) => write!(f, "file `{path}`"),
            Holding::Mapping(path) => write!(f, "mapped file `{path}`"),
        }
    }
}

/// Lists holders for an error message.
pub(crate) fn list(holders: &[Holder]) -> String {
    match holders {
        [] => "somebody in another mount namespace".to_owned(),
        some => some.iter().map(Holder::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Puts a remark in brackets, or nothing if there is none.
pub(crate) fn in_brackets(remark: &str) -> String {
    if remark.is_empty() { String::new() } else { format!(" ({remark})") }
}

/// Lists the processes of this PID namespace but for its first one and us: what runs in the sandbox, asked by the worker.
pub(crate) fn in_sandbox() -> Result<Vec<Holder>, SystemError> {
    let own = [1, std::process::id()];
    let processes = processes().attempt("list the processes")?;
    Ok(processes.filter(|pid| !own.contains(pid)).filter_map(|pid| describe(pid, HolderScope::Sandbox)).collect())
}

/// Lists the processes that use a filesystem, as far as this PID namespace sees them.
pub(crate) fn of_device(device: u64, scope: HolderScope) -> Vec<Holder> {
    let Ok(processes) = processes() else { return Vec::new() };
    let held = processes.filter_map(|pid| {
        let holding = holding(pid, device);
        if holding.is_empty() { None } else { describe(pid, scope).map(|holder| Holder { holding, ..holder }) }
    });
    held.collect()
}

/// Tells whether a process of the host is in the PID namespace of this sandbox.
pub(crate) fn is_in_sandbox(pid: u32, sandbox: u32) -> bool {
    let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    namespace(pid).is_some_and(|of_process| namespace(sandbox) == Some(of_process))
}

fn processes() -> std::io::Result<impl Iterator<Item = u32>> {
    let entries = std::fs::read_dir("/proc")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

/// Describes a process; `None` if it has ended, or is a zombie that only waits to be seen.
fn describe(pid: u32, scope: HolderScope) -> Option<Holder> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let (name, state) = name_and_state(&stat)?;
    if matches!(state, 'Z' | 'X') {
        return None;
    }
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> =
        words.split(|&byte| byte == 0).filter(|word| !word.is_empty()).map(String::from_utf8_lossy).collect();
    let command = if words.is_empty() { name } else { shorten(&words.join(" ")) };
    Some(Holder { pid, command, state, holding: Vec::new(), scope })
}

/// Takes `pid (name) state …` apart; the name may hold anything, brackets and spaces too.
fn name_and_state(stat: &[u8]) -> Option<(String, char)> {
    let (open, close) = (stat.iter().position(|&b| b == b'(')?, stat.iter().rposition(|&b| b == b')')?);
    let name = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
    Some((name, char::from(*stat.get(close + 2)?)))
}

fn shorten(command: &str) -> String {
    // A process names itself; what it says must not reach a terminal as a command.
    let command = &command.replace(char::is_control, "\u{fffd}");
    match command.char_indices().nth(LONGEST_COMMAND) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command.to_owned(),
    }
}

/// Finds by what a process holds a filesystem. What it may not look at, or what ends meanwhile, is passed over.
fn holding(pid: u32, device: u64) -> Vec<Holding> {
    let is_there = |path: &Path| std::fs::metadata(path).is_ok_and(|metadata| metadata.dev() == device);
    let process = Path::new("/proc").join(pid.to_string());
    let mut found = Vec::new();
    for (link, holding) in [("cwd", Holding::WorkingDirectory), ("root", Holding::Root), ("exe", Holding::Executable)] {
        if is_there(&process.join(link)) {
            found.push(holding);
        }
    }
    for entry in std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
        if is_there(&entry.path()) {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            found.push(Holding::File(target.display().to_string()));
        }
    }
    let maps = std::fs::read(process.join("maps")).unwrap_or_default();
    let mut mapped: Vec<_> =
        String::from_utf8_lossy(&maps).lines().filter_map(|line| mapped_file(line, device)).collect();
    mapped.dedup();
    found.extend(mapped.into_iter().map(Holding::Mapping));
    found
}

/// Returns the file of a line of `maps` (`range permissions offset major:minor inode path`) if it is on the device.
fn mapped_file(line: &str, device: u64) -> Option<String> {
    let mut fields = line.split_ascii_whitespace();
    let (major, minor) = fields.nth(3)?.split_once(':')?;
    let (major, minor) = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    (rustix::fs::makedev(major, minor) == device).then(|| fields.skip(1).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_any_name() {
        let parsed = name_and_state(b"17 (a) S (b) D 1 17 17 0").unwrap();
        assert_eq!(parsed, ("a) S (b".to_owned(), 'D'));
        for odd in ["", "17", "17 (a", "17 (a)", ")(", "17 a) S (b"] {
            assert_eq!(name_and_state(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn a_mapping_is_known_by_its_device() {
        let line = "7f00-7f01 r--p 00000000 07:03 1234    /usr/lib/some thing.so";
        assert_eq!(mapped_file(line, rustix::fs::makedev(7, 3)).as_deref(), Some("/usr/lib/some thing.so"));
        assert_eq!(mapped_file(line, rustix::fs::makedev(7, 4)), None);
        assert_eq!(mapped_file("7f00-7f01 r--p", 0), None);
    }

    #[test]
    fn we_see_ourselves() {
        let executable = std::fs::metadata("/proc/self/exe").unwrap().dev();
        let held = of_device(executable, HolderScope::Host);
        let own = held.iter().find(|holder| holder.pid == std::process::id()).expect("we run from there");
        assert!(own.holding.contains(&Holding::Executable));
    }

    #[test]
    fn a_holder_reads_well() {
        let mut holder = Holder {
            pid: 41,
            command: "sleep 100".to_owned(),
            state: 'S',
            holding: vec![Holding::File("/var/log/syslog".to_owned())],
            scope: HolderScope::Host,
        };
        insta::assert_snapshot!(holder, @"`sleep 100` (pid 41 on the host, file `/var/log/syslog`)");
        holder.holding.clear();
        holder.scope = HolderScope::Sandbox;
        insta::assert_snapshot!(list(&[holder.clone(), holder]), @"`sleep 100` (pid 41 in the sandbox), `sleep 100` (pid 41 in the sandbox)");
        insta::assert_snapshot!(list(&[]), @"somebody in another mount namespace");
    }
}
