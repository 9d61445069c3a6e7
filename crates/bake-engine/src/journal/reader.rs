//! Reading the journal: typed rows, and one consistent view of a run.

use rusqlite::{Connection, OptionalExtension, Row, Transaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Class, StepError};
use crate::event::{Event, SkipReason, StepState, Verdict};
use crate::id::RunId;
use crate::journal::{Journal, JournalError, ResourceState};
use crate::mutation::Keep;

/// A run, as it was begun and as it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its name.
    pub id: RunId,
    /// When it began.
    pub started: jiff::Timestamp,
    /// When it ended; `None` while it is open.
    pub finished: Option<jiff::Timestamp>,
    /// What it baked, for people.
    pub title: String,
    /// Equal for two runs of the same request.
    pub request_key: String,
    /// The environment, resolved.
    pub config: Value,
    /// Names and versions of the plugins.
    pub plugins: Value,
    /// The plan as printed.
    pub plan: Value,
    /// The digest of the plan.
    pub plan_digest: String,
    /// How it ended; `None` while it is open.
    pub verdict: Option<Verdict>,
    /// The version of the journal that it was begun with.
    pub format: i64,
}

/// What the journal keeps of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTrouble {
    /// What kind of failure it was.
    pub class: Class,
    /// The messages from the outermost to the cause.
    pub chain: Vec<String>,
    /// What to do next, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Lines to show below the error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

impl From<&StepError> for StepTrouble {
    fn from(error: &StepError) -> StepTrouble {
        StepTrouble {
            class: error.class(),
            chain: error.chain(),
            hint: error.hint_text().map(str::to_owned),
            details: error.detail_lines().to_vec(),
        }
    }
}

/// A step, as far as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Its path.
    pub path: String,
    /// How often its scope was begun.
    pub generation: u32,
    /// How it ended; `None` until then.
    pub state: Option<StepState>,
    /// Tries so far.
    pub attempts: u32,
    /// What its conditions were found to be, by their text.
    pub conditions: Option<Value>,
    /// What it gave.
    pub output: Option<Value>,
    /// Why it failed.
    pub error: Option<StepTrouble>,
    /// What it waits for before the next try.
    pub retry: Option<Value>,
    /// Why it was not run.
    pub skipped: Option<SkipReason>,
}

/// An operation and what it made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceRecord {
    /// The id of the operation, unique within the run.
    pub operation: String,
    /// The step that it belongs to.
    pub step: String,
    /// How often the step's scope had been begun.
    pub generation: u32,
    /// The kind of mutation.
    pub kind: String,
    /// Whether it stays.
    pub keep: Keep,
    /// How far it is.
    pub state: ResourceState,
    /// When it was going to be sent first.
    pub intended: jiff::Timestamp,
    /// The frozen request.
    pub request: Value,
    /// Its ids.
    pub made: Option<Value>,
    /// What was read back.
    pub result: Option<Value>,
}

/// A run at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunView {
    /// The number of the last event that the view contains.
    pub seq: u64,
    /// The run.
    pub run: RunRecord,
    /// Its steps, by path.
    pub steps: Vec<StepRecord>,
    /// Its operations, in the order in which they were intended.
    pub resources: Vec<ResourceRecord>,
}

impl Journal {
    /// Returns all runs, the oldest first.
    pub fn runs(&self) -> Result<Vec<RunRecord>, JournalError> {
        self.read(|db| rows(db, "SELECT * FROM runs ORDER BY started, id", [], run_record))
    }

    /// Returns one run, or `None` if there is none of that name.
    pub fn run(&self, run: &RunId) -> Result<Option<RunRecord>, JournalError> {
        self.read(|db| find_run(db, run))
    }

    /// Returns the steps of a run, by path.
    pub fn steps(&self, run: &RunId) -> Result<Vec<StepRecord>, JournalError> {
        self.read(|db| find_steps(db, run))
    }

    /// Returns the operations of a run, in the order in which they were intended.
    pub fn resources(&self, run: &RunId) -> Result<Vec<ResourceRecord>, JournalError> {
        self.read(|db| find_resources(db, run))
    }

    /// Returns the events of a run. Log lines and progress are not kept.
    pub fn events(&self, run: &RunId) -> Result<Vec<Event>, JournalError> {
        self.read(|db| {
            let sql = "SELECT seq, run, at, step, attempt, body FROM events WHERE run = ?1 ORDER BY seq";
            rows(db, sql, [run.as_str()], |row| {
                Ok(Event {
                    seq: row.get::<_, i64>(0)?.cast_unsigned(),
                    run: word(row, 1)?,
                    at: word(row, 2)?,
                    step: row.get(3)?,
                    attempt: row.get(4)?,
                    kind: json(row, 5)?,
                })
            })
        })
    }

