use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::run::pause;

/// Finds what a bake has left on the host, knowing it by the folder that its files are in.
///
/// A bake that is running has mounts, loop devices and processes as well, so this is also how a test sees that one is
/// under way.
#[derive(Debug, Clone)]
pub struct Leftovers {
    folder: PathBuf,
    markers: Vec<String>,
}

/// One thing that is left.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leftover {
    /// A loop device that is bound to a file of the folder.
    Loop {
        /// As in `/dev`: `loop3`.
        name: String,
        /// The file, as the kernel tells it.
        file: String,
    },
    /// A mount of a file of the folder, or in it.
    Mount {
        /// Where it is mounted.
        at: String,
        /// A process that sees it; there is one for each mount namespace.
        seen_by: u32,
    },
    /// A process that names the folder or a marker in its command line, or works in the folder.
    Process {
        /// Its id on the host.
        pid: u32,
        /// Its command line.
        command: String,
    },
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loop { name, file } => write!(f, "loop device {name} of {file}"),
            Self::Mount { at, seen_by } => write!(f, "mount at {at}, seen by process {seen_by}"),
            Self::Process { pid, command } => write!(f, "process {pid}: {command}"),
        }
    }
}

impl Leftovers {
    /// Looks for what belongs to this folder, which must have a name that nothing else has, as temporary folders do.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), markers: Vec::new() }
    }

    /// Looks for processes with this in their command line as well.
    pub fn or_argument(mut self, marker: &str) -> Self {
        self.markers.push(marker.to_owned());
        self
    }

    /// Returns all that is there now.
    pub fn find(&self) -> Vec<Leftover> {
        let loops = self.loops();
        let mut found: Vec<_> =
            loops.iter().map(|(name, file)| Leftover::Loop { name: name.clone(), file: file.clone() }).collect();
        let mut namespaces = BTreeSet::new();
        for pid in processes() {
            if pid != std::process::id() {
                found.extend(self.process(pid));
            }
            // Each mount namespace once; a process that ended meanwhile has none.
            if fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|namespace| namespaces.insert(namespace)) {
                found.extend(self.mounts(pid, &loops));
            }
        }
        found.sort();
        found
    }

    /// Ends the test if anything is there.
    #[track_caller]
    pub fn assert_none(&self) {
        let found = self.find();
        assert!(found.is_empty(), "left behind:\n{}", lines(&found));
    }

    /// Waits until nothing is there any more and returns how long that took; ends the test when the limit is reached.
    #[track_caller]
    pub fn wait_gone(&self, limit: Duration) -> Duration {
        let start = Instant::now();
        loop {
            let found = self.find();
            if found.is_empty() {
                return start.elapsed();
            }
            assert!(start.elapsed() < limit, "left behind after {limit:?}:\n{}", lines(&found));
            pause();
        }
    }

    /// Waits until something is there for which the condition holds, and returns everything; ends the test at the limit.
    #[track_caller]
    pub fn wait_for(&self, limit: Duration, wanted: impl Fn(&Leftover) -> bool) -> Vec<Leftover> {
        let start = Instant::now();
        loop {
            let found = self.find();
            if found.iter().any(&wanted) {
                return found;
            }
            assert!(start.elapsed() < limit, "did not appear within {limit:?}; there is only:\n{}", lines(&found));
            pause();
        }
    }

    fn loops(&self) -> Vec<(String, String)> {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let bound = devices.filter_map(|device| {
            let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
            Some((device.file_name().to_string_lossy().into_owned(), file.trim_end().to_owned()))
        });
        bound.filter(|(_, file)| self.is_below(file)).collect()
    }

    fn mounts(&self, pid: u32, loops: &[(String, String)]) -> Vec<Leftover> {
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        let ours = mounts.lines().filter(|line| {
            let source = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(1)).unwrap_or_default();
            self.is_below(line) || loops.iter().any(|(name, _)| source == format!("/dev/{name}"))
        });
        ours.map(|line| Leftover::Mount { at: line.split(' ').nth(4).unwrap_or(line).to_owned(), seen_by: pid })
            .collect()
    }

    fn process(&self, pid: u32) -> Option<Leftover> {
        // Empty for a moment while a program starts, and for good in a zombie, which only waits for its parent: that one
        // works nowhere any more either, and is not found.
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
        let works_below = ["cwd", "root"].iter().any(|link| {
            fs::read_link(format!("/proc/{pid}/{link}")).is_ok_and(|path| self.is_below(&path.to_string_lossy()))
        });
        let named = self.is_below(&command) || self.markers.iter().any(|marker| command.contains(marker));
        (named || works_below).then_some(Leftover::Process { pid, command })
    }

    /// By the folder's own name, since a path may be told from another root or another mount, without its beginning.
    fn is_below(&self, text: &str) -> bool {
        self.folder.file_name().is_some_and(|name| text.contains(&*name.to_string_lossy()))
    }
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("Linux has it");
    entries.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect()
}

