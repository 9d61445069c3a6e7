//! Things that take a moment to make are made once, and kept in `target/fixtures`.
//!
//! A fixture is named by the digest of everything that shapes it: its recipe (the source file that makes it), its
//! options, and the versions of the host's packages it is made with. So it never needs to be refreshed; one that is made
//! anew takes away those of older recipes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::host::host_packages;
use crate::run::{or_panic, run};

/// Returns the fixture, having `build` make it at the path it is given if nobody has yet. The name tells it from all others
/// of the same recipe.
///
/// Tests run in parallel, in processes of their own: the first one builds, under a lock, and the others wait for it.
pub(crate) fn cached(name: &str, recipe: &[&str], build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let folder = folder();
    // The owner of what we make is whoever runs the tests, and root must not meet files of somebody else.
    let name = format!("{name}-{}", nix::unistd::geteuid());
    let key = format!("{name}-{}", digest(recipe)?);
    let (done, partial) = (folder.join(&key), folder.join(format!("{key}.partial")));
    if done.exists() {
        return Ok(done);
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let lock = File::create(folder.join(format!("{key}.lock"))).context("cannot make a lock for a fixture")?;
    lock.lock().context("cannot lock a fixture")?;
    if !done.exists() {
        remove(&partial)?;
        remove_older(&folder, &name, &key)?;
        build(&partial).with_context(|| format!("cannot make the fixture `{name}`"))?;
        fs::rename(&partial, &done).with_context(|| format!("cannot keep the fixture `{name}`"))?;
    }
    Ok(done)
}

/// Copies a disk file, keeping its holes; shares the blocks where the filesystem can.
#[track_caller]
pub fn copy_disk(from: &Path, to: &Path) {
    or_panic(run(Command::new("cp").args(["--sparse=always", "--reflink=auto"]).args([from, to])));
    // A cached disk is read-only; its copy is there to be written to.
    or_panic(run(Command::new("chmod").arg("u+w").arg(to)));
}

/// Copies a file tree with everything that root can copy: owners, modes, times, links, devices. `to` must not exist.
#[track_caller]
pub fn copy_tree(from: &Path, to: &Path) {
    assert!(!to.exists(), "`{}` exists", to.display());
    or_panic(run(Command::new("cp").args(["-a", "--reflink=auto"]).args([from, to])));
}

/// The `target` folder knows itself by the tag that cargo puts there; test programs live somewhere below it.
fn folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    target.map_or_else(|| std::env::temp_dir().join("bake-fixtures"), |target| target.join("fixtures"))
}

fn digest(recipe: &[&str]) -> Result<String> {
    let mut digest = Sha256::new();
    for part in recipe.iter().copied().chain([host_versions()?]) {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    Ok(digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// The host's packages that fixtures are made from and with, and their versions, as dpkg prints them.
fn host_versions() -> Result<&'static str> {
    static VERSIONS: OnceLock<String> = OnceLock::new();
    if let Some(versions) = VERSIONS.get() {
        return Ok(versions);
    }
    let format = "${Package} ${Version} ${Architecture}\n";
    let versions = run(Command::new("dpkg-query").args(["-W", "-f", format]).args(host_packages()))
        .context("a Debian package that the tests need is missing; `scripts/test` installs them")?;
    Ok(VERSIONS.get_or_init(|| versions))
}

/// Removes the fixtures of this name with another digest, and their locks.
fn remove_older(folder: &Path, name: &str, key: &str) -> Result<()> {
    for entry in fs::read_dir(folder).context("cannot list the fixtures")? {
        let entry = entry.context("cannot list the fixtures")?;
        let file_name = entry.file_name().to_string_lossy().into_owned();
        let digest = file_name.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        if digest.is_some_and(|digest| !digest.contains('-')) && !file_name.starts_with(key) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    let gone = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match gone {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn unique(name: &str) -> String {
        format!("test-{name}{}", std::process::id())
    }

    fn forget(fixture: &Path) {
        remove(fixture).unwrap();
        remove(&fixture.with_extension("lock")).unwrap();
    }

    #[test]
    fn a_fixture_is_built_once_by_many_at_a_time() {
        let (name, builds) = (unique("once"), AtomicU32::new(0));
        let build = |path: &Path| {
            builds.fetch_add(1, Ordering::SeqCst);
            Ok(fs::write(path, "made")?)
        };
        let paths: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(|| cached(&name, &["recipe"], build).unwrap())).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(builds.load(Ordering::SeqCst), 1);
        assert!(paths.iter().all(|path| path == &paths[0]));
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "made");
        forget(&paths[0]);
    }

    #[test]
    fn a_failed_build_leaves_no_fixture_and_the_next_one_starts_afresh() {
        let name = unique("fail");
        let seen = Cell::new(false);
        let failing = |path: &Path| {
            fs::write(path, "half")?;
            anyhow::bail!("no luck")
        };
        let error = cached(&name, &["recipe"], failing).unwrap_err();
        assert_eq!(error.root_cause().to_string(), "no luck");
        let path = cached(&name, &["recipe"], |path| {
            seen.set(path.exists());
            Ok(fs::write(path, "whole")?)
        })
        .unwrap();
        assert!(!seen.get(), "the half-made fixture was still there");
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        forget(&path);
    }

    #[test]
    fn a_new_recipe_takes_away_what_the_old_one_made_and_nothing_else() {
        let name = unique("old");
        let make = |name: &str, recipe| cached(name, &[recipe], |path| Ok(fs::write(path, recipe)?)).unwrap();
        let (old, other) = (make(&name, "old"), make(&format!("{name}-other"), "old"));
        let new = make(&name, "new");
        assert!(!old.exists() && new.exists() && other.exists());
        forget(&new);
        forget(&other);
    }

    #[test]
    fn another_recipe_is_another_fixture() {
        assert_ne!(digest(&["a", "b"]).unwrap(), digest(&["ab"]).unwrap());
        assert_ne!(digest(&["a", "b"]).unwrap(), digest(&["b", "a"]).unwrap());
        assert_eq!(digest(&["a", "b"]).unwrap(), digest(&["a", "b"]).unwrap());
    }
}
