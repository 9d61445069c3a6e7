//! The one task that writes: takes everything queued, commits it at once, then tells the events and answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::event::Event;
use crate::id::RunId;
use crate::journal::reader::find_last_seq;
use crate::journal::record::save_event;
use crate::journal::{JournalError, Record, RunLog, Told};

/// How long a note that nobody waits for may wait for company. Each commit costs a sync of the disk.
const COMPANY: Duration = Duration::from_millis(20);

/// Entries in one commit: more than any bake has waiting, few enough to keep a commit short.
const GROUP: usize = 4096;

/// Records and events that become durable together.
pub(super) struct Entry {
    pub(super) log: Arc<RunLog>,
    pub(super) records: Vec<Record>,
    pub(super) events: Vec<Told>,
    /// Answered when the entry is durable.
    pub(super) reply: Option<oneshot::Sender<Result<(), JournalError>>>,
}

/// An entry whose events have their numbers.
struct Numbered {
    log: Arc<RunLog>,
    records: Vec<Record>,
    events: Vec<Event>,
    reply: Option<oneshot::Sender<Result<(), JournalError>>>,
}

pub(super) struct Writer {
    connection: Option<Connection>,
    poison: Arc<OnceLock<String>>,
    commits: Arc<AtomicU64>,
}

impl Writer {
    pub(super) fn new(connection: Connection, poison: Arc<OnceLock<String>>, commits: Arc<AtomicU64>) -> Writer {
        Writer { connection: Some(connection), poison, commits }
    }

    /// Writes until nobody is left who could send.
    pub(super) async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Entry>) {
        let mut group = Vec::new();
        while gather(&mut queue, &mut group).await {
            let numbered: Vec<_> = group.drain(..).map(number).collect();
            match self.commit(numbered).await {
                Some(numbered) => numbered.into_iter().for_each(announce),
                None => return,
            }
        }
    }

    /// Commits a group and returns it, unless the runtime is going down.
    async fn commit(&mut self, group: Vec<Numbered>) -> Option<Vec<Numbered>> {
        let nothing_to_save = group.iter().all(|entry| entry.records.is_empty() && entry.kept().next().is_none());
        if nothing_to_save && self.poison.get().is_none() {
            return Some(group);
        }
        let Some(mut connection) = self.connection.take() else { return Some(self.refuse(group)) };
        let write = move || {
            let result = save(&mut connection, group.iter());
            (connection, group, result)
        };
        let (connection, group, result) = match tokio::task::spawn_blocking(write).await {
            Ok(written) => written,
            Err(error) => {
                let _first_reason_stays = self.poison.set(error.to_string());
                return None;
            }
        };
        match result {
            Ok(refused) => {
                self.commits.fetch_add(1, Ordering::Relaxed);
                self.connection = Some(connection);
                let entries = group.into_iter().zip(refused);
                Some(
                    entries
                        .map(|(entry, refused)| if refused { entry.refuse_as_taken_over() } else { entry })
                        .collect(),
                )
            }
            Err(error) => {
                // Not tried again: after a failed sync the kernel may call pages clean that never reached the disk.
                tracing::debug!(%error, "the journal cannot be written");
                let _first_reason_stays = self.poison.set(error.to_string());
                Some(self.refuse(group))
            }
        }
    }

    fn refuse(&self, group: Vec<Numbered>) -> Vec<Numbered> {
        let reason = self.poison.get().map_or("an earlier write failed", String::as_str);
        group.into_iter().map(|entry| entry.refuse(JournalError::poisoned(reason))).collect()
    }
}

impl Numbered {
    fn kept(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| event.kind.is_kept())
    }

    /// Answers with an error. What is not durable is not told, but lines and progress were never going to be.
    fn refuse(mut self, error: JournalError) -> Numbered {
        self.events.retain(|event| !event.kind.is_kept());
        if let Some(reply) = self.reply.take() {
            let _nobody_waits = reply.send(Err(error));
        }
        self
    }

    fn refuse_as_taken_over(self) -> Numbered {
        self.log.taken_over.store(true, Ordering::SeqCst);
        let error = self.log.error_of_taken_over();
        self.refuse(error)
    }

    /// Saves what may be saved, and says whether it was.
    fn save(&self, to: &Connection) -> rusqlite::Result<bool> {
        let run = self.log.run();
        let begins = matches!(self.records.first(), Some(Record::Run(_) | Record::Opened));
        let nothing = self.records.is_empty() && self.kept().next().is_none();
        if !begins && !nothing && read_epoch(to, run)? != self.log.epoch.load(Ordering::SeqCst) {
            return Ok(false);
        }
        for record in &self.records {
            record.save(to, run)?;
        }
        for event in self.kept() {
            save_event(to, event)?;
        }
        if begins {
            self.log.epoch.store(read_epoch(to, run)?, Ordering::SeqCst);
            self.log.seq.store(find_last_seq(to, run)?, Ordering::SeqCst);
        }
        Ok(true)
    }
}

/// Waits for entries. If nobody waits for one of them, gives others a moment to come along.
async fn gather(queue: &mut mpsc::UnboundedReceiver<Entry>, group: &mut Vec<Entry>) -> bool {
    if queue.recv_many(group, GROUP).await == 0 {
        return false;
    }
    let deadline = Instant::now() + COMPANY;
    while group.len() < GROUP && group.iter().all(|entry| entry.reply.is_none()) {
        let room = GROUP - group.len();
        match tokio::time::timeout_at(deadline, queue.recv_many(group, room)).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    true
}

fn number(entry: Entry) -> Numbered {
    let Entry { log, records, events, reply } = entry;
    let events = log.number_all(events);
    Numbered { log, records, events, reply }
}

/// Commits a group, and says of each entry whether it was refused because another process has taken its run over.
fn save<'a>(connection: &mut Connection, group: impl Iterator<Item = &'a Numbered>) -> rusqlite::Result<Vec<bool>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let refused = group.map(|entry| entry.save(&transaction).map(|saved| !saved)).collect::<Result<_, _>>()?;
    transaction.commit()?;
    Ok(refused)
}

fn read_epoch(db: &Connection, run: &RunId) -> rusqlite::Result<i64> {
    db.prepare_cached("SELECT epoch FROM runs WHERE id = ?1")?.query_row([run.as_str()], |row| row.get(0))
}

fn announce(entry: Numbered) {
    let Numbered { log, events, reply, .. } = entry;
    events.into_iter().for_each(|event| log.announce(event));
    if let Some(reply) = reply {
        let _nobody_waits = reply.send(Ok(()));
    }
}