fn lines(found: &[Leftover]) -> String {
    found.iter().map(|one| format!("  {one}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    /// Kills the process when the test ends, however it ends.
    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }

    #[test]
    fn a_fresh_folder_has_nothing() {
        let folder = tempfile::tempdir().unwrap();
        Leftovers::of(folder.path()).assert_none();
    }

    #[test]
    fn a_process_is_found_by_its_arguments_and_by_where_it_works() {
        let folder = tempfile::tempdir().unwrap();
        let marker = format!("marker-{}", folder.path().display());
        let by_marker = Leftovers::of(Path::new("/no/such-folder-of-a-test")).or_argument(&marker);
        let sleep = |command: &mut Command| Killed(command.spawn().unwrap());
        let one = sleep(Command::new("sleep").arg0(&marker).arg("60"));
        let found = by_marker.wait_for(Duration::from_secs(5), |_| true);
        assert!(matches!(&found[..], [Leftover::Process { pid, .. }] if *pid == one.0.id()), "{found:?}");
        drop(one);
        by_marker.wait_gone(Duration::from_secs(5));

        let other = sleep(Command::new("sleep").arg("60").current_dir(folder.path()));
        let started = |one: &Leftover| matches!(one, Leftover::Process { command, .. } if !command.is_empty());
        let found = Leftovers::of(folder.path()).wait_for(Duration::from_secs(5), started);
        assert_eq!(found, [Leftover::Process { pid: other.0.id(), command: "sleep 60".into() }]);
    }

    #[test]
    fn loops_and_mounts_are_found_even_in_another_namespace() {
        needs!(loops(), fixtures());
        let folder = tempfile::tempdir().unwrap();
        let (disk, mount) = (folder.path().join("disk"), folder.path().join("mount"));
        fs::create_dir(&mount).unwrap();
        crate::run::run(Command::new("mkfs.ext4").arg("-q").arg(&disk).arg("8M")).unwrap();
        let held = Killed(
            Command::new("unshare")
                .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c"])
                .args(["mount -n -o loop \"$1\" \"$2\" && sleep 60; :", "sh"])
                .args([&disk, &mount])
                .spawn()
                .unwrap(),
        );
        let leftovers = Leftovers::of(folder.path());
        let found = leftovers.wait_for(Duration::from_secs(10), |one| matches!(one, Leftover::Mount { .. }));
        assert!(found.iter().any(|one| matches!(one, Leftover::Loop { .. })), "{found:?}");
        assert!(found.iter().any(|one| matches!(one, Leftover::Process { .. })), "{found:?}");
        assert!(lines(&found).contains(&format!("mount at {}, seen by process", mount.display())), "{found:?}");
        drop(held);
        leftovers.wait_gone(Duration::from_secs(5));
    }

    #[test]
    #[should_panic(expected = "left behind after 50ms:\n  process ")]
    fn what_stays_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let _held = Killed(Command::new("sleep").arg("60").current_dir(folder.path()).spawn().unwrap());
        Leftovers::of(folder.path()).wait_gone(Duration::from_millis(50));
    }
}
