//! The package archives that this machine uses, as apt itself reads its configuration.

use std::collections::BTreeSet;
use std::time::Duration;

use bake_linux::HostCommand;

use crate::error::{StoreError, StoreResult};
use crate::program::run;

/// One archive: the package files of a part of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    uri: String,
    suite: String,
    components: BTreeSet<String>,
}

impl Source {
    /// A line of a `sources.list`.
    pub(crate) fn line(&self) -> String {
        let components: Vec<_> = self.components.iter().map(String::as_str).collect();
        format!("deb {} {} {}", self.uri, self.suite, components.join(" "))
    }
}

const LIMIT: Duration = Duration::from_secs(30);

/// Returns the archives of a release: those that this machine uses for its own, with its updates and security fixes.
pub(crate) async fn for_suite(suite: &str, architecture: &str) -> StoreResult<Vec<Source>> {
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ARCHITECTURE) $(ORIGIN)";
    let asked = HostCommand::new("apt-get")
        .args(["indextargets", "--format", format, "Created-By: Packages"])
        .time_limit(LIMIT);
    let output = run("ask apt for this machine's package archives", asked).await?;
    let sources = parse(&String::from_utf8_lossy(&output.stdout), suite, architecture);
    if sources.iter().any(|source| source.suite == suite) {
        return Ok(sources);
    }
    Err(StoreError::CannotCreate {
        reason: "apt knows no Debian archive on this machine".into(),
        lines: Vec::new(),
        hint: Some("run `apt-get update` first".into()),
    })
}

/// Releases that change every day, and so have no archives of updates and security fixes.
const ROLLING: [&str; 4] = ["sid", "unstable", "testing", "experimental"];

fn parse(targets: &str, suite: &str, architecture: &str) -> Vec<Source> {
    let mut sources: Vec<Source> = Vec::new();
    for line in targets.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [uri, release, component, of, "Debian"] = words[..] else { continue };
        let (host, pocket) = match release.split_once('-') {
            Some((host, _)) => (host, &release[host.len()..]),
            None => (release, ""),
        };
        let pockets: &[_] = if ROLLING.contains(&suite) { &[""] } else { &["", "-updates", "-security"] };
        // Components change from release to release; `main` is in each.
        let known = host == suite || component == "main";
        if of != architecture || !pockets.contains(&pocket) || !known {
            continue;
        }
        let name = format!("{suite}{pocket}");
        match sources.iter_mut().find(|source| source.uri == uri && source.suite == name) {
            Some(source) => drop(source.components.insert(component.into())),
            None => sources.push(Source { uri: uri.into(), suite: name, components: [component.into()].into() }),
        }
    }
    sources
}

/// Returns this machine's proxies as a piece of apt configuration; empty if there are none.
pub(crate) async fn proxies() -> StoreResult<String> {
    let asked = HostCommand::new("apt-config").args(["dump", "Acquire"]).time_limit(LIMIT);
    let output = run("ask apt for this machine's proxies", asked).await?;
    Ok(proxy_lines(&String::from_utf8_lossy(&output.stdout)))
}

fn proxy_lines(dump: &str) -> String {
    let is_proxy = |line: &&str| {
        let key = line.split(' ').next().unwrap_or_default().to_ascii_lowercase();
        let mut parts = key.split("::").skip(2);
        // `Acquire::http::Proxy`, `Acquire::http::Proxy::HOST`, `Acquire::http::Proxy-Auto-Detect`.
        parts.next().is_some_and(|part| part.starts_with("proxy"))
    };
    dump.lines().filter(is_proxy).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "\
http://deb.debian.org/debian/ bookworm main amd64 Debian
http://deb.debian.org/debian/ bookworm contrib amd64 Debian
http://deb.debian.org/debian/ bookworm main i386 Debian
http://deb.debian.org/debian/ bookworm-updates main amd64 Debian
http://deb.debian.org/debian/ bookworm-backports main amd64 Debian Backports
http://deb.debian.org/debian/ bookworm-backports main amd64 Debian
http://deb.debian.org/debian-security/ bookworm-security main amd64 Debian
https://deb.nodesource.com/node_20.x/ nodistro main amd64 . nodistro
https://download.docker.com/linux/debian/ bookworm stable amd64 Docker
https://apt.example.org/ bookworm main amd64 
";

    fn lines(suite: &str, architecture: &str) -> String {
        parse(TARGETS, suite, architecture).iter().map(|source| source.line() + "\n").collect()
    }

    #[test]
    fn only_debian_is_taken_with_its_updates() {
        insta::assert_snapshot!(lines("bookworm", "amd64"), @"
        deb http://deb.debian.org/debian/ bookworm contrib main
        deb http://deb.debian.org/debian/ bookworm-updates main
        deb http://deb.debian.org/debian-security/ bookworm-security main
        ");
        insta::assert_snapshot!(lines("bookworm", "i386"), @"deb http://deb.debian.org/debian/ bookworm main");
    }

    #[test]
    fn another_release_comes_from_the_same_places() {
        insta::assert_snapshot!(lines("trixie", "amd64"), @"
        deb http://deb.debian.org/debian/ trixie main
        deb http://deb.debian.org/debian/ trixie-updates main
        deb http://deb.debian.org/debian-security/ trixie-security main
        ");
    }

    #[test]
    fn rolling_releases_have_no_pockets() {
        insta::assert_snapshot!(lines("sid", "amd64"), @"deb http://deb.debian.org/debian/ sid main");
    }

    #[test]
    fn proxies_are_passed_on_and_nothing_else() {
        let dump = "\
Acquire \"\";
Acquire::http \"\";
Acquire::http::Proxy \"http://proxy:3142\";
Acquire::http::Proxy::deb.example.org \"DIRECT\";
Acquire::https::Proxy-Auto-Detect \"/usr/bin/find-proxy\";
Acquire::IndexTargets::deb::Packages \"\";
Acquire::GzipIndexes \"true\";
";
        insta::assert_snapshot!(proxy_lines(dump), @r#"
        Acquire::http::Proxy "http://proxy:3142";
        Acquire::http::Proxy::deb.example.org "DIRECT";
        Acquire::https::Proxy-Auto-Detect "/usr/bin/find-proxy";
        "#);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_safe(text: String) {
            let _any = (parse(&text, "bookworm", "amd64"), proxy_lines(&text));
        }
    }
}
