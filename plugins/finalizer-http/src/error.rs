//! What can go wrong with the settings, and with a call.

use std::error::Error;
use std::io;
use std::time::Duration;

use bake_engine::{Class, Failure};
use reqwest::StatusCode;
use rustls::CertificateError;

/// Settings that cannot work, found before anything begins.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Nobody says whom to call.
    #[error("`{plugin}` at `{finalizer}` needs the setting `url`, and nothing is written there")]
    MissingUrl {
        /// The finalizer's place.
        finalizer: String,
        /// Its plugin.
        plugin: &'static str,
    },
    /// A setting holds what it cannot.
    #[error("`{setting}` of the finalizer `{finalizer}`: {reason}")]
    Wrong {
        /// The finalizer's place.
        finalizer: String,
        /// Which setting.
        setting: String,
        /// What is wrong with it. Holds no secret.
        reason: String,
    },
}

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
#[error("cannot call `{call}`")]
pub(crate) struct CallError {
    /// Method and URL, without what may be secret.
    pub(crate) call: String,
    #[source]
    pub(crate) trouble: Trouble,
}

/// Why a call did not succeed. No text here holds a secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("its URL was refused: {0}")]
    Url(String),
    #[error("the header `{0}` got a value with a control character")]
    Header(String),
    #[error("this process cannot make it: {0}")]
    Process(String),
    #[error("no connection: {0}")]
    NoConnection(String),
    #[error("no answer within {}s", .0.as_secs_f64())]
    TooSlow(Duration),
    #[error("the answer was lost: {0}")]
    Lost(String),
    #[error("the server is not trusted: {0}")]
    Untrusted(String),
    #[error("no agreement on encryption: {0}")]
    Tls(String),
    #[error("the server answered {status}")]
    Answered {
        status: StatusCode,
        /// The first lines of what it said.
        body: Vec<String>,
    },
    #[error("the server sends the call on to `{to}` with {status}, and {why}")]
    Elsewhere { status: StatusCode, to: String, why: &'static str },
    #[error("the server sends the call on and on, at last to `{0}`")]
    TooManyRedirects(String),
}

impl Failure for CallError {
    fn class(&self) -> Class {
        match &self.trouble {
            // A poke may arrive twice, so a lost answer needs no look at what became of it.
            Trouble::NoConnection(_) | Trouble::TooSlow(_) | Trouble::Lost(_) => Class::Transient,
            Trouble::Answered { status: StatusCode::TOO_MANY_REQUESTS, .. } => Class::Throttled,
            // 503 too: it comes from what stands before a server that is down, and being throttled is waited for without end.
            Trouble::Answered { status, .. } if status.is_server_error() => Class::Transient,
            Trouble::Process(_) => Class::Bug,
            Trouble::Answered { .. }
            | Trouble::Url(_)
            | Trouble::Header(_)
            | Trouble::Untrusted(_)
            | Trouble::Tls(_)
            | Trouble::Elsewhere { .. }
            | Trouble::TooManyRedirects(_) => Class::Permanent,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match &self.trouble {
            Trouble::Elsewhere { .. } | Trouble::TooManyRedirects(_) => "set `url` to where the call should end",
            Trouble::Header(_) => "look at the template in `headers`, and at the values that it takes",
            Trouble::TooSlow(_) => "if the server needs longer, set `wait`",
            Trouble::Tls(_) => "look whether the server takes `https://` at this port",
            Trouble::Untrusted(_) => {
                "if an authority of your own signed the certificate, add that to the certificates of this system"
            }
            Trouble::Answered { status, .. } => match status.as_u16() {
                401 | 403 => "look at `secret_headers`, where `Authorization` belongs",
                404 | 410 => "look at the path in `url`",
                405 => "set `method` to one that the server takes here",
                407 => "put user and password into `proxy`",
                415 => "say in `headers` what the body is: `Content-Type: application/json`",
                200..=299 => "if that is a success, add it to `expect`",
                _ => return None,
            },
            Trouble::Url(_) | Trouble::Process(_) | Trouble::NoConnection(_) | Trouble::Lost(_) => {
                return None;
            }
        };
        Some(hint.to_owned())
    }

    fn details(&self) -> Vec<String> {
        if let Trouble::Answered { body, .. } = &self.trouble { body.clone() } else { Vec::new() }
    }
}

impl From<reqwest::Error> for Trouble {
    /// Only the cause is kept: what the library says itself holds the URL.
    fn from(error: reqwest::Error) -> Self {
        match tls_error(&error) {
            Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                return Self::Untrusted("no authority that this system knows signed its certificate".to_owned());
            }
            Some(rustls::Error::InvalidCertificate(reason)) => return Self::Untrusted(reason.to_string()),
            Some(other) => return Self::Tls(other.to_string()),
            None => {}
        }
        let cause = causes(&error).last().map_or("for no reason that it tells".to_owned(), ToString::to_string);
        match error.is_builder() {
            true => Self::Process(cause),
            false if error.is_connect() => Self::NoConnection(cause),
            false => Self::Lost(cause),
        }
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}

fn tls_error(error: &reqwest::Error) -> Option<&rustls::Error> {
    causes(error).find_map(|error| error.downcast_ref().or_else(|| inside(error)))
}

/// What an I/O error was made of, which it hides from the chain; such errors come one in the other.
fn inside<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
    inner.downcast_ref().or_else(|| inside(inner))
}
