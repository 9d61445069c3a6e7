//! The table of rules: a folder of `tests/rules` for each, where `good.yaml` keeps the rule and `bad.yaml` breaks it.
//!
//! What a file gives stands at its end, below a line `# errors:`. A good file has no errors, but some of its environments may refuse to
//! be chosen; what they say stands below `# errors when chosen:`. A `below.yaml` is a weaker layer for both. After a change of
//! messages, `BAKE_UPDATE_RULES=1` writes what is given now; read the difference before you keep it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use bake_config::{Config, ConfigErrors, Layers};

use crate::catalog::catalog;

const ERRORS: &str = "\n# errors:\n";
const WHEN_CHOSEN: &str = "\n# errors when chosen:\n";

#[test]
fn every_rule_is_kept_by_its_good_file_and_broken_by_its_bad_one() {
    let mut wrong = String::new();
    for rule in rules() {
        for (file, marker, given) in [
            ("good.yaml", WHEN_CHOSEN, good(&rule)),
            ("bad.yaml", ERRORS, load(&rule, "bad.yaml").map_or_else(|errors| errors.to_string(), |_| String::new())),
        ] {
            if std::env::var_os("BAKE_UPDATE_RULES").is_some() {
                write_expected(&rule.join(file), marker, &given);
            }
            let expected = expected(&rule.join(file), marker);
            if expected != given {
                writeln!(wrong, "{}/{file}\nexpected:\n{expected}\ngiven:\n{given}\n", rule.display()).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Whoever breaks a rule is told the place, to the column, and what to do.
#[test]
fn every_broken_rule_has_a_place_and_a_mend() {
    for rule in rules() {
        let errors = load(&rule, "bad.yaml").expect_err("this file breaks its rule");
        for error in errors.iter() {
            let placed = error.origin.line.is_some() && error.origin.column.is_some();
            assert!(placed && error.hint.is_some(), "{}: {error}", rule.display());
        }
    }
}

fn rules() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules");
    let mut rules: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!rules.is_empty(), "the folder of rules is empty");
    rules.sort();
    rules
}

/// Paths are read within the folder of the rule, so that places are the same on every machine.
fn load(rule: &Path, file: &str) -> Result<Config, ConfigErrors> {
    let folder = rule.to_owned();
    let files = ["below.yaml", file].map(PathBuf::from).into_iter().filter(|file| rule.join(file).exists());
    Layers::new().reader(move |path| std::fs::read(folder.join(path))).files(files).load(&catalog())
}

/// What the environments of a good file say when they are chosen.
fn good(rule: &Path) -> String {
    let config = load(rule, "good.yaml").unwrap_or_else(|errors| panic!("{}: {errors}", rule.display()));
    let refused = config.environments().filter_map(|name| config.environment(name).err());
    refused.map(|errors| errors.to_string()).collect::<Vec<_>>().join("\n")
}

/// The comment below the marker. The file itself may not be UTF-8.
fn expected(file: &Path, marker: &str) -> String {
    let text = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let text = String::from_utf8_lossy(&text);
    let comment = text.split_once(marker).map_or("", |(_, comment)| comment);
    comment.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

fn write_expected(file: &Path, marker: &str, given: &str) {
    let mut bytes = std::fs::read(file).unwrap();
    if let Some(at) = bytes.windows(marker.len()).position(|window| window == marker.as_bytes()) {
        bytes.truncate(at);
    }
    if !given.is_empty() {
        bytes.extend(marker.bytes());
        bytes.extend(given.lines().flat_map(|line| format!("# {line}\n").into_bytes()));
    }
    std::fs::write(file, bytes).unwrap();
}