    /// Returns a run with its steps and resources as they were at one moment.
    pub fn view(&self, run: &RunId) -> Result<Option<RunView>, JournalError> {
        self.read(|db| {
            let Some(record) = find_run(db, run)? else { return Ok(None) };
            let (seq, steps, resources) = (find_last_seq(db, run)?, find_steps(db, run)?, find_resources(db, run)?);
            Ok(Some(RunView { seq, run: record, steps, resources }))
        })
    }

    fn read<T>(&self, work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, JournalError> {
        let failed = JournalError::reading(self.path());
        let mut connection = self.reader()?;
        // One transaction is one moment, however many queries.
        let transaction = connection.transaction().map_err(&failed)?;
        work(&transaction).map_err(&failed)
    }
}

fn find_run(db: &Connection, run: &RunId) -> rusqlite::Result<Option<RunRecord>> {
    db.query_row("SELECT * FROM runs WHERE id = ?1", [run.as_str()], run_record).optional()
}

pub(super) fn find_last_seq(db: &Connection, run: &RunId) -> rusqlite::Result<u64> {
    db.query_row("SELECT coalesce(max(seq), 0) FROM events WHERE run = ?1", [run.as_str()], |row| {
        row.get::<_, i64>(0).map(i64::cast_unsigned)
    })
}

fn find_steps(db: &Connection, run: &RunId) -> rusqlite::Result<Vec<StepRecord>> {
    rows(db, "SELECT * FROM steps WHERE run = ?1 ORDER BY path", [run.as_str()], |row| {
        Ok(StepRecord {
            path: row.get("path")?,
            generation: row.get("generation")?,
            state: optional_word(row, "state")?,
            attempts: row.get("attempts")?,
            conditions: optional_json(row, "conditions")?,
            output: optional_json(row, "output")?,
            error: optional_json(row, "error")?,
            retry: optional_json(row, "retry")?,
            skipped: optional_json(row, "skipped").or_else(default_where_it_is_missing)?,
        })
    })
}

fn find_resources(db: &Connection, run: &RunId) -> rusqlite::Result<Vec<ResourceRecord>> {
    rows(db, "SELECT * FROM resources WHERE run = ?1 ORDER BY seq", [run.as_str()], |row| {
        Ok(ResourceRecord {
            operation: row.get("operation")?,
            step: row.get("step")?,
            generation: row.get("generation")?,
            kind: row.get("kind")?,
            keep: word(row, "keep")?,
            state: word(row, "state")?,
            intended: word(row, "intended")?,
            request: json(row, "request")?,
            made: optional_json(row, "made")?,
            result: optional_json(row, "result")?,
        })
    })
}

fn run_record(row: &Row<'_>) -> rusqlite::Result<RunRecord> {
    Ok(RunRecord {
        id: word(row, "id")?,
        started: word(row, "started")?,
        finished: optional_word(row, "finished")?,
        title: row.get("title")?,
        request_key: row.get("request_key")?,
        config: json(row, "config")?,
        plugins: json(row, "plugins")?,
        plan: json(row, "plan")?,
        plan_digest: row.get("plan_digest")?,
        verdict: optional_word(row, "verdict")?,
        format: row.get("format").or_else(default_where_it_is_missing).map(|format: i64| format.max(1))?,
    })
}

/// Reads what a journal of an older version does not have yet: who only reads does not change it.
fn default_where_it_is_missing<T: Default>(error: rusqlite::Error) -> rusqlite::Result<T> {
    match error {
        rusqlite::Error::InvalidColumnName(_) => Ok(T::default()),
        error => Err(error),
    }
}

fn rows<T, P: rusqlite::Params>(
    db: &Connection,
    sql: &str,
    params: P,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    db.prepare_cached(sql)?.query_map(params, read)?.collect()
}

/// Names a column in an error.
trait Column: rusqlite::RowIndex + Copy {}
impl<C: rusqlite::RowIndex + Copy> Column for C {}

fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
}

fn json<T: DeserializeOwned>(row: &Row<'_>, column: impl Column) -> rusqlite::Result<T> {
    serde_json::from_str(&row.get::<_, String>(column)?).map_err(unreadable)
}

fn optional_json<T: DeserializeOwned>(row: &Row<'_>, column: impl Column) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| serde_json::from_str(&text).map_err(unreadable)).transpose()
}

/// Reads a value that is written as a JSON text without its quotes.
fn word<T: DeserializeOwned>(row: &Row<'_>, column: impl Column) -> rusqlite::Result<T> {
    serde_json::from_value(Value::String(row.get(column)?)).map_err(unreadable)
}

fn optional_word<T: DeserializeOwned>(row: &Row<'_>, column: impl Column) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| serde_json::from_value(Value::String(text)).map_err(unreadable)).transpose()
}
