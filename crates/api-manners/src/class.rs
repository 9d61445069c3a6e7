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
            "InvalidAttachment.NotFound",
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code that is known of the EC2 API, with its usual status.
    const EC2_TABLE: &[(ErrorClass, u16, &[&str])] = &[
        (
            ErrorClass::Throttled,
            503,
            &[
                "RequestLimitExceeded",
                "EC2ThrottledException",
                "Throttling",
                "ThrottlingException",
                "RequestThrottled",
                "RequestThrottledException",
                "SlowDown",
                "BandwidthLimitExceeded",
                "PriorRequestNotComplete",
            ],
        ),
        (ErrorClass::Passing, 500, &["InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable"]),
        (ErrorClass::Passing, 400, &["RequestTimeout"]),
        (
            ErrorClass::NotYetVisible,
            400,
            &[
                "InvalidAMIID.NotFound",
                "InvalidAttachment.NotFound",
                "InvalidAMIID.Unavailable",
                "InvalidSnapshot.NotFound",
                "InvalidSnapshotID.NotFound",
                "InvalidVolume.NotFound",
            ],
        ),
        (ErrorClass::InUse, 400, &["IncorrectState", "InvalidSnapshot.InUse", "VolumeInUse"]),
        (ErrorClass::Limit, 400, &["ResourceLimitExceeded", "PendingSnapshotLimitExceeded", "SnapshotLimitExceeded"]),
        (ErrorClass::Expired, 400, &["ExpiredToken", "RequestExpired"]),
        (
            ErrorClass::Denied,
            403,
            &["UnauthorizedOperation", "AuthFailure", "OptInRequired", "Blocked", "SignatureDoesNotMatch"],
        ),
        (
            ErrorClass::Refused,
            400,
            &[
                "InvalidParameter",
                "InvalidParameterValue",
                "InvalidParameterCombination",
                "MissingParameter",
                "InvalidAMIName.Duplicate",
                "InvalidAMIName.Malformed",
                "InvalidAMIID.Malformed",
                "InvalidBlockDeviceMapping",
                "InvalidManifest",
                "InvalidAMIAttributeItemValue",
                "InvalidRequest",
                "TagLimitExceeded",
                "IdempotentParameterMismatch",
                "OperationNotPermitted",
                "NeverHeardOf",
            ],
        ),
    ];

    /// Every code that is known of the EBS direct API, with its usual status.
    const EBS_TABLE: &[(ErrorClass, u16, &[&str])] = &[
        (ErrorClass::Throttled, 400, &["ThrottlingException", "RequestThrottledException", "RequestThrottleException"]),
        (ErrorClass::Passing, 500, &["InternalServerException"]),
        (ErrorClass::NotYetVisible, 404, &["ResourceNotFoundException"]),
        (ErrorClass::Limit, 402, &["ServiceQuotaExceededException"]),
        (ErrorClass::Limit, 400, &["ConcurrentLimitExceededException"]),
        (ErrorClass::Expired, 403, &["ExpiredToken", "ExpiredTokenException"]),
        (ErrorClass::Denied, 403, &["AccessDeniedException", "InvalidSignatureException"]),
        (ErrorClass::Refused, 409, &["ConflictException"]),
        (ErrorClass::Refused, 400, &["ValidationException"]),
    ];

    #[test]
    fn every_known_code_has_its_class() {
        for (service, table) in [(Service::Ec2, EC2_TABLE), (Service::Ebs, EBS_TABLE)] {
            for (class, status, codes) in table {
                for code in *codes {
                    assert_eq!(classify(service, Some(code), *status), *class, "`{code}` of {service:?}");
                }
            }
        }
    }

    #[test]
    fn without_a_known_code_the_status_tells() {
        for (status, class) in [
            (429, ErrorClass::Throttled),
            (500, ErrorClass::Passing),
            (502, ErrorClass::Passing),
            (503, ErrorClass::Passing),
            (504, ErrorClass::Passing),
            (401, ErrorClass::Denied),
            (403, ErrorClass::Denied),
            (400, ErrorClass::Refused),
            (404, ErrorClass::Refused),
            (0, ErrorClass::Refused),
        ] {
            assert_eq!(classify(Service::Ec2, None, status), class, "{status}");
            assert_eq!(classify(Service::Ec2, Some("NeverHeardOf"), status), class, "{status}");
        }
    }

    #[test]
    fn a_code_goes_before_the_status() {
        assert_eq!(classify(Service::Ec2, Some("RequestLimitExceeded"), 503), ErrorClass::Throttled);
        assert_eq!(classify(Service::Ec2, Some("ExpiredToken"), 403), ErrorClass::Expired);
    }

    #[test]
    fn a_code_of_one_service_means_nothing_in_another() {
        assert_eq!(classify(Service::Ebs, Some("ResourceNotFoundException"), 404), ErrorClass::NotYetVisible);
        assert_eq!(classify(Service::Other, Some("ResourceNotFoundException"), 404), ErrorClass::Refused);
    }

    #[test]
    fn no_code_is_of_two_classes() {
        let mut all: Vec<_> = ANYWHERE.iter().chain(&EBS).flat_map(|(_, codes)| codes.iter()).collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn some_failed_validations_of_blocks_pass() {
        use ErrorClass::{Passing, Refused};
        for (reason, message, class) in [
            (None, Some("Failed to read block data"), Passing),
            (Some("CONFLICTING_BLOCK_UPDATE"), None, Passing),
            (Some("WRITE_REQUEST_TIMEOUT"), Some("too slow"), Passing),
            (Some("INVALID_BLOCK_TOKEN"), Some("the token is too old"), Refused),
            (Some("INVALID_SNAPSHOT_ID"), None, Refused),
            (None, None, Refused),
        ] {
            assert_eq!(classify_validation(reason, message), class, "{reason:?} {message:?}");
        }
    }
}
