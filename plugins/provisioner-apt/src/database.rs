//! What the root's own dpkg says is installed.

use std::time::Duration;

use bake_core::{Package, Root};
use bake_engine::{Classify, StepError, StepResult};
use bake_linux::Command;

use crate::failure::Collected;
use crate::staging::Wanted;

/// A database of 100,000 packages answers in a second; the program belongs to the image, and may wait for ever.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// One line of the package database.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    version: String,
    architecture: String,
    /// dpkg's word: `installed`, `half-configured`, `config-files`, …
    status: String,
    /// Names that it provides, as dpkg prints them.
    provides: String,
}

/// The whole database at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Database(Vec<Entry>);

const FORMAT: &str = "--showformat=${Package}\\t${Version}\\t${Architecture}\\t${db:Status-Status}\\t${Provides}\\n";

/// Asks the root's dpkg for all packages it knows.
pub(crate) async fn packages(root: &mut dyn Root) -> StepResult<Database> {
    let output = ask(root, Command::new("dpkg-query").arg("--show").arg(FORMAT)).await.map_err(|error| {
        error
            .context("cannot ask the root's package database")
            .hint("the provisioner `apt` needs a Debian root with dpkg and apt in it")
    })?;
    Database::parse(&output)
}

/// Runs a program that answers on its standard output.
pub(crate) async fn ask(root: &mut dyn Root, command: Command) -> StepResult<String> {
    let (title, command) = (command.display(), command.time_limit(ANSWER_TIME));
    let mut collected = Collected::default();
    let outcome = root.run(command, &mut collected).await.permanent()?;
    if !outcome.success() {
        return Err(
            StepError::permanent(format!("`{title}` failed: {}", outcome.status)).details(collected.error_lines())
        );
    }
    collected.text(&title)
}

impl Database {
    fn parse(output: &str) -> StepResult<Self> {
        if output.contains(|c: char| c.is_control() && c != '\n' && c != '\t') {
            return Err(StepError::permanent("the root's package database holds control characters"));
        }
        let entries = output.split_terminator('\n').map(|line| {
            let mut fields = line.split('\t');
            let mut next = || fields.next().map(str::to_owned);
            Some(Entry { name: next()?, version: next()?, architecture: next()?, status: next()?, provides: next()? })
        });
        let entries: Option<Vec<_>> = entries.collect();
        entries.map(Self).ok_or_else(|| StepError::permanent("the root's package database gave a line that is none"))
    }

    /// All packages that are fully installed.
    pub(crate) fn installed(&self) -> Vec<Package> {
        self.0.iter().filter(|entry| entry.status == "installed").map(Entry::package).collect()
    }

    fn half_installed(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().filter(|entry| !["installed", "config-files", "not-installed"].contains(&entry.status.as_str()))
    }
}

impl Entry {
    fn package(&self) -> Package {
        Package::from_debian(&self.name, &self.version, &self.architecture)
    }

    fn provides(&self, name: &str) -> bool {
        // `a, b (= 1.0), c`
        self.provides.split(',').any(|provided| provided.split_whitespace().next() == Some(name))
    }
}

/// Refuses a root in which this bake left a package unpacked but not configured, whatever the exit code was.
pub(crate) fn refuse_half_installed(before: &Database, after: &Database) -> StepResult<()> {
    let broken: Vec<_> = after
        .half_installed()
        .filter(|entry| !before.half_installed().any(|old| old.name == entry.name))
        .map(|entry| format!("`{}` is {}", entry.name, entry.status))
        .collect();
    match broken.is_empty() {
        true => Ok(()),
        false => Err(StepError::permanent(format!("the package database is not whole: {}", broken.join(", ")))),
    }
}

/// Finds every requested package; all that are absent, or there in another version, are named at once.
pub(crate) fn find_all(database: &Database, wanted: &[Wanted]) -> StepResult<Vec<Package>> {
    let (found, missing): (Vec<_>, Vec<_>) = wanted.iter().map(|one| find(database, one)).partition(Result::is_ok);
    if missing.is_empty() {
        return Ok(found.into_iter().flatten().collect());
    }
    let reasons: Vec<String> = missing.into_iter().filter_map(Result::err).collect();
    Err(StepError::permanent(reasons.join("; ")))
}

fn find(database: &Database, wanted: &Wanted) -> Result<Package, String> {
    // `name:architecture` is how apt writes a foreign package; the database has the two apart.
    let (name, architecture) = match wanted.name().split_once(':') {
        Some((name, architecture)) => (name, Some(architecture)),
        None => (wanted.name(), None),
    };
    let is_meant = |entry: &&Entry| {
        entry.name == name
            && entry.status == "installed"
            && architecture.is_none_or(|wanted| entry.architecture == wanted)
    };
    let of_name: Vec<_> = database.0.iter().filter(is_meant).collect();
    let matching = of_name.iter().find(|entry| wanted.version().is_none_or(|version| entry.version == version));
    if let Some(entry) = matching {
        return Ok(entry.package());
    }
    if let (Some(entry), Some(version)) = (of_name.first(), wanted.version()) {
        return Err(format!("`{name}` is installed in version {}, not in {version}", entry.version));
    }
    match database.0.iter().find(|entry| entry.status == "installed" && entry.provides(name)) {
        Some(provider) => {
            Err(format!("`{name}` is no package of its own, but provided by `{}`: ask for that", provider.name))
        }
        None => Err(format!("`{name}` is not installed, although the package manager reported no failure")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> Database {
        Database::parse(
            "hello\t2.10-3\tamd64\tinstalled\t\n\
             gone\t1.0\tall\tconfig-files\t\n\
             exim4\t4.96-15\tall\tinstalled\tmail-transport-agent, smtp (= 1)\n\
             half\t1.0\tall\thalf-configured\t\n",
        )
        .unwrap()
    }

    fn wanted(name: &str, version: Option<&str>) -> Wanted {
        Wanted::Name { name: name.into(), version: version.map(Into::into) }
    }

    #[test]
    fn requested_packages_are_found_by_name_and_exact_version() {
        let found = find_all(&database(), &[wanted("hello", None), wanted("hello", Some("2.10-3"))]).unwrap();
        assert_eq!(found[0].version, "2.10");
        assert_eq!(find(&database(), &wanted("hello:amd64", None)).unwrap().name, "hello");
    }

    #[test]
    fn all_that_is_missing_is_named_at_once() {
        let wanted = [
            wanted("hello", Some("3.0-1")),
            wanted("gone", None),
            wanted("absent", None),
            wanted("smtp", None),
            wanted("hello:arm64", None),
        ];
        let error = find_all(&database(), &wanted).unwrap_err().to_string();
        insta::assert_snapshot!(error.replace("; ", "\n"), @r"
        `hello` is installed in version 2.10-3, not in 3.0-1
        `gone` is not installed, although the package manager reported no failure
        `absent` is not installed, although the package manager reported no failure
        `smtp` is no package of its own, but provided by `exim4`: ask for that
        `hello` is not installed, although the package manager reported no failure
        ");
    }

    #[test]
    fn only_what_this_bake_left_half_installed_is_held_against_it() {
        let after = database();
        assert!(refuse_half_installed(&after, &after).is_ok());
        let error = refuse_half_installed(&Database::default(), &after).unwrap_err();
        assert_eq!(error.to_string(), "the package database is not whole: `half` is half-configured");
    }

    #[test]
    fn a_broken_line_is_an_error() {
        assert!(Database::parse("hello 2.10\n").is_err());
    }
}
