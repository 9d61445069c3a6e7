use async_trait::async_trait;
use bake_core::{Architecture, Installed, Package, PackageChanges, PackageRequest, PackageSpec, Provisioner, Root};
use bake_engine::{Classify, StepContext, StepError, StepResult};
use bake_linux::{Command, RootPath};

use super::root::{Files, Reply};

/// The package manager of fake roots.
pub(super) const INSTALL: &str = "fake-install";
/// A line for each installed package: name and version.
const DATABASE: &str = "/var/lib/fake/packages";

/// What can be installed: name, versions, what it needs. As in [`packages::standard`](crate::packages::standard).
const PACKAGES: [(&str, &[&str], &[&str]); 3] = [
    ("hello-bake", &["1.0", "2.0"], &[]),
    ("hello-dep", &["1.0"], &["hello-bake"]),
    ("conf-bake", &["1.0", "2.0"], &[]),
];

/// Installs, with the package manager of fake roots, packages named as in
/// [`packages::standard`](crate::packages::standard). A package file is one that ends in `.fake` and holds `name=version`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeProvisioner;

impl FakeProvisioner {
    /// A file, path and content, that makes the package manager do nothing and say that all went well.
    pub const LIAR: (&str, &str) = ("/etc/fake-install", "lie\n");
}

#[async_trait]
impl Provisioner for FakeProvisioner {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn accepts(&self, spec: &PackageSpec) -> Result<(), String> {
        match spec {
            PackageSpec::File { path } if path.extension().is_none_or(|extension| extension != "fake") => {
                Err(format!("`{spec}` is no package for `fake`"))
            }
            PackageSpec::File { .. } | PackageSpec::Name { .. } => Ok(()),
        }
    }

    async fn install(
        &self,
        cx: StepContext,
        root: &mut dyn Root,
        request: &PackageRequest,
        _: &Architecture,
    ) -> StepResult<Installed> {
        cx.stop_if_cancelled()?;
        let wanted = request.packages.iter().map(words).collect::<StepResult<Vec<_>>>()?;
        let before = installed(root).await?;
        let mut output = Vec::new();
        let outcome = root.run(Command::new(INSTALL).args(&wanted), &mut output).await.permanent()?;
        if !outcome.success() {
            return Err(StepError::permanent(String::from_utf8_lossy(&output)));
        }
        let after = installed(root).await?;
        let requested = wanted.iter().map(|wanted| find(&after, wanted)).collect::<StepResult<Vec<_>>>()?;
        let main = requested[request.main].clone();
        Ok(Installed { requested, main, changes: PackageChanges::between(&before, &after) })
    }
}

/// What stands on the command line: `name` or `name=version`.
fn words(spec: &PackageSpec) -> StepResult<String> {
    match spec {
        PackageSpec::Name { .. } => Ok(spec.to_string()),
        PackageSpec::File { path } => Ok(std::fs::read_to_string(path).permanent()?.trim().to_owned()),
    }
}

async fn installed(root: &mut dyn Root) -> StepResult<Vec<Package>> {
    let content = root.read(&RootPath::new(DATABASE).permanent()?).await.permanent()?.unwrap_or_default();
    let text = String::from_utf8(content).permanent()?;
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    Ok(lines.map(|(name, version)| Package::from_debian(name, version, "all")).collect())
}

fn find(installed: &[Package], wanted: &str) -> StepResult<Package> {
    let (name, version) = split(wanted);
    let found = installed.iter().find(|one| one.name == name && version.is_none_or(|version| one.version == version));
    found.cloned().ok_or_else(|| StepError::permanent(format!("`{wanted}` is not installed")))
}

fn split(wanted: &str) -> (&str, Option<&str>) {
    wanted.split_once('=').map_or((wanted, None), |(name, version)| (name, Some(version)))
}

/// `fake-install NAME[=VERSION]…`: all or nothing.
pub(super) fn run_install(words: &[&str], files: &mut Files) -> Reply {
    if files.contains_key(FakeProvisioner::LIAR.0) {
        return Reply::ok("0 newly installed\n");
    }
    let database = String::from_utf8_lossy(files.get(DATABASE).map_or(&[][..], Vec::as_slice)).into_owned();
    let mut packages: Vec<(String, String)> =
        database.lines().filter_map(|line| line.split_once(' ')).map(|(n, v)| (n.into(), v.into())).collect();
    for wanted in &words[1..] {
        if let Err(complaint) = install_one(wanted, &mut packages) {
            return Reply::fail(100, complaint);
        }
    }
    let lines: String = packages.iter().map(|(name, version)| format!("{name} {version}\n")).collect();
    files.insert(DATABASE.into(), lines.into());
    Reply::ok("")
}

fn install_one(wanted: &str, packages: &mut Vec<(String, String)>) -> Result<(), String> {
    let (name, version) = split(wanted);
    let known = PACKAGES.iter().find(|(known, ..)| *known == name);
    let (_, versions, needs) = known.ok_or_else(|| format!("there is no package `{name}`"))?;
    let version = version.unwrap_or(versions[versions.len() - 1]);
    if !versions.contains(&version) {
        return Err(format!("there is no version `{version}` of `{name}`"));
    }
    for needed in *needs {
        if !packages.iter().any(|(there, _)| there == needed) {
            install_one(needed, packages)?;
        }
    }
    packages.retain(|(there, _)| there != name);
    packages.push((name.into(), version.into()));
    Ok(())
}
