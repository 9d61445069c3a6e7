use std::collections::BTreeMap;

use bake_config::Origin;
use bake_core::{Facts, Moment, NAMES, Name, find_name};

use super::look_into;
use super::show::place;
use crate::cli::{Format, Output};
use crate::configuration::Configuration;
use crate::terminal::print_line;
use crate::variables::{VariableFlags, variables};

/// List what templates and predicates of an environment may name, with values and who set them
///
/// What is not known before a bake is listed with the step that makes it known, and with the templates that use it.
#[derive(Debug, clap::Args)]
pub(crate) struct VarsArgs {
    /// Name of the environment; the default one if it is left out
    name: Option<String>,
    /// Only what cannot be known yet
    #[arg(long)]
    unresolved: bool,
    #[command(flatten)]
    variables: VariableFlags,
    #[command(flatten)]
    output: Output,
}

/// A name with what is known of it.
struct Line {
    name: String,
    value: Option<String>,
    origin: Option<Origin>,
    moment: Moment,
    /// Who uses it, each with where that is written.
    used_by: Vec<String>,
}

pub(super) fn run(configuration: &Configuration, arguments: &VarsArgs) -> anyhow::Result<()> {
    let environment = configuration.environment(arguments.name.as_deref())?;
    let (composition, known) = look_into(configuration, &environment, &arguments.variables)?;
    let mut users = users(&composition.texts(), &known);
    let written = variables(&environment, &arguments.variables);
    let vars = known.vars().iter().map(|(name, value)| {
        let path = format!("vars.{name}");
        let origin = written.get(name).map(|text| text.origin.clone());
        let used_by = users.remove(&path).unwrap_or_default();
        Line { name: path, value: Some(value.clone()), origin, moment: Moment::Start, used_by }
    });
    let mut lines: Vec<Line> = vars.collect();
    let start = |name: &&Name| name.moment == Moment::Start && name.path != "vars.NAME";
    for name in NAMES.iter().filter(start) {
        let used_by = users.remove(name.path).unwrap_or_default();
        let value = (name.path == "env.name").then(|| environment.name.clone());
        let origin = value.is_some().then(|| environment.origin.clone());
        lines.push(Line { name: name.path.to_owned(), value, origin, moment: name.moment, used_by });
    }
    // Names in use as they are written there, then those that nobody uses.
    let unused = NAMES.iter().filter(|name| name.moment > Moment::Start && !users.contains_key(name.path));
    let unused: Vec<_> = unused.map(|name| (name.path.to_owned(), Vec::new())).collect();
    let later = |(name, used_by): (String, Vec<String>)| {
        let moment = find_name(&name)?.moment;
        Some(Line { name, value: None, origin: None, moment, used_by })
    };
    let mut later: Vec<_> = users.into_iter().chain(unused).filter_map(later).collect();
    later.sort_by_key(|line| (line.moment, line.used_by.is_empty()));
    lines.extend(later);
    lines.iter().filter(|line| !arguments.unresolved || line.value.is_none()).try_for_each(|line| {
        print_line(&match arguments.output.format {
            Format::Json => line.to_json().to_string(),
            Format::Text => line.to_text(),
        })
    })
}

/// Which texts name what.
fn users(texts: &[(String, String, bake_config::Text)], known: &bake_core::Known) -> BTreeMap<String, Vec<String>> {
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (finalizer, key, text) in texts {
        // A text that cannot work is for `bake env check` to tell.
        let names = known.explain(&text.text, &Facts::default()).map(|explained| explained.names).unwrap_or_default();
        for name in names {
            users.entry(name.path).or_default().push(format!("{finalizer}.{key}"));
        }
    }
    users
}

impl Line {
    fn to_text(&self) -> String {
        let value = self.value.clone().unwrap_or_else(|| format!("(known {})", self.moment.words()));
        let origin = self.origin.as_ref().map(|origin| format!("    # {origin}")).unwrap_or_default();
        let used_by =
            if self.used_by.is_empty() { String::new() } else { format!("    used by {}", self.used_by.join(", ")) };
        format!("{}: {value}{origin}{used_by}", self.name)
    }

    fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.name, "value": self.value, "origin": self.origin.as_ref().map(place), "known_after": self.moment.step(),
            "used_by": self.used_by,
        })
    }
}
