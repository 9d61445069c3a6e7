//! Live values: what exists only in this process, is held by one step at a time, and is always closed.

use std::any::Any;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::error::{StepError, StepResult};

type Close = Box<dyn FnOnce(Box<dyn Any + Send>) -> BoxFuture<'static, StepResult<()>> + Send>;

/// A live value and how to close it, as `open` made them.
pub(crate) struct Opened {
    value: Box<dyn Any + Send>,
    close: Close,
}

impl Opened {
    pub(crate) fn new<T, C>(value: T, close: impl FnOnce(T) -> C + Send + 'static) -> Opened
    where
        T: Send + 'static,
        C: Future<Output = StepResult<()>> + Send + 'static,
    {
        let close: Close = Box::new(move |value| match value.downcast::<T>() {
            Ok(value) => Box::pin(close(*value)),
            Err(_) => Box::pin(async { Err(StepError::bug("a live value changed its type")) }),
        });
        Opened { value: Box::new(value), close }
    }
}

enum State {
    Here(Box<dyn Any + Send>),
    Lent,
    Taken,
}

struct Entry {
    state: State,
    close: Close,
}

/// The live values of a run, by the place of the step that opened them.
#[derive(Default)]
pub(crate) struct Lives {
    entries: Mutex<HashMap<usize, Entry>>,
    returned: Notify,
}

impl Lives {
    pub(crate) fn put(&self, node: usize, opened: Opened) {
        let entry = Entry { state: State::Here(opened.value), close: opened.close };
        self.entries().insert(node, entry);
    }

    /// Hands the value to one step. The plan lets users of a live value run one after the other, so it is here.
    pub(crate) fn lend<T: Send + 'static>(self: &Arc<Lives>, node: usize) -> StepResult<LiveGuard<T>> {
        let mut entries = self.entries();
        let entry =
            entries.get_mut(&node).ok_or_else(|| StepError::bug("a live value was used after it was closed"))?;
        match std::mem::replace(&mut entry.state, State::Lent) {
            State::Here(value) => {
                let value = value.downcast::<T>().map_err(|_| StepError::bug("a live value changed its type"))?;
                Ok(LiveGuard { value: Some(value), node, lives: Arc::clone(self) })
            }
            State::Lent => Err(StepError::permanent("the live value is still held by an earlier try")),
            State::Taken => {
                entry.state = State::Taken;
                Err(StepError::permanent("the live value was taken by an earlier step or try"))
            }
        }
    }

    /// Closes the value unless a step took it. Waits for whoever still holds it.
    pub(crate) async fn close(&self, node: usize) -> StepResult<()> {
        loop {
            let returned = self.returned.notified();
            tokio::pin!(returned);
            // Registers before the look, so that a return between the look and the wait is not missed.
            returned.as_mut().enable();
            match self.remove_unless_lent(node) {
                Removal::Closing(closing) => return closing.await,
                Removal::Nothing => return Ok(()),
                Removal::Lent => returned.await,
            }
        }
    }

    fn remove_unless_lent(&self, node: usize) -> Removal {
        let mut entries = self.entries();
        match entries.get(&node).map(|entry| &entry.state) {
            Some(State::Lent) => return Removal::Lent,
            Some(State::Here(_) | State::Taken) | None => {}
        }
        match entries.remove(&node) {
            Some(Entry { state: State::Here(value), close }) => Removal::Closing(close(value)),
            Some(_) | None => Removal::Nothing,
        }
    }

    fn give_back(&self, node: usize, state: State) {
        if let Some(entry) = self.entries().get_mut(&node) {
            entry.state = state;
        }
        self.returned.notify_waiters();
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<usize, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Removal {
    Closing(BoxFuture<'static, StepResult<()>>),
    Nothing,
    Lent,
}

/// A live value, held alone: users of one [`Live`](crate::Live) run in the order of the plan.
///
/// Dropping it gives the value back to the engine, which closes it at the end of the scope.
pub struct LiveGuard<T: Send + 'static> {
    value: Option<Box<T>>,
    node: usize,
    lives: Arc<Lives>,
}

impl<T: Send + 'static> LiveGuard<T> {
    /// Takes the value out and ends the engine's duty to close it.
    pub fn take(mut self) -> T {
        let value = self.value.take().expect("the value is there until `take` or `drop`");
        self.lives.give_back(self.node, State::Taken);
        *value
    }
}

impl<T: Send + 'static> Deref for LiveGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("the value is there until `take` or `drop`")
    }
}

impl<T: Send + 'static> DerefMut for LiveGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("the value is there until `take` or `drop`")
    }
}

impl<T: Send + 'static> Drop for LiveGuard<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.lives.give_back(self.node, State::Here(value));
        }
    }
}
