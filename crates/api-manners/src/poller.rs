//! Waiting for what the cloud makes, with one question for all who wait.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::wait::{Progress, Step};
use crate::{Awaited, CallError, ErrorClass, Place, Verdict, Wait, WaitError};

/// How often a [`Poller`] looks, and at how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Between the first looks. Each is then half as long again as the one before, and someone new begins anew.
    pub shortest: Duration,
    /// Between later ones.
    pub longest: Duration,
    /// Between two looks when somebody new came.
    pub soonest: Duration,
    /// How long someone new is held back, so that others who come at that moment are in the same look.
    pub gather: Duration,
    /// The most ids in one call.
    pub batch: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            shortest: Duration::from_secs(2),
            longest: Duration::from_secs(15),
            soonest: Duration::from_secs(1),
            gather: Duration::from_millis(100),
            // EC2 takes no more values in one filter. By `ImageIds` it would take a thousand, but see `Poller::new`.
            batch: 200,
        }
    }
}

/// Looks after all things of one kind in one place that somebody waits for: one look is one call, for up to [`Pace::batch`]
/// of them, however many wait. Clones are the same poller; keep one for each place and kind.
///
/// It looks while somebody waits and not otherwise, in a task of its own, so that it does not matter who of them leaves.
pub struct Poller<Id, State>(Arc<Shared<Id, State>>);

type Describe<Id, State> =
    Box<dyn Fn(Vec<Id>) -> BoxFuture<'static, Result<Vec<(Id, State)>, CallError>> + Send + Sync>;

struct Shared<Id, State> {
    kind: &'static str,
    place: Place,
    pace: Pace,
    describe: Describe<Id, State>,
    board: Mutex<Board<Id, State>>,
    /// Somebody came, or the last one went.
    changed: Notify,
}

/// Who waits for what.
struct Board<Id, State> {
    seats: HashMap<Id, Vec<Waiting<State>>>,
    /// How many ever came.
    numbers: u64,
    /// Whether somebody came since the last look began.
    newcomers: bool,
    /// Whether the task that looks is there.
    looking: bool,
}

/// How one who waits is reached.
struct Waiting<State> {
    number: u64,
    looks: UnboundedSender<Look<State>>,
}

/// What one look says about one id.
enum Look<State> {
    /// It is as this says, or is not there.
    Answer(Option<Arc<State>>),
    /// The question failed in passing.
    Trouble(Arc<CallError>),
    /// The question will always fail.
    Fatal(Arc<CallError>),
}

/// What ended the rest between two looks.
enum Rest {
    Over,
    Newcomers,
    NobodyWaits,
}

impl<Id, State> Clone for Poller<Id, State> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Id, State> Poller<Id, State>
where
    Id: Clone + Eq + Hash + fmt::Display + Send + Sync + 'static,
    State: Send + Sync + 'static,
{
    /// Makes a poller of things of a kind, as messages call it, in a place.
    ///
    /// `describe` asks for all the ids in one call and leaves out those that the service does not know. It has to ask by a filter:
    /// a call that lists ids fails as a whole when one of them is unknown (`InvalidAMIID.NotFound`), and nobody would hear of the
    /// others until that one is there.
    pub fn new<F>(
        kind: &'static str,
        place: Place,
        pace: Pace,
        describe: impl Fn(Vec<Id>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Vec<(Id, State)>, CallError>> + Send + 'static,
    {
        let board = Board { seats: HashMap::new(), numbers: 0, newcomers: false, looking: false };
        Self(Arc::new(Shared {
            kind,
            place,
            pace,
            describe: Box::new(move |ids| Box::pin(describe(ids))),
            board: Mutex::new(board),
            changed: Notify::new(),
        }))
    }

    /// Waits until something is as it should be. `until` is asked at each look, with `None` when the id is not there.
    ///
    /// A look that fails in passing (throttled, a server that is unwell, no connection) is as if it had not been. One that will
    /// always fail (denied, credentials that have run out) ends all waits.
    ///
    /// # Errors
    ///
    /// Fails when it never will be, was not in time, or is not wanted any more.
    pub async fn wait<T>(
        &self,
        id: &Id,
        wait: Wait,
        cancel: &CancellationToken,
        until: impl FnMut(Option<&State>) -> Verdict<T>,
    ) -> Result<T, WaitError> {
        let what = Awaited { kind: self.0.kind, id: id.to_string(), place: self.0.place.clone() };
        let mut progress = Progress::new(what, wait, until);
        let mut end = pin!(tokio::time::sleep_until(wait.deadline));
        let mut seat = self.join(id);
        loop {
            let look = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(progress.cancelled()),
                look = seat.looks.recv() => look,
                () = &mut end => return Err(progress.out_of_time()),
            };
            match look {
                Some(Look::Answer(state)) => match progress.answer(state.as_deref()) {
                    Step::Done(outcome) => return outcome,
                    Step::GoOn => {}
                },
                Some(Look::Trouble(error)) => progress.trouble(error),
                Some(Look::Fatal(error)) => return Err(progress.fatal(error)),
                None => return Err(progress.abandoned()),
            }
        }
    }

    /// Takes a seat, and begins to look if nobody did.
    fn join(&self, id: &Id) -> Seat<Id, State> {
        let (sender, looks) = unbounded_channel();
        let mut board = self.0.board();
        board.numbers += 1;
        let number = board.numbers;
        board.seats.entry(id.clone()).or_default().push(Waiting { number, looks: sender });
        board.newcomers = true;
        if !std::mem::replace(&mut board.looking, true) {
            tokio::spawn(Watch { shared: Arc::clone(&self.0), ended: false }.run());
        }
        drop(board);
        self.0.changed.notify_one();
        Seat { shared: Arc::clone(&self.0), id: id.clone(), number, looks }
    }
}

/// One who waits. Dropping it leaves.
struct Seat<Id: Eq + Hash, State> {
    shared: Arc<Shared<Id, State>>,
    id: Id,
    number: u64,
    looks: UnboundedReceiver<Look<State>>,
}

impl<Id: Eq + Hash, State> Drop for Seat<Id, State> {
    fn drop(&mut self) {
        let mut board = self.shared.board();
        if let Some(seats) = board.seats.get_mut(&self.id) {
            seats.retain(|waiting| waiting.number != self.number);
            if seats.is_empty() {
                board.seats.remove(&self.id);
            }
        }
        drop(board);
        self.shared.changed.notify_one();
    }
}

impl<Id, State> Shared<Id, State> {
    fn board(&self) -> MutexGuard<'_, Board<Id, State>> {
        self.board.lock().expect("nothing panics with it")
    }
}

