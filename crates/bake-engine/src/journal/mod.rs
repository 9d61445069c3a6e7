//! The journal: what runs did to the world, in one SQLite database.
//!
//! Writing goes through one task ([`writer`]), which commits everything that is queued at once and only then tells the
//! events to those who listen. Reading opens the database anew each time, and works while others write.

mod error;
mod reader;
mod record;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::{OnceCell, mpsc, oneshot};

use crate::event::{Event, EventKind, EventSink};
use crate::id::RunId;

pub use error::JournalError;
pub use reader::{ResourceRecord, RunRecord, RunView, StepRecord, StepTrouble};
pub use record::ResourceState;

pub(crate) use record::{Intent, Record, RunRow, StepRow};

use writer::{Entry, Writer};

/// Raised by one with each change of the tables. Old databases are read for ever, and what they say was made can be
/// taken back for ever.
pub(crate) const SCHEMA_VERSION: i64 = 2;

/// Runs of older versions are taken back and not gone on with: version 1 did not keep why a step was skipped, nor how
/// many tries it had had.
pub(crate) const OLDEST_TO_RESUME: i64 = 2;

/// What version 2 added.
const FROM_1_TO_2: &str = "
    ALTER TABLE runs ADD COLUMN format INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE runs ADD COLUMN epoch INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE steps ADD COLUMN skipped TEXT;
";

/// Other processes hold the database for one commit at a time. Half a minute means a disk that hangs.
const BUSY_LIMIT: Duration = Duration::from_secs(30);

/// What all runs of this machine did, kept across processes. Cheap to clone.
#[derive(Clone)]
pub struct Journal {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    poison: Arc<OnceLock<String>>,
    /// The connection until the writer starts, which needs a runtime that `open` may not have.
    idle: Mutex<Option<Connection>>,
    queue: OnceLock<mpsc::UnboundedSender<Entry>>,
    commits: Arc<AtomicU64>,
}

impl Journal {
    /// Opens the database for writing and makes it if it is not there.
    pub fn open(path: &Path) -> Result<Journal, JournalError> {
        let failed = |source| JournalError::Open { path: path.to_owned(), source };
        let mut connection = Connection::open(path).map_err(failed)?;
        prepare(&mut connection).map_err(failed)?;
        migrate(&mut connection, path)?;
        Ok(Journal::with(path, Some(connection)))
    }

    /// Opens the database for reading alone.
    pub fn read_only(path: &Path) -> Result<Journal, JournalError> {
        let journal = Journal::with(path, None);
        let version = schema_version(&journal.reader()?).map_err(JournalError::reading(path))?;
        check_version(version, path)?;
        Ok(journal)
    }

    /// Returns where the database is.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Says why the journal cannot be written any more, if that is so.
    pub fn poison(&self) -> Option<&str> {
        self.inner.poison.get().map(String::as_str)
    }

    /// Returns how often this process has made something durable, each time with one sync of the disk.
    pub fn commits(&self) -> u64 {
        self.inner.commits.load(Ordering::Relaxed)
    }

    fn with(path: &Path, connection: Option<Connection>) -> Journal {
        let inner = Inner {
            path: path.to_owned(),
            poison: Arc::default(),
            idle: Mutex::new(connection),
            queue: OnceLock::new(),
            commits: Arc::default(),
        };
        Journal { inner: Arc::new(inner) }
    }

    /// Makes the log of one run. Who does not begin the run with it opens it ([`RunLog::open`]).
    pub(crate) fn log(&self, run: &RunId, sink: EventSink) -> Arc<RunLog> {
        Arc::new(RunLog {
            journal: self.clone(),
            run: run.clone(),
            sink: Mutex::new(Some(sink)),
            opened: OnceCell::new(),
            epoch: AtomicI64::new(0),
            taken_over: AtomicBool::new(false),
            seq: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        })
    }

