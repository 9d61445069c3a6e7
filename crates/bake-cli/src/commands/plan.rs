use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use bake_engine::{Cancel, RunId, StepContext};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::asked::Asked;
use crate::cli::{Format, Global, Output};
use crate::configuration::Configuration;
use crate::execution::{self, Ending};
use crate::exit::Exit;
use crate::failure::Advice;
use crate::preparation::Prepared;
use crate::report::Report;
use crate::terminal::print_line;

/// The version of a plan's file that this program writes and reads.
const VERSION: u64 = 1;

/// Show what a bake would do, and touch nothing
///
/// Each step is shown with what it calls; steps of one wave can run together. What is not known before the bake is shown as a
/// reference to the step that will know it, such as `${base#/id}`.
#[derive(Debug, clap::Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Write the plan to this file too, for `bake apply`
    #[arg(short, long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Also ask the cloud whether the base image is there
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    output: Output,
}

/// Do what a plan's file says, exactly that or nothing
#[derive(Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    /// The file that `bake plan --to FILE` wrote
    file: PathBuf,
    /// Bake although an earlier run of the same request is unfinished; that one stays as it is
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    ending: Ending,
}

pub(crate) async fn plan(global: &Global, arguments: PlanArgs) -> anyhow::Result<()> {
    let created = jiff::Timestamp::now();
    let configuration = Configuration::load(global)?;
    let prepared = Prepared::new(&configuration, arguments.asked.here()?, RunId::new(created), created)?;
    let file = file_of(&prepared, created);
    if let Some(path) = &arguments.to {
        Report::write(path, &format!("{file:#}\n"))?;
    }
    match arguments.output.format {
        Format::Json => print_line(&file.to_string())?,
        Format::Text => print_line(table(&prepared, &file, global.verbose > 0).trim_end())?,
    }
    if arguments.check {
        check(&prepared).await?;
    }
    Ok(())
}

pub(crate) async fn apply(global: &Global, arguments: ApplyArgs) -> anyhow::Result<Exit> {
    let begun = Instant::now();
    let ApplyArgs { file: path, fresh, ending } = arguments;
    let file = read(&path)?;
    let asked: Asked = serde_json::from_value(file["environment"]["asked"].clone())
        .with_context(|| Advice::usage(format!("`{}` does not say what was asked for", path.display())))?;
    let created = file["created"].as_str().and_then(|text| text.parse().ok());
    let created =
        created.ok_or_else(|| Advice::usage(format!("`{}` does not say when the plan was made", path.display())))?;
    let configuration = Configuration::load_from(global, &asked.folder)?;
    // The clock of the plan: names that hold a time are those that were shown.
    let prepared = Prepared::new(&configuration, asked, RunId::new(jiff::Timestamp::now()), created)?;
    refuse_another(&path, &file, &file_of(&prepared, created))?;
    ending.refuse_unwritable()?;
    execution::refuse_without_rights()?;
    let places = &configuration.places;
    places.make()?;
    let _lock = places.lock_request(&prepared.key, prepared.id())?;
    if !fresh {
        execution::refuse_unfinished(places, &prepared.key)?;
    }
    execution::begin(global, places, prepared, &ending, begun).await
}

/// The plan as a file: everything that decides what will be done, secrets masked.
fn file_of(prepared: &Prepared, created: jiff::Timestamp) -> Value {
    let plan = &prepared.planned.plan;
    let description = plan.describe();
    let mut file = json!({
        "bake_plan": VERSION, "bake": env!("CARGO_PKG_VERSION"), "created": created, "title": prepared.title(),
        "environment": prepared.config(), "vars": prepared.bake.known.vars(),
        "waves": waves(&description), "steps": description["steps"], "warnings": description["warnings"],
    });
    file["digest"] = digest(&file).into();
    file
}

