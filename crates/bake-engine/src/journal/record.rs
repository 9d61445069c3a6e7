//! What is written: one statement for each sort of record.

use std::sync::Arc;

use rusqlite::{Connection, named_params};
use serde::{Deserialize, Serialize};

use crate::event::{Event, StepState, Verdict};
use crate::id::RunId;
use crate::journal::SCHEMA_VERSION;
use crate::mutation::{Keep, Op};

/// How far an operation is, as far as the journal knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceState {
    /// It was going to be sent. It may be in flight, or the process died.
    Open,
    /// It was made, and its ids are known. It may not be ready.
    Accepted,
    /// It is ready and was read back.
    Done,
    /// It failed, and whether something was made is not known.
    Unknown,
    /// Nothing was made.
    NotMade,
    /// It is being taken back, and may be gone.
    Undoing,
    /// It was taken back.
    Undone,
}

impl ResourceState {
    /// Says whether something is there, or may be.
    pub fn is_there(self) -> bool {
        !matches!(self, ResourceState::NotMade | ResourceState::Undone)
    }

    /// Says whether something may be there that has no id in the journal.
    pub fn is_pending(self) -> bool {
        matches!(self, ResourceState::Open | ResourceState::Unknown)
    }
}

pub(crate) enum Record {
    Run(Box<RunRow>),
    /// Somebody who did not begin the run is going to write of it.
    Opened,
    /// The run goes on, with this plan.
    Resumed {
        plan: String,
        plan_digest: String,
    },
    RunFinished(Verdict),
    Step(StepRow),
    Intent(Intent),
    Made {
        operation: String,
        made: Arc<str>,
    },
    Settled {
        operation: String,
        result: Arc<str>,
    },
    Resource {
        operation: String,
        state: ResourceState,
    },
}

pub(crate) struct RunRow {
    pub(crate) started: jiff::Timestamp,
    pub(crate) title: String,
    pub(crate) request_key: String,
    pub(crate) config: String,
    pub(crate) plugins: String,
    pub(crate) plan: String,
    pub(crate) plan_digest: String,
}

pub(crate) struct StepRow {
    pub(crate) path: Arc<str>,
    pub(crate) generation: u32,
    pub(crate) state: Option<StepState>,
    pub(crate) attempts: u32,
    pub(crate) conditions: Option<String>,
    pub(crate) output: Option<Arc<str>>,
    pub(crate) error: Option<String>,
    pub(crate) retry: Option<String>,
    pub(crate) skipped: Option<String>,
}

pub(crate) struct Intent {
    pub(crate) op: Op,
    pub(crate) kind: &'static str,
    pub(crate) keep: Keep,
    pub(crate) request: Arc<str>,
}

impl Record {
    pub(super) fn save(&self, to: &Connection, run: &RunId) -> rusqlite::Result<()> {
        let (run, now) = (run.as_str(), jiff::Timestamp::now().to_string());
        let changed = match self {
            Record::Run(row) => to.prepare_cached(
                "INSERT INTO runs (id, started, title, request_key, config, plugins, plan, plan_digest, format)
                 VALUES (:id, :started, :title, :request_key, :config, :plugins, :plan, :plan_digest, :format)",
            )?.execute(named_params! {
                ":id": run, ":started": row.started.to_string(), ":title": row.title, ":request_key": row.request_key,
                ":config": row.config, ":plugins": row.plugins, ":plan": row.plan, ":plan_digest": row.plan_digest,
                ":format": SCHEMA_VERSION,
            })?,
            Record::Opened => {
                to.prepare_cached("UPDATE runs SET epoch = epoch + 1 WHERE id = :run")?.execute([run])?
            }
            Record::Resumed { plan, plan_digest } => to.prepare_cached(
                "UPDATE runs SET plan = :plan, plan_digest = :digest, finished = NULL, verdict = NULL WHERE id = :run",
            )?.execute(named_params! { ":plan": plan, ":digest": plan_digest, ":run": run })?,
            Record::RunFinished(verdict) => to
                .prepare_cached("UPDATE runs SET finished = :now, verdict = :verdict WHERE id = :run")?
                .execute(named_params! { ":now": now, ":verdict": word(verdict), ":run": run })?,
            Record::Step(row) => row.save(to, run, &now)?,
            Record::Intent(intent) => intent.save(to, run, &now)?,
            Record::Made { operation, made } => to.prepare_cached(
                "UPDATE resources SET state = :state, made = :made, updated = :now
                 WHERE run = :run AND operation = :operation",
            )?.execute(named_params! {
                ":state": word(&ResourceState::Accepted), ":made": &**made, ":now": now, ":run": run,
                ":operation": operation,
            })?,
            Record::Settled { operation, result } => to.prepare_cached(
                "UPDATE resources SET state = :state, result = :result, updated = :now
                 WHERE run = :run AND operation = :operation",
            )?.execute(named_params! {
                ":state": word(&ResourceState::Done), ":result": &**result, ":now": now, ":run": run,
                ":operation": operation,
            })?,
            Record::Resource { operation, state } => to.prepare_cached(
                "UPDATE resources SET state = :state, updated = :now WHERE run = :run AND operation = :operation",
            )?.execute(named_params! {
                ":state": word(state), ":now": now, ":run": run, ":operation": operation,
            })?,
        };
        // An update that finds nothing would be a record that was lost.
        if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
    }
}

