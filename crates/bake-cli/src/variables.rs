//! The variables of templates, each with who set it.

use std::collections::BTreeMap;

use bake_config::{Environment, Origin, Text};
use bake_core::Known;
use serde::{Deserialize, Serialize};

use crate::failure::Advice;

/// The default of `suffix`: the time, to the second, since two bakes in one minute are nothing special.
const SUFFIX: &str = "{{ date | strftime('%Y%m%d%H%M%S') }}";

/// What the command line says about variables.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
pub(crate) struct VariableFlags {
    /// Last part of the image's name; the time if it is left out
    #[arg(short, long)]
    suffix: Option<String>,
    /// Who bakes, for the tag `creator`; the user if it is left out
    #[arg(short, long)]
    creator: Option<String>,
}

/// The variables of a bake, weakest to strongest: built-in, the environment's, flags.
pub(crate) fn variables(environment: &Environment, flags: &VariableFlags) -> BTreeMap<String, Text> {
    let named = |name: &str, text: &str, origin: &str| {
        (name.to_owned(), Text { text: text.to_owned(), origin: Origin::named(origin) })
    };
    let (user, whose) = user();
    let built_in = [named("suffix", SUFFIX, "built-in"), named("creator", &user, &whose)];
    let written = environment.vars.iter().map(|(name, text)| (name.clone(), text.clone()));
    let suffix = flags.suffix.iter().map(|text| named("suffix", text, "--suffix"));
    let creator = flags.creator.iter().map(|text| named("creator", text, "--creator"));
    built_in.into_iter().chain(written).chain(suffix).chain(creator).collect()
}

/// Who is baking, and how that is known.
fn user() -> (String, String) {
    let variable = |name: &&str| Some((std::env::var(name).ok()?, format!("${name}")));
    ["SUDO_USER", "USER"].iter().find_map(variable).unwrap_or_else(|| ("root".into(), "built-in".into()))
}

/// Fills the variables in for a run.
pub(crate) fn known(
    variables: &BTreeMap<String, Text>,
    environment: &Environment,
    run: &str,
    started: jiff::Timestamp,
) -> Result<Known, Advice> {
    let texts = variables.iter().map(|(name, text)| (name.clone(), text.text.clone())).collect();
    Known::new(texts, &environment.name, run, started).map_err(|error| {
        let place = variables.get(&error.name).map(|text| format!("{}: ", text.origin)).unwrap_or_default();
        Advice::usage(format!("{place}{error}: {}", error.source))
            .hint("a variable may name `date`, `env.name` and `run.id`, and no other variable")
    })
}
