use std::time::Duration;

use crate::{ErrorClass, Failure, Place};

/// A call that did not work, after all that could be done about it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The service said no, or nothing.
    #[error("{operation} in {place} failed{}: {failure}", tries(*attempts, *elapsed))]
    Failed {
        /// Which call.
        operation: &'static str,
        /// Where.
        place: Place,
        /// What is to be done about it. For a call that must not be repeated this is [`ErrorClass::UnknownOutcome`] wherever
        /// it may have happened.
        class: ErrorClass,
        /// What the last attempt failed with.
        failure: Failure,
        /// How often it was tried.
        attempts: u32,
        /// How long, from the first try.
        elapsed: Duration,
    },
    /// It was never sent: so many calls were before it that its time was over.
    #[error("{operation} in {place} was not sent: its turn did not come in {elapsed:.0?}")]
    Crowded {
        /// Which call.
        operation: &'static str,
        /// Where.
        place: Place,
        /// How long it waited.
        elapsed: Duration,
    },
    /// Whoever asked does not want it any more. Of a change that may be repeated, an earlier attempt may have happened.
    #[error("{operation} in {place} was cancelled")]
    Cancelled {
        /// Which call.
        operation: &'static str,
        /// Where.
        place: Place,
    },
}

/// Says how often it was tried, where that was more than once.
fn tries(attempts: u32, elapsed: Duration) -> String {
    match attempts {
        0 | 1 => String::new(),
        more => format!(" {more} times in {elapsed:.0?}"),
    }
}

impl CallError {
    /// Returns what is to be done about it; `None` for a cancelled call.
    pub fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Failed { class, .. } => Some(*class),
            Self::Crowded { .. } => Some(ErrorClass::Throttled),
            Self::Cancelled { .. } => None,
        }
    }

    /// Returns the service's own word for it.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Failed { failure, .. } => failure.code(),
            Self::Crowded { .. } | Self::Cancelled { .. } => None,
        }
    }

    /// Returns the next move, where one is known.
    pub fn hint(&self) -> Option<&'static str> {
        if self.class() == Some(ErrorClass::Expired) {
            return Some("get new credentials, and check this machine's clock");
        }
        match self.code()? {
            "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException" => {
                Some("`aws sts decode-authorization-message` reads an encoded part of the message")
            }
            "AuthFailure" | "InvalidClientTokenId" | "UnrecognizedClientException" => {
                Some("check the credentials with `aws sts get-caller-identity`")
            }
            "SignatureDoesNotMatch" | "InvalidSignatureException" => {
                Some("check the secret key, and this machine's clock")
            }
            "OptInRequired" => Some("switch the region on for the account"),
            _ => match self.class()? {
                ErrorClass::Limit => Some("wait for what is under way, or have the account's limit raised"),
                _ => None,
            },
        }
    }
}
