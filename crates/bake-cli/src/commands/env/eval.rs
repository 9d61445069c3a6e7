use std::collections::BTreeMap;

use bake_core::{Facts, Image, Moment};
use bake_engine::{Journal, RunId, RunView};

use super::look_into;
use crate::cli::{Format, Output};
use crate::configuration::Configuration;
use crate::failure::Advice;
use crate::terminal::print_line;
use crate::variables::VariableFlags;

/// Show how a template or a predicate comes to its value
///
/// Every name in it is shown with its value, or with the step that will make it known. `--with` tries a value out, and `--run` takes
/// the values of a run. For example: `bake env eval "arch == 'x86_64'" --with arch=aarch64`
#[derive(Debug, clap::Args)]
pub(crate) struct EvalArgs {
    /// A template such as `{{ package.name }}-{{ vars.suffix }}`, or an expression such as `arch == 'x86_64'`
    #[arg(value_name = "TEXT")]
    text: String,
    /// Environment whose variables are used; the default one if it is left out
    #[arg(short, long, visible_alias = "environment")]
    env: Option<String>,
    /// Take this value for a name, such as `package.version=1.2` (can be repeated)
    #[arg(long, value_name = "NAME=VALUE")]
    with: Vec<String>,
    /// Take the values of this run
    #[arg(long)]
    run: Option<RunId>,
    #[command(flatten)]
    variables: VariableFlags,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(configuration: &Configuration, arguments: &EvalArgs) -> anyhow::Result<()> {
    let environment = configuration.environment(arguments.env.as_deref())?;
    let (_, known) = look_into(configuration, &environment, &arguments.variables)?;
    let mut facts = match &arguments.run {
        Some(run) => facts_of(configuration, run)?,
        None => Facts::default(),
    };
    facts.given = given(&arguments.with)?;
    let explained = known
        .explain(&arguments.text, &facts)
        .map_err(|error| Advice::usage(error.to_string()).hint("`bake env vars` lists what templates may name"))?;
    if arguments.output.format == Format::Json {
        let names = explained.names.iter().map(
            |name| serde_json::json!({ "name": name.path, "value": name.value, "known_after": name.moment.step() }),
        );
        let line = serde_json::json!({
            "text": arguments.text, "names": names.collect::<Vec<_>>(), "value": explained.value, "pattern": explained.pattern,
        });
        return print_line(&line.to_string());
    }
    for name in &explained.names {
        let value = match (&name.value, name.moment) {
            (Some(value), _) => value.clone(),
            (None, Moment::Start) => "(not there)".to_owned(),
            (None, moment) => format!("(known {})", moment.words()),
        };
        print_line(&format!("{}: {value}", name.path))?;
    }
    match (explained.value, explained.pattern) {
        (Some(value), _) => print_line(&format!("= {value}")),
        (None, Some(pattern)) => print_line(&format!("= {pattern}")),
        (None, None) => print_line("= (not known yet)"),
    }
}

fn given(with: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) if bake_core::find_name(name).is_some() => Ok((name.to_owned(), value.to_owned())),
        Some((name, _)) => {
            let names: Vec<_> = bake_core::NAMES.iter().map(|name| name.path).collect();
            Err(Advice::usage(format!("templates cannot name `{name}`")).hint(format!("known: {}", names.join(", "))))
        }
        None => Err(Advice::usage(format!("`--with {text}` gives nothing")).hint("write `--with NAME=VALUE`")),
    };
    Ok(with.iter().map(pair).collect::<Result<_, _>>()?)
}

/// Reads back what a run found out and made.
fn facts_of(configuration: &Configuration, run: &RunId) -> anyhow::Result<Facts> {
    let unknown = || Advice::usage(format!("there is no run `{run}`")).hint("`bake runs` lists them");
    let journal = configuration.places.journal();
    if !journal.exists() {
        return Err(unknown().into());
    }
    let view = Journal::read_only(&journal)?.view(run)?.ok_or_else(unknown)?;
    Ok(Facts {
        base: output(&view, "base")?,
        installed: output(&view, "volume/provision")?,
        images: images(&view)?,
        meant: None,
        given: BTreeMap::new(),
    })
}

fn output<T: serde::de::DeserializeOwned>(view: &RunView, path: &str) -> anyhow::Result<Option<T>> {
    let step = view.steps.iter().find(|step| step.path == path);
    Ok(step.and_then(|step| step.output.clone()).map(serde_json::from_value).transpose()?)
}

/// The images by their names within the bake: how their disk is kept, or the finalizer's name if it has one of its own.
fn images(view: &RunView) -> anyhow::Result<BTreeMap<String, Image>> {
    let groups = view.run.config["finalizer_set"]["groups"].as_array().into_iter().flatten();
    let has_own_name: BTreeMap<_, _> = groups
        .flat_map(|group| group.as_array().into_iter().flatten())
        .filter_map(|member| Some((member["name"].as_str()?, member["name"] != member["plugin"])))
        .collect();
    let mut images = BTreeMap::new();
    for step in &view.steps {
        let Some(finalizer) = step.path.strip_prefix("finalize/").and_then(|path| path.strip_suffix("/image")) else {
            continue;
        };
        let Some(image) = step.output.clone() else { continue };
        let image: Image = serde_json::from_value(image)?;
        let own = has_own_name.get(finalizer).copied().unwrap_or_default();
        images.insert(if own { finalizer.to_owned() } else { image.store.clone() }, image);
    }
    Ok(images)
}
