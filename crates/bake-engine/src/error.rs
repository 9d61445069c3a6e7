//! What a step can fail with, and what the engine does about it.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The result of anything a step does.
pub type StepResult<T> = Result<T, StepError>;

/// What kind of failure it is, which decides how it is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The other side asked us to slow down. Retried without using up an attempt.
    Throttled,
    /// It did not happen and may work the next time.
    Transient,
    /// It may have happened: the answer was lost, or the name is taken. Looked up before anything is sent again.
    Unknown,
    /// Something else still uses it. Retried slowly; in teardown for as long as anything else makes progress.
    InUse,
    /// Trying again cannot help.
    Permanent,
    /// The run was cancelled while the step waited.
    Cancelled,
    /// A panic, or data that breaks our own rules.
    Bug,
}

/// A library error that has decided how it wants to be retried; `?` turns it into a [`StepError`].
pub trait Failure: Error + Send + Sync + 'static {
    /// Says what kind of failure it is.
    fn class(&self) -> Class;

    /// Says what to type or change next, if that is known.
    fn hint(&self) -> Option<String> {
        None
    }

    /// Gives lines to show below the error, such as the end of a log.
    fn details(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Why a step failed: a class, a chain of messages, and perhaps a hint and some lines to show.
pub struct StepError {
    class: Class,
    message: Option<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
    hint: Option<String>,
    details: Vec<String>,
}

impl StepError {
    /// Makes an error of any class.
    pub fn new(class: Class, message: impl Into<String>) -> StepError {
        StepError { class, message: Some(message.into()), source: None, hint: None, details: Vec::new() }
    }

    /// Makes an error that trying again cannot mend.
    pub fn permanent(message: impl Into<String>) -> StepError {
        StepError::new(Class::Permanent, message)
    }

    /// Makes an error that may go away by itself; what was tried did not happen.
    pub fn transient(message: impl Into<String>) -> StepError {
        StepError::new(Class::Transient, message)
    }

    /// Makes an error that says: it may have happened.
    pub fn unknown(message: impl Into<String>) -> StepError {
        StepError::new(Class::Unknown, message)
    }

    /// Makes an error of a mistake in the program itself.
    pub fn bug(message: impl Into<String>) -> StepError {
        StepError::new(Class::Bug, message)
    }

    /// Makes the error of a wait that a cancel ended.
    pub fn cancelled() -> StepError {
        StepError::new(Class::Cancelled, "cancelled")
    }

    /// Wraps another error, whose message comes first in the chain.
    pub fn wrap(class: Class, source: impl Error + Send + Sync + 'static) -> StepError {
        StepError { class, message: None, source: Some(Box::new(source)), hint: None, details: Vec::new() }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> StepError {
        self.hint = Some(hint.into());
        self
    }

    /// Adds lines to show below the error, such as the end of a log.
    #[must_use]
    pub fn details(mut self, lines: impl IntoIterator<Item = String>) -> StepError {
        self.details.extend(lines);
        self
    }

    /// Adds what the message leaves out: the error that caused it.
    #[must_use]
    pub fn because(mut self, source: impl Error + Send + Sync + 'static) -> StepError {
        self.source = Some(Box::new(source));
        self
    }

    /// Puts a sentence in front of the chain; class, hint and details stay.
    #[must_use]
    pub fn context(self, message: impl Into<String>) -> StepError {
        let (class, hint, details) = (self.class, self.hint.clone(), self.details.clone());
        StepError { class, message: Some(message.into()), source: Some(Box::new(self)), hint, details }
    }

    /// Returns the class.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Returns the hint, if there is one.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the lines to show below the error.
    pub fn detail_lines(&self) -> &[String] {
        &self.details
    }

    /// Returns the messages from the outermost to the cause.
    pub fn chain(&self) -> Vec<String> {
        let mut chain = vec![self.to_string()];
        let mut next = self.source();
        while let Some(error) = next {
            chain.push(error.to_string());
            next = error.source();
        }
        chain
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.message, &self.source) {
            (Some(message), _) => f.write_str(message),
            (None, Some(source)) => source.fmt(f),
            (None, None) => f.write_str("failed"),
        }
    }
}

impl fmt::Debug for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.class, self.chain().join(": "))
    }
}

impl Error for StepError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source = self.source.as_deref()?;
        match self.message {
            Some(_) => Some(source),
            // The wrapped error is what `Display` shows already.
            None => source.source(),
        }
    }
}

impl<F: Failure> From<F> for StepError {
    fn from(failure: F) -> StepError {
        let (class, hint, details) = (failure.class(), failure.hint(), failure.details());
        StepError { hint, details, ..StepError::wrap(class, failure) }
    }
}

/// Gives a class to errors of other libraries: `fs::read(path).permanent()?`.
pub trait Classify<T> {
    /// Says that trying again cannot help.
    fn permanent(self) -> StepResult<T>;
    /// Says that it did not happen and may work the next time.
    fn transient(self) -> StepResult<T>;
}

impl<T, E: Error + Send + Sync + 'static> Classify<T> for Result<T, E> {
    fn permanent(self) -> StepResult<T> {
        self.map_err(|error| StepError::wrap(Class::Permanent, error))
    }

    fn transient(self) -> StepResult<T> {
        self.map_err(|error| StepError::wrap(Class::Transient, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("`vol-1` is attached to `i-4`")]
    struct Attached;

    impl Failure for Attached {
        fn class(&self) -> Class {
            Class::InUse
        }
        fn hint(&self) -> Option<String> {
            Some("detach it".into())
        }
    }

    #[test]
    fn question_mark_keeps_class_and_hint() {
        fn step() -> StepResult<()> {
            Err(Attached)?
        }
        let error = step().unwrap_err();
        assert_eq!((error.class(), error.hint_text()), (Class::InUse, Some("detach it")));
        assert_eq!(error.chain(), ["`vol-1` is attached to `i-4`"]);
    }

    #[test]
    fn context_comes_first_and_nothing_is_said_twice() {
        let error = StepError::from(Attached).context("cannot delete `vol-1`");
        assert_eq!(error.chain(), ["cannot delete `vol-1`", "`vol-1` is attached to `i-4`"]);
        assert_eq!(error.hint_text(), Some("detach it"));
    }

    #[test]
    fn foreign_errors_get_a_class() {
        let error = std::fs::read("/does/not/exist").permanent().unwrap_err();
        assert_eq!(error.class(), Class::Permanent);
        assert_eq!(error.chain().len(), 1);
    }
}
