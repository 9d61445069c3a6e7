use std::fmt;

use crate::{ErrorClass, Service, classify};

/// What one try of a call failed with, as the cloud's library tells it.
///
/// Made by [`Failure::answered`], [`Failure::not_sent`] or [`Failure::lost`], by how far the request came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
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
        Self { class, code: code.map(str::to_owned), told, request: None, undone }
    }

    /// Makes a failure of a request that never left: no connection, no name of a host.
    pub fn not_sent(message: impl Into<String>) -> Self {
        Self { class: ErrorClass::Passing, code: None, told: message.into(), request: None, undone: true }
    }

    /// Makes a failure of a request that was sent and whose answer was lost: the connection broke, it took too long, or what
    /// came made no sense.
    pub fn lost(message: impl Into<String>) -> Self {
        Self { class: ErrorClass::UnknownOutcome, code: None, told: message.into(), request: None, undone: false }
    }

    /// Makes a failure of our own, before anything was sent, that asking again does not mend: no credentials, a request that
    /// cannot be built.
    pub fn refused(message: impl Into<String>) -> Self {
        Self { class: ErrorClass::Refused, code: None, told: message.into(), request: None, undone: true }
    }

    /// Sets another class, where the cloud knows better than the table.
    #[must_use]
    pub fn with_class(mut self, class: ErrorClass) -> Self {
        self.class = class;
        self.undone &= class != ErrorClass::UnknownOutcome;
        self
    }

    /// Sets a code of the cloud's own.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Adds the service's id of the request, by which its support finds it.
    #[must_use]
    pub fn with_request(mut self, id: Option<&str>) -> Self {
        self.request = id.map(str::to_owned);
        self
    }

    /// Returns the class.
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// Returns the service's own word for it.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Tells whether it is certain that nothing happened.
    pub(crate) fn is_undone(&self) -> bool {
        self.undone
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told)?;
        match &self.request {
            Some(id) => write!(f, " (request {id})"),
            None => Ok(()),
        }
    }
}
