use std::fmt;

use crate::{ErrorClass, Service, classify};

/// What one try of a call failed with, as the cloud's library tells it.
///
/// Made by [`Failure::answered`], [`Failure::not_sent`] or [`Failure::lost`], by how far the request came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(Box<Inner>); // in a box, since it is part of every error of a call

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    class: ErrorClass,
    code: Option<String>,
    told: String,
    request: Option<String>,
    /// Whether it is certain that nothing happened.
    undone: bool,
}

impl Failure {
    /// Makes a failure of the service's answer. A status of 0 is none.
    pub fn answered(service: Service, code: Option<&str>, status: u16, message: &str) -> Self {
        let class = classify(service, code, status);
        let told = match code {
            Some(code) if message.is_empty() => code.to_owned(),
            Some(code) => format!("{code}: {message}"),
            None if message.is_empty() => format!("HTTP status {status}"),
            None => message.to_owned(),
        };
        // A server may fail after it did what was asked.
        let undone = class != ErrorClass::Passing;
        let mut failure = Self::of(class, told, undone);
        failure.0.code = code.map(str::to_owned);
        failure
    }

    /// Makes a failure of a request that never left: no connection, no name of a host.
    pub fn not_sent(message: impl Into<String>) -> Self {
        Self::of(ErrorClass::Passing, message.into(), true)
    }

    /// Makes a failure of a request that was sent and whose answer was lost: the connection broke, it took too long, or what
    /// came made no sense.
    pub fn lost(message: impl Into<String>) -> Self {
        Self::of(ErrorClass::UnknownOutcome, message.into(), false)
    }

    /// Makes a failure of our own, before anything was sent, that asking again does not mend: no credentials, a request that
    /// cannot be built.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::of(ErrorClass::Refused, message.into(), true)
    }

    fn of(class: ErrorClass, told: String, undone: bool) -> Self {
        Self(Box::new(Inner { class, code: None, told, request: None, undone }))
    }

    /// Sets another class, where the cloud knows better than the table.
    #[must_use]
    pub fn with_class(mut self, class: ErrorClass) -> Self {
        self.0.class = class;
        self.0.undone &= class != ErrorClass::UnknownOutcome;
        self
    }

    /// Sets a code of the cloud's own.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.0.code = Some(code.into());
        self
    }

    /// Adds the service's id of the request, by which its support finds it.
    #[must_use]
    pub fn with_request(mut self, id: Option<&str>) -> Self {
        self.0.request = id.map(str::to_owned);
        self
    }

    /// Returns the class.
    pub fn class(&self) -> ErrorClass {
        self.0.class
    }

    /// Returns the service's own word for it.
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// Tells whether it is certain that nothing happened.
    pub(crate) fn is_undone(&self) -> bool {
        self.0.undone
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.told)?;
        match &self.0.request {
            Some(id) => write!(f, " (request {id})"),
            None => Ok(()),
        }
    }
}