/// A hash of all that a plan's file says.
fn digest(file: &Value) -> String {
    let mut content = file.clone();
    content.as_object_mut().map(|content| content.remove("digest"));
    Sha256::digest(content.to_string().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let wrong = || Advice::usage(format!("`{}` is no plan", path.display())).hint("`bake plan --to FILE` writes one");
    let text = std::fs::read_to_string(path)
        .with_context(|| Advice::usage(format!("cannot read the plan `{}`", path.display())))?;
    let file: Value = serde_json::from_str(&text).with_context(wrong)?;
    match file["bake_plan"].as_u64() {
        Some(VERSION) if file["digest"] == digest(&file).as_str() => Ok(file),
        Some(VERSION) => {
            let message = format!("`{}` was changed after the plan was made", path.display());
            Err(Advice::usage(message).hint("plan again, with what you want").into())
        }
        Some(version) => {
            let message = format!("`{}` is a plan of version {version}; this program knows {VERSION}", path.display());
            Err(Advice::usage(message).hint("plan again, or use the `bake` that wrote it").into())
        }
        None => Err(wrong().into()),
    }
}

/// Refuses if what would be done now is not what the file says, and names what differs.
fn refuse_another(path: &Path, planned: &Value, now: &Value) -> anyhow::Result<()> {
    let mut differences = Vec::new();
    for part in ["environment", "vars", "steps"] {
        compare(&planned[part], &now[part], part, &mut differences);
    }
    if differences.is_empty() {
        return Ok(());
    }
    let lines = differences.join("\n");
    Err(Advice::usage(format!("what would be done now is not what `{}` says:\n{lines}", path.display()))
        .hint("look at the differences, and plan again")
        .into())
}

/// Most differences that anybody reads.
const SHOWN: usize = 20;

fn compare(planned: &Value, now: &Value, place: &str, differences: &mut Vec<String>) {
    if planned == now || differences.len() > SHOWN {
        return;
    }
    if differences.len() == SHOWN {
        differences.push("  …".to_owned());
        return;
    }
    let (Value::Object(planned), Value::Object(now)) = (planned, now) else {
        differences.push(format!("  {place}: {} became {}", short(planned), short(now)));
        return;
    };
    let absent = Value::Null;
    let keys: std::collections::BTreeSet<&String> = planned.keys().chain(now.keys()).collect();
    for key in keys {
        let (before, after) = (planned.get(key).unwrap_or(&absent), now.get(key).unwrap_or(&absent));
        compare(before, after, &format!("{place}.{key}"), differences);
    }
}

fn short(value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = if value.is_null() { "nothing".to_owned() } else { value.to_string() };
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The steps that can run together, wave by wave. Steps that only wait for others are in none.
fn waves(description: &Value) -> Vec<Vec<String>> {
    let empty = Map::new();
    let steps = description["steps"].as_object().unwrap_or(&empty);
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let mut waves: Vec<Vec<String>> = Vec::new();
    // Steps stand in the order in which they were planned, so what one waits for is known, but for an `after` that looks ahead.
    let mut rest: Vec<_> = steps.iter().collect();
    while !rest.is_empty() {
        let before = rest.len();
        rest.retain(|(path, step)| {
            let of =
                |key: &str| step[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>();
            let waits_for = [of("needs"), of("after")].concat();
            let Some(earlier) = waits_for.iter().map(|path| known.get(path).copied()).collect::<Option<Vec<_>>>()
            else {
                return true;
            };
            let end = earlier.into_iter().max().unwrap_or_default();
            let only_waits = ["wait", "scope"].contains(&step["kind"].as_str().unwrap_or_default());
            known.insert(path, if only_waits { end } else { end + 1 });
            if !only_waits {
                waves.resize(waves.len().max(end + 1), Vec::new());
                waves[end].push((*path).clone());
            }
            false
        });
        if rest.len() == before {
            // A plan that was checked has no circle; an old file may have anything.
            break;
        }
    }
    waves
}

/// The plan as people read it.
fn table(prepared: &Prepared, file: &Value, requests: bool) -> String {
    let steps = &file["steps"];
    let waves: Vec<(usize, &str)> = file["waves"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .flat_map(|(number, wave)| wave.as_array().into_iter().flatten().map(move |path| (number + 1, path)))
        .filter_map(|(number, path)| Some((number, path.as_str()?)))
        .collect();
    let width = waves.iter().map(|(_, path)| path.chars().count()).max().unwrap_or_default();
    let digest = file["digest"].as_str().unwrap_or_default();
    let mut text = format!("plan of {}, {}\n", prepared.title(), &digest[..digest.len().min(12)]);
    let mut last = 0;
    for (wave, path) in waves {
        let number = if wave == last { String::new() } else { wave.to_string() };
        last = wave;
        let _ = writeln!(text, "{number:>4}  {path:<width$}  {}", what(path, &steps[path]));
        if let Some(request) = steps[path]["request"].as_object().filter(|_| requests) {
            for (key, value) in request {
                let _ = writeln!(text, "      {:width$}    {key}: {}", "", reference(value));
            }
        }
    }
    for warning in file["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

/// What a step that changes nothing in the cloud does.
fn work(path: &str) -> String {
    match path {
        "base" => "finds the base image",
        "preflight" => "looks for what will keep the bake from ending well",
        "names" => "makes sure that the images' names are free everywhere",
        "volume/open" => "opens the volume in a sandbox",
        "volume/provision" => "installs the packages, and asks the package database",
        "volume/seal" => "cleans, unmounts and checks the volume",
        "identity" => "renders names and tags",
        _ if path.starts_with("identity/") => "renders the tags of copies",
        _ if path.ends_with("/fill in") => "fills in what needs an image",
        _ if path.ends_with("/when") => "decides whether the others run",
        _ => "works",
    }
    .to_owned()
}

/// What a step does, on one line.
fn what(path: &str, step: &Value) -> String {
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|item| Some(item.as_str()?.to_owned())).collect()
    };
    let mut parts = vec![match step["mutation"].as_str() {
        Some(kind) => format!("{kind}: {}", list(&step["calls"]["send"]).join(", ")),
        None => work(path),
    }];
    let when = list(&step["when"]);
    if !when.is_empty() {
        parts.push(format!("if {}", when.join(" and ")));
    }
    if step["optional"] == true {
        parts.push("optional".to_owned());
    }
    if step["keep"] == "scaffold" {
        parts.push("removed at the end".to_owned());
    }
    parts.join("; ")
}

/// A value of a request: a text as it is, a reference as one.
fn reference(value: &Value) -> String {
    match (value.as_str(), value.get("$ref").and_then(Value::as_str)) {
        (Some(text), _) => text.to_owned(),
        (None, Some(reference)) => format!("${{{reference}}}"),
        (None, None) => value.to_string(),
    }
}

/// Asks the cloud what can be known without making anything.
async fn check(prepared: &Prepared) -> anyhow::Result<()> {
    let cloud = &prepared.bake.composition.cloud;
    let cx = StepContext::detached("base", &Cancel::new());
    let base = cloud.resolve_base(cx, &prepared.bake.base).await?;
    print_line(&format!("checked: the base image is `{}` ({}) in region `{}`", base.name, base.id, base.region))?;
    if !cloud.looks_ahead() {
        return Ok(());
    }
    prepared.bake.look_ahead(StepContext::detached("preflight", &Cancel::new()), &base).await?;
    print_line("checked: regions, accounts and permissions, as far as they can be known without making anything")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_can_run_together_are_one_wave() {
        let description = json!({ "steps": {
            "base": { "kind": "work", "needs": [], "after": [] },
            "one": { "kind": "work", "needs": ["base"], "after": ["late"] },
            "two": { "kind": "mutation", "needs": ["base"], "after": [] },
            "group": { "kind": "wait", "needs": [], "after": ["one", "two"] },
            "late": { "kind": "work", "needs": ["base"], "after": [] },
            "last": { "kind": "work", "needs": [], "after": ["group"] },
        }});
        assert_eq!(waves(&description), [vec!["base"], vec!["two", "late"], vec!["one"], vec!["last"]]);
    }

    #[test]
    fn what_differs_is_named_by_its_place() {
        let mut differences = Vec::new();
        let planned = json!({ "regions": ["a"], "gone": 1, "same": { "x": 1 } });
        compare(&planned, &json!({ "regions": ["a", "b"], "same": { "x": 1 }, "new": "x" }), "steps", &mut differences);
        insta::assert_snapshot!(differences.join("\n"), @r#"
          steps.gone: 1 became nothing
          steps.new: nothing became "x"
          steps.regions: ["a"] became ["a","b"]
        "#);
        let many: Map<String, Value> = (0..99).map(|n| (n.to_string(), n.into())).collect();
        let mut differences = Vec::new();
        compare(&many.into(), &json!({}), "steps", &mut differences);
        assert_eq!(differences.len(), SHOWN + 1);
    }
}
