use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use bake_core::{Architecture, Installed, OpenVolume, Package, PackageRequest, PackageSpec, Provisioner, Root};
use bake_engine::StepResult;
use bake_linux::RootPath;

use super::{cx, promise};

/// A provisioner with a root of its own, for which the packages of [`packages::standard`](crate::packages::standard) can be
/// had: `hello-bake` in the versions 1.0 and 2.0, `hello-dep`, which needs it, and `conf-bake`.
pub struct ProvisionerCase {
    /// What is tried.
    pub provisioner: Arc<dyn Provisioner>,
    /// The root to install into.
    pub volume: Box<dyn OpenVolume>,
    /// A file of a package `hello-bake` in version 1.0.
    pub package_file: PathBuf,
    /// A file of another kind of package.
    pub foreign_file: PathBuf,
    /// A program, path and content, that makes the package manager do nothing and end with 0.
    pub liar: (&'static str, &'static str),
    /// Whatever must live as long as these.
    pub keep: Box<dyn Any>,
}

impl ProvisionerCase {
    async fn try_install(&mut self, specs: &[PackageSpec], main: usize) -> StepResult<Installed> {
        let request = PackageRequest { packages: specs.to_vec(), main };
        self.provisioner.install(cx(), self.volume.root(), &request, &Architecture::of_this_machine()).await
    }

    async fn install(&mut self, specs: &[PackageSpec], main: usize) -> Installed {
        let installed = self.try_install(specs, main).await;
        installed.unwrap_or_else(|error| panic!("{specs:?} was not installed: {error:?} {:?}", error.detail_lines()))
    }

    /// Asserts that a request fails, and that the error names `what`.
    async fn refuses(&mut self, specs: &[PackageSpec], what: &str) {
        let Err(error) = self.try_install(specs, 0).await else { panic!("{specs:?} is said to be installed") };
        let told = [error.chain(), error.detail_lines().to_vec()].concat().join("\n");
        assert!(told.contains(what), "the error does not name `{what}`: {told}");
    }

    async fn end(self) {
        self.volume.discard().await.unwrap_or_else(|error| panic!("its root cannot be discarded: {error:?}"));
    }
}

/// Tries what [`Provisioner`] promises. `make` makes the plugin and a root in which none of the packages is installed.
pub async fn provisioner(make: impl AsyncFn() -> ProvisionerCase) {
    promise("the wrong kind of package file is refused before anything is touched");
    let case = make().await;
    accepts_its_own_kind(&case);
    case.end().await;
    promise("a package is installed with what it needs, and both are named");
    names_what_was_added(make().await).await;
    promise("requested packages are named in the order of the request");
    keeps_the_order(make().await).await;
    promise("an exact version is installed, and a change of it is named");
    names_what_was_changed(make().await).await;
    promise("a package file is installed");
    installs_a_file(make().await).await;
    promise("a package or version that does not exist is an error that names it");
    names_what_does_not_exist(make().await).await;
    promise("a package that is absent is an error, although the package manager ended with 0");
    believes_the_database_only(make().await).await;
}

fn named(name: &str) -> PackageSpec {
    PackageSpec::Name { name: name.into(), version: None }
}

fn exact(name: &str, version: &str) -> PackageSpec {
    PackageSpec::Name { name: name.into(), version: Some(version.into()) }
}

/// Names and versions, as `name version`.
fn lines(packages: &[Package]) -> Vec<String> {
    packages.iter().map(|package| format!("{} {}", package.name, package.version)).collect()
}

fn accepts_its_own_kind(case: &ProvisionerCase) {
    let file = |path: &PathBuf| PackageSpec::File { path: path.clone() };
    for good in [named("hello-bake"), exact("hello-bake", "1.0"), file(&case.package_file)] {
        assert_eq!(case.provisioner.accepts(&good), Ok(()), "`{good}`");
    }
    let foreign = file(&case.foreign_file);
    let Err(reason) = case.provisioner.accepts(&foreign) else { panic!("`{foreign}` was accepted") };
    assert!(reason.contains(&foreign.to_string()), "the reason does not name `{foreign}`: {reason}");
}

async fn names_what_was_added(mut case: ProvisionerCase) {
    let installed = case.install(&[named("hello-dep")], 0).await;
    assert_eq!(lines(&installed.requested), ["hello-dep 1.0"]);
    assert_eq!(installed.main, installed.requested[0]);
    assert_eq!(lines(&installed.changes.added), ["hello-bake 2.0", "hello-dep 1.0"]);
    assert_eq!((installed.changes.changed.len(), installed.changes.removed.len()), (0, 0), "{:?}", installed.changes);
    case.end().await;
}

async fn keeps_the_order(mut case: ProvisionerCase) {
    let installed = case.install(&[named("hello-dep"), exact("conf-bake", "1.0"), named("hello-bake")], 1).await;
    assert_eq!(lines(&installed.requested), ["hello-dep 1.0", "conf-bake 1.0", "hello-bake 2.0"]);
    assert_eq!(lines(&[installed.main]), ["conf-bake 1.0"]);
    case.end().await;
}

async fn names_what_was_changed(mut case: ProvisionerCase) {
    let first = case.install(&[exact("hello-bake", "1.0")], 0).await;
    assert_eq!(lines(&first.requested), ["hello-bake 1.0"], "an older version than the newest was asked for");
    let second = case.install(&[named("hello-dep"), exact("hello-bake", "2.0")], 0).await;
    assert_eq!(lines(&second.changes.changed), ["hello-bake 2.0"]);
    assert_eq!(lines(&second.changes.added), ["hello-dep 1.0"]);
    let third = case.install(&[named("hello-bake")], 0).await;
    assert_eq!(lines(&third.requested), ["hello-bake 2.0"], "what is there already is installed, too");
    assert_eq!(third.changes, Default::default(), "nothing was to be done");
    case.end().await;
}

async fn installs_a_file(mut case: ProvisionerCase) {
    let installed = case.install(&[PackageSpec::File { path: case.package_file.clone() }], 0).await;
    assert_eq!(lines(&installed.requested), ["hello-bake 1.0"]);
    case.end().await;
}

async fn names_what_does_not_exist(mut case: ProvisionerCase) {
    case.refuses(&[named("no-such-bake")], "no-such-bake").await;
    case.refuses(&[named("hello-bake"), exact("conf-bake", "9.9")], "9.9").await;
    case.end().await;
}

async fn believes_the_database_only(mut case: ProvisionerCase) {
    let (path, content) = case.liar;
    let path = RootPath::new(path).expect("a legal path");
    let root: &mut dyn Root = case.volume.root();
    root.write(&path, content.as_bytes(), 0o755).await.unwrap_or_else(|error| panic!("`{path}`: {error:?}"));
    case.refuses(&[named("hello-bake")], "hello-bake").await;
    case.end().await;
}