impl<Id: Eq + Hash, State> Board<Id, State> {
    fn tell(&self, id: &Id, look: impl Fn() -> Look<State>) {
        self.seats.get(id).into_iter().flatten().for_each(|one| one.tell(look()));
    }
}

impl<State> Waiting<State> {
    fn tell(&self, look: Look<State>) {
        // Whoever has gone does not hear it.
        let _ = self.looks.send(look);
    }
}

/// The task that looks.
struct Watch<Id, State> {
    shared: Arc<Shared<Id, State>>,
    ended: bool,
}

impl<Id, State> Watch<Id, State>
where
    Id: Clone + Eq + Hash + Send + Sync + 'static,
    State: Send + Sync + 'static,
{
    async fn run(mut self) {
        let pace = self.shared.pace;
        let mut between = pace.shortest;
        tokio::time::sleep(pace.gather).await;
        while let Some(ids) = self.asked() {
            for some in ids.chunks(pace.batch.max(1)) {
                self.look(some).await;
            }
            between = match self.rest(between).await {
                Rest::Over => (between + between / 2).min(pace.longest),
                Rest::Newcomers | Rest::NobodyWaits => pace.shortest,
            };
        }
    }

    /// Returns what to ask for; `None`, and the task ends, when nobody waits.
    fn asked(&mut self) -> Option<Vec<Id>> {
        let mut board = self.shared.board();
        board.newcomers = false;
        if board.seats.is_empty() {
            board.looking = false;
            drop(board);
            self.ended = true;
            return None;
        }
        Some(board.seats.keys().cloned().collect())
    }

    /// Asks for some of the ids, and tells those who wait for them.
    async fn look(&self, ids: &[Id]) {
        let answer = (self.shared.describe)(ids.to_vec()).await;
        let mut board = self.shared.board();
        match answer {
            Ok(states) => {
                let mut states: HashMap<_, _> = states.into_iter().map(|(id, state)| (id, Arc::new(state))).collect();
                for id in ids {
                    let state = states.remove(id);
                    board.tell(id, || Look::Answer(state.clone()));
                }
            }
            Err(error) if passes(&error) => {
                let error = Arc::new(error);
                ids.iter().for_each(|id| board.tell(id, || Look::Trouble(Arc::clone(&error))));
            }
            Err(error) => {
                let error = Arc::new(error);
                for (_, waiting) in board.seats.drain() {
                    waiting.iter().for_each(|one| one.tell(Look::Fatal(Arc::clone(&error))));
                }
            }
        }
    }

    /// Rests until the next look is due.
    async fn rest(&self, between: Duration) -> Rest {
        let (looked, pace) = (Instant::now(), self.shared.pace);
        loop {
            let (nobody, newcomers) = {
                let board = self.shared.board();
                (board.seats.is_empty(), board.newcomers)
            };
            if nobody {
                return Rest::NobodyWaits;
            }
            if newcomers {
                let gathered = Instant::now() + pace.gather;
                tokio::time::sleep_until(gathered.max(looked + pace.soonest).min(looked + between)).await;
                return Rest::Newcomers;
            }
            tokio::select! {
                () = tokio::time::sleep_until(looked + between) => return Rest::Over,
                () = self.shared.changed.notified() => {}
            }
        }
    }
}

/// When it ends before its time (it panicked, or the runtime is going), those who wait must hear of it.
impl<Id, State> Drop for Watch<Id, State> {
    fn drop(&mut self) {
        if !self.ended {
            let mut board = self.shared.board();
            board.looking = false;
            board.seats.clear();
        }
    }
}

/// Tells whether a question may be answered the next time.
fn passes(error: &CallError) -> bool {
    match error.class() {
        Some(
            ErrorClass::Throttled
            | ErrorClass::Passing
            | ErrorClass::NotYetVisible
            | ErrorClass::InUse
            | ErrorClass::Limit
            | ErrorClass::UnknownOutcome,
        ) => true,
        Some(ErrorClass::Expired | ErrorClass::Denied | ErrorClass::Refused) | None => false,
    }
}
