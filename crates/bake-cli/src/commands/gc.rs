use std::time::Duration;

use anyhow::Context;
use bake_core::{Scrap, ScrapKind};
use bake_engine::{Cancel, Journal, Mutations, RunId, StepContext, Undone};

use crate::cli::{Format, Global, Output};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::failure::Advice;
use crate::places::Places;
use crate::plugins::{self, Overrides};
use crate::terminal::{print_line, tell};

/// Find volumes and snapshots that bakes have left and nobody needs
///
/// They are found by their tags, so also when the journal that knew of them is gone. What belongs to a run that is running or
/// unfinished is told of and never touched, nor is any image. Nothing is removed without `--delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct GcArgs {
    /// Environment whose cloud is searched; the default one if it is left out
    #[arg(short, long, visible_alias = "environment")]
    env: Option<String>,
    /// Remove them
    #[arg(long)]
    delete: bool,
    /// Only what is older than this: a run that this journal does not know may be baking on another machine
    #[arg(long, value_name = "TIME", default_value = "1day", value_parser = humantime::parse_duration)]
    older_than: Duration,
    #[command(flatten)]
    output: Output,
}

/// Whose a scrap is.
enum Owner {
    /// A run that is going on, or will be.
    Open(RunId),
    /// A run that ended, or of which this journal knows nothing.
    Nobody,
}

pub(crate) async fn run(global: &Global, arguments: GcArgs) -> anyhow::Result<Exit> {
    let configuration = Configuration::load(global)?;
    let environment = configuration.environment(arguments.env.as_deref())?;
    let places = &configuration.places;
    let composition = plugins::compose(&environment, &Overrides::default(), places, &mut Mutations::new())
        .map_err(|error| Advice::usage(format!("{error:#}")))?;
    let cloud = composition.cloud;
    let cx = StepContext::detached("gc", &Cancel::new());
    let (mut left, mut found) = (0, 0);
    for scrap in cloud.scraps(cx.clone()).await? {
        match owner(places, &scrap)? {
            Owner::Open(run) => {
                tell(&format!(
                    "{} `{}` belongs to the run {run}: `bake resume {run}` or `bake teardown {run}`\n",
                    word(&scrap),
                    scrap.id
                ));
            }
            Owner::Nobody if age(&scrap) < arguments.older_than => {}
            Owner::Nobody => {
                found += 1;
                let outcome = match arguments.delete {
                    false => "found",
                    true => match cloud
                        .remove_scrap(cx.clone(), &scrap)
                        .await
                        .with_context(|| format!("cannot remove `{}`", scrap.id))?
                    {
                        Undone::Gone => "removed",
                        Undone::InUse => {
                            left += 1;
                            "in use"
                        }
                    },
                };
                print_line(&line(arguments.output.format, &scrap, outcome))?;
            }
        }
    }
    if found > 0 && !arguments.delete {
        tell("nothing was removed; `bake gc --delete` removes what is listed\n");
    }
    Ok(if left == 0 { Exit::Done } else { Exit::DoneWithLeftovers })
}

fn owner(places: &Places, scrap: &Scrap) -> anyhow::Result<Owner> {
    let Ok(run) = scrap.run.parse::<RunId>() else { return Ok(Owner::Nobody) };
    if !places.journal().exists() {
        return Ok(Owner::Nobody);
    }
    let journal = Journal::read_only(&places.journal())?;
    Ok(match journal.run(&run)? {
        Some(record) if record.verdict.is_none() || places.is_locked(&record.request_key) => Owner::Open(run),
        // Kept on purpose, or could not be removed: the run still knows of it.
        Some(_) if crate::execution::knows_of(&journal, &run, &scrap.id)? => Owner::Open(run),
        Some(_) | None => Owner::Nobody,
    })
}

fn age(scrap: &Scrap) -> Duration {
    Duration::try_from(jiff::Timestamp::now().duration_since(scrap.created)).unwrap_or_default()
}

fn word(scrap: &Scrap) -> &'static str {
    match scrap.kind {
        ScrapKind::Volume => "volume",
        ScrapKind::Snapshot => "snapshot",
    }
}

fn line(format: Format, scrap: &Scrap, outcome: &str) -> String {
    match format {
        Format::Json => {
            let mut json = serde_json::json!(scrap);
            json["outcome"] = outcome.into();
            json.to_string()
        }
        Format::Text => {
            format!("{} {} {} of run {}, {} ({outcome})", scrap.region, word(scrap), scrap.id, scrap.run, scrap.created)
        }
    }
}