    fn queue(&self) -> Result<&mpsc::UnboundedSender<Entry>, JournalError> {
        if let Some(queue) = self.inner.queue.get() {
            return Ok(queue);
        }
        let mut idle = self.inner.idle.lock().unwrap_or_else(PoisonError::into_inner);
        match idle.take() {
            Some(connection) => {
                let (sender, receiver) = mpsc::unbounded_channel();
                let Inner { poison, commits, .. } = &*self.inner;
                tokio::spawn(Writer::new(connection, Arc::clone(poison), Arc::clone(commits)).run(receiver));
                Ok(self.inner.queue.get_or_init(|| sender))
            }
            // Somebody else may have started it while we waited for the lock.
            None => self.inner.queue.get().ok_or_else(|| JournalError::ReadOnly { path: self.inner.path.clone() }),
        }
    }

    fn reader(&self) -> Result<Connection, JournalError> {
        let connection = self.open_reader()?;
        if schema_version(&connection).map_err(JournalError::reading(&self.inner.path))? != 0 {
            return Ok(connection);
        }
        // Somebody has just begun to make it, or died of it: so far there is nothing in it.
        let failed = |source| JournalError::Open { path: self.inner.path.clone(), source };
        let mut empty = Connection::open_in_memory().map_err(failed)?;
        migrate(&mut empty, &self.inner.path)?;
        Ok(empty)
    }

    fn open_reader(&self) -> Result<Connection, JournalError> {
        let path = &self.inner.path;
        let failed = |source| JournalError::Open { path: path.clone(), source };
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
        connection.busy_timeout(BUSY_LIMIT).map_err(failed)?;
        if schema_version(&connection).is_ok() {
            return Ok(connection);
        }
        // Who may not write in the folder cannot open a database in WAL mode that nobody has open: there is no shared
        // memory file, and it cannot be made. Nobody writes then, so the file can be read as it is.
        let uri = format!(
            "file:{}?immutable=1",
            path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23")
        );
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(uri, flags).map_err(failed)?;
        schema_version(&connection).map_err(failed)?;
        Ok(connection)
    }
}

fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_LIMIT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // A commit is durable when it returns; `NORMAL` would lose the last ones in a power cut.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), JournalError> {
    let failed = |source| JournalError::Open { path: path.to_owned(), source };
    // Immediate: two processes that find a new file must not both make the tables.
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
    let missing = match schema_version(&transaction).map_err(failed)? {
        0 => include_str!("schema.sql"),
        1 => FROM_1_TO_2,
        version => return check_version(version, path),
    };
    transaction.execute_batch(missing).map_err(failed)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION).map_err(failed)?;
    transaction.commit().map_err(failed)
}

fn schema_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn check_version(version: i64, path: &Path) -> Result<(), JournalError> {
    if (1..=SCHEMA_VERSION).contains(&version) {
        return Ok(());
    }
    Err(JournalError::Version { path: path.to_owned(), found: version, known: SCHEMA_VERSION })
}

/// Writes records and events of one run.
pub(crate) struct RunLog {
    journal: Journal,
    run: RunId,
    /// Where events go, until the last one went there. Gone then, so that the stream ends even if a call that a second
    /// cancel left behind still holds this log.
    sink: Mutex<Option<EventSink>>,
    /// Set when the run was begun or opened through this log.
    opened: OnceCell<()>,
    /// Which opening of the run this is. The journal takes records of the last one alone.
    epoch: AtomicI64,
    /// Somebody else has opened the run since.
    taken_over: AtomicBool,
    seq: AtomicU64,
    /// The last event has its number.
    ended: AtomicBool,
}

/// An event before it has its number.
pub(crate) struct Told {
    step: Option<Arc<str>>,
    attempt: Option<u32>,
    kind: EventKind,
}

impl Told {
    pub(crate) fn run(kind: EventKind) -> Told {
        Told { step: None, attempt: None, kind }
    }

    pub(crate) fn step(step: &Arc<str>, attempt: Option<u32>, kind: EventKind) -> Told {
        Told { step: Some(Arc::clone(step)), attempt, kind }
    }
}

