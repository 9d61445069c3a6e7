//! A process that works with a cloud: an instance made anew, and a journal.

use std::sync::Arc;
use std::time::Duration;

use bake_core::Cloud;
use bake_engine::{
    Cancel, Engine, EngineOptions, EventSink, Journal, Left, MutationKind, Mutations, Output, Plan, ResourceRecord,
    Retry, RunId, StepFailure, Undo,
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::cloud::CloudWorld;
use crate::fake::{memory_folder, run_spec};
use crate::run::sure;

/// Makes one thing in each run, and takes runs back.
pub(super) struct Process {
    pub(super) cloud: Arc<dyn Cloud>,
    engine: Engine,
    journal: Journal,
    _folder: TempDir,
}

/// What a process finds in the journal of one that is gone.
#[derive(Clone, Copy)]
pub(super) enum Inherited<'a> {
    /// Everything.
    All,
    /// Everything but the answers: it died before it could write them down.
    NoAnswers,
    /// Everything, with one run under the name of another.
    Renamed { run: &'a RunId, to: &'a RunId },
}

impl Process {
    /// Starts one with an empty journal.
    pub(super) fn new(world: &dyn CloudWorld) -> Self {
        Self::with_journal(world, memory_folder())
    }

    /// Starts one that goes on with a copy of the journal of another.
    pub(super) fn heir(world: &dyn CloudWorld, of: &Process, inherited: Inherited<'_>) -> Self {
        let folder = memory_folder();
        let copy = folder.path().join(JOURNAL);
        let to = copy.to_str().expect("a temporary folder has a plain name");
        sure(sure(Connection::open(of.journal.path())).execute("VACUUM INTO ?1", [to]));
        let changes = match inherited {
            Inherited::All => String::new(),
            Inherited::NoAnswers => "UPDATE resources SET state = 'open', made = NULL, result = NULL".into(),
            Inherited::Renamed { run, to } => format!(
                "PRAGMA foreign_keys = OFF; UPDATE runs SET id = '{to}' WHERE id = '{run}';
                 UPDATE resources SET run = '{to}' WHERE run = '{run}'"
            ),
        };
        sure(sure(Connection::open(&copy)).execute_batch(&changes));
        Self::with_journal(world, folder)
    }

    fn with_journal(world: &dyn CloudWorld, folder: TempDir) -> Self {
        let mut mutations = Mutations::new();
        let cloud = world.build(&mut mutations);
        let journal = sure(Journal::open(&folder.path().join(JOURNAL)));
        // What is in use stays so until somebody else acts, and here nobody does, or does at once.
        let options = EngineOptions {
            stall_limit: Duration::from_millis(500),
            undo_pace: Duration::from_millis(20),
            ..EngineOptions::default()
        };
        let (sink, _nobody_listens) = EventSink::channel();
        let engine = Engine::new(journal.clone(), Arc::new(mutations), options, sink);
        Self { cloud, engine, journal, _folder: folder }
    }

    /// Makes one thing, in a run of its own.
    pub(super) async fn try_make<Q, R>(
        &self,
        run: &RunId,
        kind: &MutationKind<Q, R>,
        request: &Q,
    ) -> Result<R, StepFailure>
    where
        Q: Output + Clone,
        R: Output,
    {
        let retry = Retry { attempts: 3, base: Duration::from_millis(1), cap: Duration::from_millis(10) };
        let mut plan = Plan::new();
        let frozen = request.clone();
        let step = plan.steps().step("make").retry(retry).mutate(kind, move |()| frozen.clone());
        let mut outcome = sure(self.engine.run(plan, run_spec(run), Cancel::new()).await);
        sure(self.engine.close(run, outcome.verdict).await);
        match sure(outcome.output(step)) {
            Some(result) => Ok(result),
            None => Err(outcome.failures.remove(0)),
        }
    }

    /// Makes one thing, in a run of its own, and ends the test if that fails.
    pub(super) async fn make<Q, R>(&self, run: &RunId, kind: &MutationKind<Q, R>, request: &Q) -> R
    where
        Q: Output + Clone,
        R: Output,
    {
        let made = self.try_make(run, kind, request).await;
        made.unwrap_or_else(|failure| panic!("`{}` of `{run}` failed: {}", kind.name(), failure.error.join(": ")))
    }

    /// Takes back all that a run made, and returns what it could not.
    pub(super) async fn undo(&self, run: &RunId) -> Vec<Left> {
        sure(self.engine.undo(run, Undo::Everything, Cancel::new()).await)
    }

    /// Returns what the journal says of the one thing that a run made.
    pub(super) fn resource(&self, run: &RunId) -> ResourceRecord {
        sure(self.journal.resources(run)).pop().expect("the run has an operation")
    }
}

const JOURNAL: &str = "journal.db";
