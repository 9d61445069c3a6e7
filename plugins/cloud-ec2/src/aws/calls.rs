//! Calls to AWS and what they fail with.
//!
//! Each call is made in one of four ways, by what may be repeated: [`Calls::read`], [`Calls::repeatable`], [`Calls::new_id`]
//! and [`Calls::once`]. The AWS crates' own retries are off, so that nothing is tried more often than is said here.

use std::error::Error;
use std::time::Duration;

use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::operation::RequestId;
use backon::{BackoffBuilder, ExponentialBuilder};
use bake_core::{Account, Region};
use bake_engine::{Class, Failure};
use tokio::time::Instant;

use crate::aws::failures::{Kind, kind};

/// How long a call is tried again and again while it is throttled or fails in passing.
const BUDGET: Duration = Duration::from_secs(120);

/// How long something that was just made may be unknown to another part of the service.
const NEW: Duration = Duration::from_secs(180);

/// How much sooner a call is repeated than a state is looked at again: a tenth of the pace, 200 ms where nobody says otherwise.
const SOONER: u32 = 10;

const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// How calls are made at one place.
#[derive(Clone)]
pub(crate) struct Calls {
    place: Option<(Account, Region)>,
    shortest_wait: Duration,
}

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The service said no, or nothing.
    #[error("{operation}{place} failed: {told}")]
    Api {
        /// Which call.
        operation: &'static str,
        /// Where, as a message tells it.
        place: String,
        /// What kind of failure it is.
        kind: Kind,
        /// The service's own word for it.
        code: Option<String>,
        /// All that it said.
        told: String,
    },
    /// The answer lacks something.
    #[error("{operation} answered without {what}")]
    Missing {
        /// Which call.
        operation: &'static str,
        /// What is missing.
        what: &'static str,
    },
    /// Nobody said which region to bake in.
    #[error("nobody said which region to bake in")]
    NoRegion,
    /// The credentials are not those that something was made with.
    #[error("this was made in account {theirs}, and the credentials are those of account {ours}")]
    OtherAccount {
        /// Whose credentials they are.
        ours: Account,
        /// Whose it is.
        theirs: Account,
    },
}

impl CallError {
    pub(crate) fn missing(operation: &'static str, what: &'static str) -> Self {
        Self::Missing { operation, what }
    }

    /// Returns the service's own word for it.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Api { code, .. } => code.as_deref(),
            _ => None,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Api { kind, .. } => *kind,
            _ => Kind::Refused,
        }
    }

    /// Tells whether what was named is not there.
    pub(crate) fn is_absent(&self) -> bool {
        self.kind() == Kind::Absent
    }

    /// Tells whether something else uses what was to go.
    pub(crate) fn is_in_use(&self) -> bool {
        self.kind() == Kind::InUse
    }
}

impl Failure for CallError {
    fn class(&self) -> Class {
        match self.kind() {
            Kind::Throttled | Kind::Limit => Class::Throttled,
            Kind::Passing | Kind::Absent => Class::Transient,
            Kind::Lost => Class::Unknown,
            Kind::InUse => Class::InUse,
            Kind::Expired | Kind::Refused => Class::Permanent,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoRegion => "say so with `plugins.cloud.ec2.region`, or with `AWS_REGION`",
            Self::OtherAccount { .. } => "use the credentials of that account",
            Self::Missing { .. } => return None,
            Self::Api { kind: Kind::Expired, .. } => "get new credentials, then go on with `bake resume`",
            Self::Api { code, .. } => match code.as_deref()? {
                "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException" => {
                    "`aws sts decode-authorization-message` reads an encoded part of the message"
                }
                "AuthFailure" | "InvalidClientTokenId" | "UnrecognizedClientException" => {
                    "check the credentials with `aws sts get-caller-identity`"
                }
                "SignatureDoesNotMatch" => "check the secret key, and this machine's clock",
                NO_CREDENTIALS => "set `plugins.cloud.ec2.profile`, or credentials as for any AWS tool",
                _ => return None,
            },
        };
        Some(hint.into())
    }
}

/// Our own code for a call that was never sent for want of credentials.
const NO_CREDENTIALS: &str = "NoCredentials";