impl RunLog {
    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Begins the run: its first record and its first event.
    pub(crate) async fn begin(self: &Arc<RunLog>, row: RunRow, told: Told) -> Result<(), JournalError> {
        let begin = || self.write(vec![Record::Run(Box::new(row))], vec![told]);
        self.opened.get_or_try_init(begin).await.copied()
    }

    /// Takes a run over that this process did not begin. From now on, whoever had it before can write no more of it.
    pub(crate) async fn open(self: &Arc<RunLog>) -> Result<(), JournalError> {
        self.opened.get_or_try_init(|| self.write(vec![Record::Opened], Vec::new())).await.copied()
    }

    /// Says why nothing more of this run can be written, if that is so.
    pub(crate) fn broken(&self) -> Option<String> {
        if self.taken_over.load(Ordering::SeqCst) {
            return Some(self.error_of_taken_over().to_string());
        }
        self.journal.poison().map(str::to_owned)
    }

    fn error_of_taken_over(&self) -> JournalError {
        JournalError::TakenOver { run: self.run.clone() }
    }

    /// Writes, and waits until it is durable.
    pub(crate) async fn write(self: &Arc<RunLog>, records: Vec<Record>, events: Vec<Told>) -> Result<(), JournalError> {
        let (reply, answer) = oneshot::channel();
        self.send(Entry { log: Arc::clone(self), records, events, reply: Some(reply) })?;
        answer.await.map_err(|_| JournalError::poisoned("its writer is gone"))?
    }

    /// Writes with the next group. Losing it in a crash costs nothing but time.
    pub(crate) fn post(self: &Arc<RunLog>, records: Vec<Record>, events: Vec<Told>) {
        let sent = self.send(Entry { log: Arc::clone(self), records, events, reply: None });
        if let Err(error) = sent {
            tracing::debug!(run = %self.run, error = %error, "the journal did not take a note");
        }
    }

    /// Waits until all that was posted is durable.
    pub(crate) async fn flush(self: &Arc<RunLog>) -> Result<(), JournalError> {
        self.write(Vec::new(), Vec::new()).await
    }

    /// Tells one event.
    pub(crate) fn tell(self: &Arc<RunLog>, step: &Arc<str>, attempt: Option<u32>, kind: EventKind) {
        self.post(Vec::new(), vec![Told::step(step, attempt, kind)]);
    }

    /// Sends the last event of a run whose journal cannot keep it.
    pub(crate) fn send_unsaved(&self, kind: EventKind) {
        self.announce(self.number(Told::run(kind)));
    }

    /// Hands an event to those who listen. Nothing comes after the last one.
    fn announce(&self, event: Event) {
        let last = matches!(event.kind, EventKind::RunFinished { .. });
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sink) = &*sink {
            sink.send(event);
        }
        if last {
            *sink = None;
        }
    }

    fn send(&self, entry: Entry) -> Result<(), JournalError> {
        self.journal.queue()?.send(entry).map_err(|_| JournalError::poisoned("its writer is gone"))
    }

    /// Gives events their numbers. A call that a second cancel left behind may still answer after the run's last event;
    /// what it says is recorded, and told to nobody.
    fn number_all(&self, told: Vec<Told>) -> Vec<Event> {
        let mut events = Vec::new();
        for told in told {
            if self.ended.load(Ordering::SeqCst) {
                break;
            }
            let last = matches!(told.kind, EventKind::RunFinished { .. });
            self.ended.store(last, Ordering::SeqCst);
            events.push(self.number(told));
        }
        events
    }

    fn number(&self, told: Told) -> Event {
        Event {
            seq: self.seq.fetch_add(1, Ordering::SeqCst) + 1,
            run: self.run.clone(),
            at: jiff::Timestamp::now(),
            step: told.step.map(|step| step.to_string()),
            attempt: told.attempt,
            kind: told.kind,
        }
    }
}
