//! Who uses the volume.

use serde::{Deserialize, Serialize};

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
