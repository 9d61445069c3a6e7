use std::time::Instant;

use anyhow::Context;
use bake_engine::{Journal, RunId, RunRecord};

use super::runs::unknown_run;
use crate::asked::Asked;
use crate::cli::Global;
use crate::configuration::Configuration;
use crate::execution::{self, Ending};
use crate::exit::Exit;
use crate::failure::Advice;
use crate::preparation::Prepared;

/// Go on with a run that was killed, failed or was cancelled
///
/// What is done stays done, and what failed is tried again. Environments are read again, from where the bake was asked for: what they
/// say of copies, tags and notifications may have changed, and the missing part is added; what has been made already may not.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    /// The run
    run: RunId,
    #[command(flatten)]
    ending: Ending,
}

pub(crate) async fn run(global: &Global, arguments: ResumeArgs) -> anyhow::Result<Exit> {
    let begun = Instant::now();
    let ResumeArgs { run, ending } = arguments;
    let record = find(global, &run)?;
    let asked: Asked = serde_json::from_value(record.config["asked"].clone()).with_context(|| {
        let message = format!("the run `{run}` does not say what was asked for, and can only be taken back");
        Advice::usage(message).hint(format!("`bake teardown {run}`"))
    })?;
    let configuration = Configuration::load_from(global, &asked.folder)?;
    // Its own name and its own clock: what is rendered now is what was rendered then.
    let prepared = Prepared::new(&configuration, asked, run.clone(), record.started)?;
    ending.refuse_unwritable()?;
    execution::refuse_without_rights()?;
    let places = &configuration.places;
    places.make()?;
    let _lock = places.lock_request(&record.request_key, &run)?;
    execution::go_on(global, places, prepared, &ending, begun).await
}

fn find(global: &Global, run: &RunId) -> anyhow::Result<RunRecord> {
    let places = Configuration::load(global)?.places;
    if !places.journal().exists() {
        return Err(unknown_run(run).into());
    }
    Ok(Journal::read_only(&places.journal())?.run(run)?.ok_or_else(|| unknown_run(run))?)
}
