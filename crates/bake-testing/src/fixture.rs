//! Things that take a moment to make are made once, and kept in `target/fixtures`.
//!
//! A fixture is named by the digest of everything that shapes it: its recipe (the source file that makes it), its
//! options, and the versions of the host's packages it is made with. So it never needs to be refreshed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::host::host_packages;
use crate::run::{or_panic, run};

/// Returns the fixture, having `build` make it at the path it is given if nobody has yet.
///
/// Tests run in parallel, in processes of their own: the first one builds, under a lock, and the others wait for it.
pub(crate) fn cached(name: &str, recipe: &[&str], build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let folder = folder();
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
    // The owner of what we make is whoever runs the tests, and root must not meet files of somebody else.
    for part in recipe.iter().copied().chain([host_versions()?, &nix::unistd::geteuid().to_string()]) {
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
        format!("{name}-{}-{}", std::process::id(), std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos())
    }

    fn forget(fixture: &Path) {
        remove(fixture).unwrap();
        remove(&fixture.with_extension("lock")).unwrap();
    }

    #[test]
    fn a_fixture_is_built_once_by_many_at_a_time() {
        let (recipe, builds) = (unique("once"), AtomicU32::new(0));
        let build = |path: &Path| {
            builds.fetch_add(1, Ordering::SeqCst);
            Ok(fs::write(path, "made")?)
        };
        let paths: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(|| cached("test", &[&recipe], build).unwrap())).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(builds.load(Ordering::SeqCst), 1);
        assert!(paths.iter().all(|path| path == &paths[0]));
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "made");
        forget(&paths[0]);
    }

    #[test]
    fn a_failed_build_leaves_no_fixture_and_the_next_one_starts_afresh() {
        let recipe = unique("fail");
        let seen = Cell::new(false);
        let failing = |path: &Path| {
            fs::write(path, "half")?;
            anyhow::bail!("no luck")
        };
        let error = cached("test", &[&recipe], failing).unwrap_err();
        assert_eq!(format!("{error:#}"), "cannot make the fixture `test`: no luck");
        let path = cached("test", &[&recipe], |path| {
            seen.set(path.exists());
            Ok(fs::write(path, "whole")?)
        })
        .unwrap();
        assert!(!seen.get(), "the half-made fixture was still there");
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        forget(&path);
    }

    #[test]
    fn another_recipe_is_another_fixture() {
        assert_ne!(digest(&["a", "b"]).unwrap(), digest(&["ab"]).unwrap());
        assert_ne!(digest(&["a", "b"]).unwrap(), digest(&["b", "a"]).unwrap());
        assert_eq!(digest(&["a", "b"]).unwrap(), digest(&["a", "b"]).unwrap());
    }
}
