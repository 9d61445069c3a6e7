//! Calls to AWS and what they fail with.
//!
//! Each call is made in one of five ways, by what may be repeated and who keeps its pace: [`Calls::read`],
//! [`Calls::repeatable`], [`Calls::new_id`], [`Calls::once`] and [`Calls::single`]. The AWS crates' own retries are off, so that
//! nothing is tried more often than `api-manners` says.

use std::error::Error;
use std::time::Duration;

use api_manners::{Bucket, Caller, ErrorClass, Operation, Service};
use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::operation::RequestId;
use bake_core::Account;
use bake_engine::{Class, Failure};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a call is tried again and again while it is throttled or fails in passing.
const BUDGET: Duration = Duration::from_secs(120);

/// How long a call is tried on what was just made, and may be unknown to another part of the service.
const NEW: Duration = Duration::from_secs(180);

/// Bytes of what the services call a GiB.
pub(crate) const GIB: u64 = 1 << 30;

/// How calls are made at one place.
#[derive(Clone)]
pub(crate) struct Calls {
    caller: Caller,
}

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The service said no, or nothing.
    #[error(transparent)]
    Api(#[from] api_manners::CallError),
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
            Self::Api(error) => error.code(),
            _ => None,
        }
    }

    pub(crate) fn kind(&self) -> ErrorClass {
        match self {
            Self::Api(error) => error.class().unwrap_or(ErrorClass::Refused),
            _ => ErrorClass::Refused,
        }
    }

    /// Tells whether what was named is not there.
    pub(crate) fn is_absent(&self) -> bool {
        self.kind() == ErrorClass::NotYetVisible
    }

    /// Tells whether something else uses what was to go.
    pub(crate) fn is_in_use(&self) -> bool {
        self.kind() == ErrorClass::InUse
    }
}

/// What an error of a service means for a step.
pub(crate) fn class(kind: ErrorClass) -> Class {
    match kind {
        ErrorClass::Throttled | ErrorClass::Limit => Class::Throttled,
        ErrorClass::Passing | ErrorClass::NotYetVisible => Class::Transient,
        ErrorClass::UnknownOutcome => Class::Unknown,
        ErrorClass::InUse => Class::InUse,
        ErrorClass::Expired | ErrorClass::Denied | ErrorClass::Refused => Class::Permanent,
    }
}

impl Failure for CallError {
    fn class(&self) -> Class {
        class(self.kind())
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoRegion => "say so with `plugins.cloud.ec2.region`, or with `AWS_REGION`",
            Self::OtherAccount { .. } => "use the credentials of that account",
            Self::Missing { .. } => return None,
            Self::Api(error) if error.class() == Some(ErrorClass::Expired) => {
                "get new credentials, then go on with `bake resume`"
            }
            Self::Api(error) if error.code() == Some(NO_CREDENTIALS) => {
                "set `plugins.cloud.ec2.profile`, or credentials as for any AWS tool"
            }
            Self::Api(error) => error.hint()?,
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
    pub(crate) fn new(caller: Caller) -> Self {
        Self { caller }
    }

    /// Makes a call that changes nothing.
    pub(crate) async fn read<T, E, F>(&self, operation: &'static str, call: impl FnMut() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        self.call(Operation::reads(operation), BUDGET, call).await
    }

    /// Makes a call that changes nothing, for a poller.
    pub(crate) async fn look<T, E, F>(
        &self,
        operation: &'static str,
        call: impl FnMut() -> F,
    ) -> Result<T, api_manners::CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        self.attempts(Operation::reads(operation), BUDGET, call).await
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
        self.call(Operation::repeatable(operation), BUDGET, call).await
    }

    /// Makes a repeatable call on something that was just made, and that this part of the service may not know yet.
    pub(crate) async fn new_id<T, E, F>(&self, operation: &'static str, call: impl FnMut() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        self.call(Operation::repeatable(operation).on_new_id(), NEW, call).await
    }

    /// Makes a call that is not repeated: whoever asked finds out first what came of it.
    pub(crate) async fn once<T, E, F>(&self, operation: &'static str, call: impl FnOnce() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        self.call_once(Operation::once(operation), call).await
    }

    /// Makes one attempt of a call whose pace and retries are `ebs-transfer`'s.
    pub(crate) async fn single<T, E, F>(
        &self,
        operation: &'static str,
        call: impl FnOnce() -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        self.call_once(Operation::repeatable(operation).bucket(Bucket::Unmetered), call).await
    }

    async fn call_once<T, E, F>(&self, operation: Operation, call: impl FnOnce() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let mut call = Some(call);
        let attempt = || call.take().expect("an unrepeated call is made once")();
        self.call(operation.unrepeated(), BUDGET, attempt).await
    }

    async fn call<T, E, F>(
        &self,
        operation: Operation,
        budget: Duration,
        call: impl FnMut() -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        Ok(self.attempts(operation, budget, call).await?)
    }

    async fn attempts<T, E, F>(
        &self,
        operation: Operation,
        budget: Duration,
        mut call: impl FnMut() -> F,
    ) -> Result<T, api_manners::CallError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        // A cancel of the run does not end a call: the engine waits for it, so that nothing that it made is lost.
        let (deadline, cancel) = (Instant::now() + budget, CancellationToken::new());
        let attempt = || {
            let call = call();
            async { call.await.map_err(|error| failure(&error)) }
        };
        self.caller.call(&operation, deadline, &cancel, attempt).await
    }
}

/// Asks for one page after the other: `page` is given where it begins, and returns what is on it and where the next one does.
pub(crate) async fn all_pages<T, F>(page: impl Fn(Option<String>) -> F) -> Result<Vec<T>, CallError>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), CallError>>,
{
    let (mut all, mut next) = (Vec::new(), None);
    loop {
        let (found, after) = page(next).await?;
        all.extend(found);
        next = after.filter(|token| !token.is_empty());
        if next.is_none() {
            return Ok(all);
        }
    }
}

/// Reads off an error of the AWS crates how far the request came and what was answered.
fn failure<E>(error: &SdkError<E, HttpResponse>) -> api_manners::Failure
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    use api_manners::Failure;
    let failure = match error {
        SdkError::ServiceError(_) => {
            let status = error.raw_response().map_or(0, |answer| answer.status().as_u16());
            // The codes of the EBS direct API that mean something else are in no other service's answers that we ask for.
            Failure::answered(Service::Ebs, error.code(), status, error.message().unwrap_or_default())
        }
        SdkError::ConstructionFailure(_) => Failure::refused(chain(error)),
        SdkError::DispatchFailure(dispatch) => {
            let told = chain(error);
            match UNSENT.iter().find(|(text, _)| told.contains(text)) {
                Some((_, Some(code))) => Failure::refused(told).with_code(*code),
                Some((_, None)) => Failure::refused(told),
                None if dispatch.is_user() => Failure::refused(told),
                // Nobody answers there, which may pass.
                None if told.contains("(Connect)") => Failure::not_sent(told),
                // Nobody knows whether it got there.
                None => Failure::lost(told),
            }
        }
        // It came too late, or made no sense: it may have happened.
        _ => Failure::lost(chain(error)),
    };
    failure.with_request(error.request_id())
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