/// Texts of calls that were never sent, since something was missing here. The AWS crates have no kind of error for it.
const UNSENT: [(&str, Option<&str>); 3] = [
    ("credentials", Some(NO_CREDENTIALS)),
    ("no providers in chain", Some(NO_CREDENTIALS)),
    ("missing signing region", None),
];

impl Calls {
    pub(crate) fn new(place: Option<(Account, Region)>, pace: Duration) -> Self {
        Self { place, shortest_wait: pace / SOONER }
    }

    /// Makes a call that changes nothing.
    pub(crate) async fn read<T, E, F>(&self, operation: &'static str, call: impl FnMut() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        self.again_while(operation, call, |kind| matches!(kind, Kind::Throttled | Kind::Passing | Kind::Lost), BUDGET)
            .await
    }

    /// Makes a call that can be made twice with the same outcome.
    pub(crate) async fn repeatable<T, E, F>(
        &self,
        operation: &'static str,
        call: impl FnMut() -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        self.read(operation, call).await
    }

    /// Makes a repeatable call on something that was just made, and that this part of the service may not know yet.
    pub(crate) async fn new_id<T, E, F>(&self, operation: &'static str, call: impl FnMut() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let again = |kind| matches!(kind, Kind::Throttled | Kind::Passing | Kind::Lost | Kind::Absent);
        self.again_while(operation, call, again, NEW).await
    }

    /// Makes a call that is not repeated: whoever asked finds out first what came of it.
    pub(crate) async fn once<T, E, F>(&self, operation: &'static str, call: impl FnOnce() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        call().await.map_err(|error| self.error(operation, error))
    }

    async fn again_while<T, E, F>(
        &self,
        operation: &'static str,
        mut call: impl FnMut() -> F,
        again: impl Fn(Kind) -> bool,
        budget: Duration,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let end = Instant::now() + budget;
        let waits = ExponentialBuilder::new().with_min_delay(self.shortest_wait).with_max_delay(LONGEST_WAIT);
        let mut waits = waits.with_jitter().without_max_times().build();
        loop {
            let error = match call().await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.error(operation, error),
            };
            let wait = waits.next().unwrap_or(LONGEST_WAIT);
            if !again(error.kind()) || Instant::now() + wait > end {
                return Err(error);
            }
            tracing::warn!(operation, error = %error, ?wait, "tried again");
            tokio::time::sleep(wait).await;
        }
    }

    fn error<E>(&self, operation: &'static str, error: SdkError<E, HttpResponse>) -> CallError
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let place = self.place.as_ref().map(|(account, region)| format!(" in region `{region}` of account {account}"));
        let request = error.request_id().map(|id| format!(" (request {id})")).unwrap_or_default();
        let status = error.raw_response().map_or(0, |answer| answer.status().as_u16());
        let code = error.code().map(str::to_owned);
        let (kind, code, told) = match &error {
            SdkError::ServiceError(_) => {
                let told = [code.as_deref(), error.message()].into_iter().flatten().collect::<Vec<_>>().join(": ");
                (kind(code.as_deref(), status), code, told)
            }
            SdkError::ConstructionFailure(_) => (Kind::Refused, code, chain(&error)),
            SdkError::DispatchFailure(failure) => {
                let told = chain(&error);
                match UNSENT.iter().find(|(text, _)| told.contains(text)) {
                    Some((_, code)) => (Kind::Refused, code.map(str::to_owned), told),
                    None if failure.is_user() => (Kind::Refused, code, told),
                    // Nobody answers there, which may pass.
                    None if told.contains("(Connect)") => (Kind::Passing, code, told),
                    // Nobody knows whether it got there.
                    None => (Kind::Lost, code, told),
                }
            }
            // It came too late, or made no sense: it may have happened.
            _ => (Kind::Lost, code, chain(&error)),
        };
        CallError::Api { operation, place: place.unwrap_or_default(), kind, code, told: format!("{told}{request}") }
    }
}

/// An error with everything that caused it, in one line.
fn chain(error: &dyn Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        texts.push(cause.to_string());
        next = cause.source();
    }
    texts.dedup();
    texts.join(": ")
}
