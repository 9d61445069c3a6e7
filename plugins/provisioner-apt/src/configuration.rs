//! apt's configuration for one bake: a file of ours in `/run`, named by `APT_CONFIG`, so that the root's own stays untouched.

use bake_core::Root;
use bake_engine::{Classify, StepResult};
use bake_linux::{Command, RootPath, Stdin};

use crate::AptSettings;
use crate::repository::Repository;
use crate::{database, staging};

/// Where the configuration stands in the root.
pub(crate) const FILE: &str = "/run/bake/apt/apt.conf";
const SOURCES: &str = "/run/bake/apt/sources.list";
const LISTS: &str = "/run/bake/apt/lists";

/// Writes configuration and sources into the sandbox's `/run`, and shows the host's repository folders there.
pub(crate) async fn write(root: &mut dyn Root, settings: &AptSettings, repositories: &[Repository]) -> StepResult<()> {
    let mut sources = match settings.own_sources {
        true => root.read(&RootPath::new("/etc/apt/sources.list").permanent()?).await.permanent()?,
        false => None,
    }
    .unwrap_or_default();
    if !sources.is_empty() && !sources.ends_with(b"\n") {
        sources.push(b'\n');
    }
    for (number, repository) in repositories.iter().enumerate() {
        let place = format!("/run/bake/repositories/{number}");
        if let Some(folder) = repository.folder() {
            staging::show(root, folder, &place).await?;
        }
        sources.extend(repository.line(&place).bytes().chain([b'\n']));
    }
    put(root, text(settings), sources).await
}

/// Separates the two files on the way in. It begins a comment of apt's configuration, and so may not stand in that.
const SEPARATOR: &str = "// -- sources --";

/// Writes both files in one go, where only programs of this bake see them: `/run` is theirs and not the image's.
///
/// Sources may hold passwords, so they travel by standard input; `read` takes no byte more than its line from there.
async fn put(root: &mut dyn Root, configuration: String, sources: Vec<u8>) -> StepResult<()> {
    // apt makes the folders below its own places only.
    let script = r#"
        mkdir -p "$1/partial" "${2%/*}" "${3%/*}" &&
        while IFS= read -r line && [ "$line" != "$4" ]; do printf '%s\n' "$line"; done >"$2" &&
        cat >"$3"
    "#;
    let input = [configuration.as_bytes(), SEPARATOR.as_bytes(), b"\n", &sources].concat();
    let command = Command::new("sh").args(["-c", script, "sh", LISTS, FILE, SOURCES, SEPARATOR]);
    database::ask(root, command.stdin(Stdin::Bytes(input))).await.map(drop)
}

/// The configuration's text, each line with its reason.
fn text(settings: &AptSettings) -> String {
    let mut text = format!(
        r#"// An index that cannot be fetched fails the bake; apt's own default is to go on with the old one.
APT::Update::Error-Mode "any";
Acquire::Retries "3";
// Lists and caches of this bake live in memory and never reach the image.
Dir::State::lists "{LISTS}";
Dir::Cache::pkgcache "/run/bake/apt/pkgcache.bin";
Dir::Cache::srcpkgcache "";
Dir::Etc::sourcelist "{SOURCES}";
// Their lines would hold paths of this bake.
Dir::Log::History "/dev/null";
Dir::Log::Terminal "/dev/null";
APT::Keep-Downloaded-Packages "false";
// A question would wait for ever: keep configuration files that were changed in the base, take the rest as delivered.
DPkg::Options {{ "--force-confdef"; "--force-confold"; }};
DPkg::Use-Pty "0";
DPkg::Lock::Timeout "60";
APT::Color "0";
"#
    );
    if !settings.own_sources {
        text.push_str("Dir::Etc::sourceparts \"/dev/null\";\n");
    }
    if let Some(recommends) = settings.recommends {
        text.push_str(&format!("APT::Install-Recommends \"{recommends}\";\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_reach_the_configuration() {
        let plain = text(&AptSettings::default());
        assert!(!plain.contains("sourceparts") && !plain.contains("Recommends"), "{plain}");
        let changed = text(&AptSettings { own_sources: false, recommends: Some(false), ..AptSettings::default() });
        assert!(changed.contains("Dir::Etc::sourceparts \"/dev/null\";"), "{changed}");
        assert!(changed.contains("APT::Install-Recommends \"false\";"), "{changed}");
    }
}