impl StepRow {
    /// Returns the row of a step that has ended.
    pub(crate) fn settled(path: &Arc<str>, generation: u32, state: StepState, attempts: u32) -> StepRow {
        StepRow {
            path: Arc::clone(path),
            generation,
            state: Some(state),
            attempts,
            conditions: None,
            output: None,
            error: None,
            retry: None,
            skipped: None,
        }
    }

    /// Returns the row of a step that is under way.
    pub(crate) fn under_way(path: &Arc<str>, generation: u32, attempts: u32) -> StepRow {
        StepRow { state: None, ..StepRow::settled(path, generation, StepState::Done, attempts) }
    }

    fn save(&self, to: &Connection, run: &str, now: &str) -> rusqlite::Result<usize> {
        to.prepare_cached(
            "INSERT INTO steps (run, path, generation, state, attempts, conditions, output, error, retry, skipped, updated)
             VALUES (:run, :path, :generation, :state, :attempts, :conditions, :output, :error, :retry, :skipped, :now)
             ON CONFLICT (run, path) DO UPDATE SET generation = excluded.generation, state = excluded.state,
             attempts = excluded.attempts, conditions = coalesce(excluded.conditions, conditions),
             output = excluded.output, error = excluded.error, retry = excluded.retry, skipped = excluded.skipped,
             updated = excluded.updated",
        )?
        .execute(named_params! {
            ":run": run, ":path": &*self.path, ":generation": self.generation,
            ":state": self.state.as_ref().map(word), ":attempts": self.attempts, ":conditions": self.conditions,
            ":output": self.output.as_deref(), ":error": self.error, ":retry": self.retry, ":skipped": self.skipped,
            ":now": now,
        })
    }
}

impl Intent {
    fn save(&self, to: &Connection, run: &str, now: &str) -> rusqlite::Result<usize> {
        to.prepare_cached(
            "INSERT INTO resources (run, operation, step, generation, kind, keep, state, intended, updated, request)
             VALUES (:run, :operation, :step, :generation, :kind, :keep, :state, :intended, :now, :request)",
        )?
        .execute(named_params! {
            ":run": run, ":operation": self.op.id(), ":step": self.op.step(), ":generation": self.op.generation(),
            ":kind": self.kind, ":keep": word(&self.keep), ":state": word(&ResourceState::Open),
            ":intended": self.op.time().to_string(), ":now": now, ":request": &*self.request,
        })
    }
}

pub(super) fn save_event(to: &Connection, event: &Event) -> rusqlite::Result<()> {
    let body = serde_json::to_string(&event.kind).expect("an event has nothing that JSON cannot say");
    to.prepare_cached(
        "INSERT INTO events (run, seq, at, step, attempt, body) VALUES (:run, :seq, :at, :step, :attempt, :body)",
    )?
    .execute(named_params! {
        ":run": event.run.as_str(), ":seq": event.seq.cast_signed(), ":at": event.at.to_string(), ":step": event.step,
        ":attempt": event.attempt, ":body": body,
    })?;
    Ok(())
}

/// Writes an enum without data as its one word, the same as in JSON.
pub(super) fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(_) | Err(_) => unreachable!("an enum without data is one word"),
    }
}
