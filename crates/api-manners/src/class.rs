//! What kind of failure an error of the API is: one table for all calls.

/// What kind of failure it is, which decides what is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// We ask too often.
    Throttled,
    /// It did not work, and may the next time: the service is unwell, or there was no connection.
    Passing,
    /// What was named is not there, or not known there yet.
    NotYetVisible,
    /// Something else uses it, or it is in a state that changes by itself.
    InUse,
    /// The credentials have run out.
    Expired,
    /// The credentials may not do this.
    Denied,
    /// A limit of the account is reached.
    Limit,
    /// Asking again cannot help.
    Refused,
    /// The answer was lost: it may have happened.
    UnknownOutcome,
}

/// Which API answered. The same word can mean something else in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Amazon EC2.
    Ec2,
    /// The EBS direct API.
    Ebs,
    /// Any other: security tokens, parameters.
    Other,
}

/// The codes that mean something else than a refusal, in any service: the common errors of the EC2 API, and what the AWS tools
/// for Python retry.
const ANYWHERE: [(ErrorClass, &[&str]); 7] = [
    (
        ErrorClass::Throttled,
        &[
            "BandwidthLimitExceeded",
            "EC2ThrottledException",
            "PriorRequestNotComplete",
            "RequestLimitExceeded",
            "RequestThrottleException",
            "RequestThrottled",
            "RequestThrottledException",
            "SlowDown",
            "Throttling",
            "ThrottlingException",
            "TooManyRequestsException",
        ],
    ),
    (
        ErrorClass::Passing,
        &[
            "InternalError",
            "InternalFailure",
            "InternalServerException",
            "RequestTimeout",
            "RequestTimeoutException",
            "ServiceUnavailable",
            "Unavailable",
        ],
    ),
    (
        ErrorClass::NotYetVisible,
        &[
            "InvalidAMIID.NotFound",
            "InvalidAMIID.Unavailable",
            "InvalidSnapshot.NotFound",
            "InvalidSnapshotID.NotFound",
            "InvalidVolume.NotFound",
            "ParameterNotFound",
        ],
    ),
    (ErrorClass::InUse, &["IncorrectState", "InvalidSnapshot.InUse", "VolumeInUse"]),
    (ErrorClass::Expired, &["ExpiredToken", "ExpiredTokenException", "RequestExpired"]),
    (
        ErrorClass::Denied,
        &[
            "AccessDenied",
            "AccessDeniedException",
            "AuthFailure",
            "Blocked",
            "InvalidClientTokenId",
            "InvalidSignatureException",
            "MissingAuthenticationToken",
            "OptInRequired",
            "SignatureDoesNotMatch",
            "UnauthorizedOperation",
            "UnrecognizedClientException",
        ],
    ),
    (
        ErrorClass::Limit,
        &[
            "ConcurrentSnapshotLimitExceeded",
            "PendingSnapshotLimitExceeded",
            "ResourceLimitExceeded",
            "ServiceQuotaExceededException",
            "SnapshotLimitExceeded",
        ],
    ),
];

/// What the EBS direct API adds.
const EBS: [(ErrorClass, &[&str]); 2] = [
    (ErrorClass::NotYetVisible, &["ResourceNotFoundException"]),
    (ErrorClass::Limit, &["ConcurrentLimitExceededException"]),
];

/// Reads the class off the service's own code, and off the HTTP status where the code says nothing.
///
/// A status of 0 is an answer without one. The `ValidationException` of the EBS direct API means more than one thing: see
/// [`classify_validation`].
pub fn classify(service: Service, code: Option<&str>, status: u16) -> ErrorClass {
    let own: &[_] = if service == Service::Ebs { &EBS } else { &[] };
    let named = code.and_then(|code| own.iter().chain(&ANYWHERE).find(|(_, codes)| codes.contains(&code)));
    match (named, status) {
        (Some((class, _)), _) => *class,
        (None, 429) => ErrorClass::Throttled,
        (None, 500..=599) => ErrorClass::Passing,
        (None, 401 | 403) => ErrorClass::Denied,
        (None, _) => ErrorClass::Refused,
    }
}

/// Reads the class of a `ValidationException` of the EBS direct API off its reason and its words.
pub fn classify_validation(reason: Option<&str>, message: Option<&str>) -> ErrorClass {
    // Both describe what passes: another write to the same block, and a write that took the service too long.
    let reason_passes = matches!(reason, Some("CONFLICTING_BLOCK_UPDATE" | "WRITE_REQUEST_TIMEOUT"));
    if reason_passes || message.is_some_and(|message| message.contains("Failed to read block data")) {
        ErrorClass::Passing
    } else {
        ErrorClass::Refused
    }
}
