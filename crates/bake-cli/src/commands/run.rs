use std::time::Instant;

use bake_engine::RunId;

use crate::asked::Asked;
use crate::cli::Global;
use crate::configuration::Configuration;
use crate::execution::{self, Ending};
use crate::exit::Exit;
use crate::preparation::Prepared;

/// Bake packages into an image
///
/// The environment says what is used: cloud, block device, volume, provisioner and the finalizers that follow. The ids of
/// what was made are printed at the end, a line for each: region, account, kind, id and name.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Bake although an earlier run of the same request is unfinished; that one stays as it is
    #[arg(long)]
    fresh: bool,
    /// Take an earlier bake of the same request, if there is one and its images are still there
    #[arg(long, conflicts_with = "fresh")]
    reuse: bool,
    #[command(flatten)]
    ending: Ending,
}

/// Bakes, and returns the exit code that tells how it went.
pub(crate) async fn run(global: &Global, arguments: RunArgs) -> anyhow::Result<Exit> {
    let (begun, started) = (Instant::now(), jiff::Timestamp::now());
    let RunArgs { asked, fresh, reuse, ending } = arguments;
    let configuration = Configuration::load(global)?;
    let prepared = Prepared::new(&configuration, asked.here()?, RunId::new(started), started)?;
    ending.refuse_unwritable()?;
    execution::refuse_without_rights()?;
    let places = &configuration.places;
    places.make()?;
    let _lock = places.lock_request(&prepared.key, prepared.id())?;
    if reuse && let Some(report) = execution::baked_before(places, &prepared).await? {
        return ending.deliver(global, &report);
    }
    if !fresh {
        execution::refuse_unfinished(places, &prepared.key)?;
    }
    execution::begin(global, places, prepared, &ending, begun).await
}
