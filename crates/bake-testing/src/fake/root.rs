use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bake_core::Root;
use bake_linux::{
    Check, Command, Errno, Filesystem, FilesystemKind, Outcome, OutputSink, RootError, RootPath, RunError, Space,
};

/// What `ENOENT` is on Linux.
const NOT_FOUND: Errno = Errno(2);

/// The files of a fake root, by path.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A program of a fake root: gets its words, its own name first, and the files.
pub(super) type Program = Arc<dyn Fn(&[&str], &mut Files) -> Reply + Send + Sync>;

/// What a program of a fake root does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    code: i32,
    output: Vec<u8>,
}

impl Reply {
    /// It ends well, and prints this.
    pub fn ok(output: impl Into<Vec<u8>>) -> Self {
        Self { code: 0, output: output.into() }
    }

    /// It fails with an exit code, and complains.
    pub fn fail(code: i32, output: impl Into<Vec<u8>>) -> Self {
        Self { code, output: output.into() }
    }
}

/// A root in memory. It has the programs `true`, `false` and `cat FILE`, and those that
/// [`FakeVolumes`](super::FakeVolumes) give it.
pub struct FakeRoot {
    filesystem: Filesystem,
    pub(super) files: Files,
    /// What programs see instead of files, or besides them.
    bound: Files,
    programs: BTreeMap<String, Program>,
}

impl FakeRoot {
    pub(super) fn new(files: Files, size: u64, programs: BTreeMap<String, Program>) -> Self {
        let filesystem = Filesystem {
            kind: FilesystemKind::Ext4,
            partition: Some(1),
            offset: 0,
            size,
            label: "fake".into(),
            check: Check::Clean,
            device: 0,
        };
        Self { filesystem, files, bound: Files::new(), programs }
    }

    fn reply(&mut self, words: &[&str]) -> Option<Reply> {
        match words {
            ["true"] => Some(Reply::ok("")),
            ["false"] => Some(Reply::fail(1, "")),
            ["cat", path] => Some(match self.bound.get(*path).or_else(|| self.files.get(*path)) {
                Some(content) => Reply::ok(content.clone()),
                None => Reply::fail(1, format!("cat: {path}: No such file or directory\n")),
            }),
            [name, ..] => self.programs.get(*name).cloned().map(|program| program(words, &mut self.files)),
            [] => None,
        }
    }
}

fn key(path: &RootPath) -> String {
    path.to_string()
}

#[async_trait]
impl Root for FakeRoot {
    fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    async fn run(&mut self, command: Command, output: &mut (dyn OutputSink + Send)) -> Result<Outcome, RunError> {
        let line = command.display();
        let words: Vec<_> = line.split(' ').collect();
        let reply = self.reply(&words).ok_or(RunError::Start { command: line, source: NOT_FOUND })?;
        match reply.code {
            0 => output.stdout(&reply.output),
            _ => output.stderr(&reply.output),
        }
        let (status, no_time) = (ExitStatus::from_raw(reply.code << 8), Duration::ZERO);
        Ok(Outcome { status, elapsed: no_time, user: no_time, system: no_time, still_running: Vec::new() })
    }

    async fn read(&mut self, path: &RootPath) -> Result<Option<Vec<u8>>, RootError> {
        Ok(self.files.get(&key(path)).cloned())
    }

    async fn write(&mut self, path: &RootPath, content: &[u8], _mode: u32) -> Result<(), RootError> {
        self.files.insert(key(path), content.to_owned());
        Ok(())
    }

    async fn bind(&mut self, source: OwnedFd, at: &RootPath) -> Result<(), RootError> {
        let mut content = Vec::new();
        File::from(source)
            .read_to_end(&mut content)
            .map_err(|error| RootError::Unusable { path: at.clone(), why: error.to_string() })?;
        self.bound.insert(key(at), content);
        Ok(())
    }

    async fn space(&mut self) -> Result<Space, RootError> {
        Ok(Space { bytes_free: 1 << 30, inodes_free: 1 << 20 })
    }
}
