//! What kind of failure an error of the API is: one table for all calls.

/// What kind of failure it is, which decides what is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// We ask too often.
    Throttled,
    /// It did not happen, and may the next time.
    Passing,
    /// The answer was lost: it may have happened.
    Lost,
    /// What was named is not there, or not known there yet.
    Absent,
    /// Something else uses it.
    InUse,
    /// The credentials have run out.
    Expired,
    /// A limit of the account is reached.
    Limit,
    /// Asking again cannot help.
    Refused,
}

/// The codes that mean something else than a refusal. From the common errors of the EC2 API and of the EBS direct API, and what
/// the AWS tools for Python retry.
const CODES: [(Kind, &[&str]); 7] = [
    (
        Kind::Throttled,
        &[
            "RequestLimitExceeded",
            "EC2ThrottledException",
            "Throttling",
            "ThrottlingException",
            "RequestThrottled",
            "RequestThrottledException",
            "RequestThrottleException",
            "SlowDown",
            "BandwidthLimitExceeded",
            "PriorRequestNotComplete",
            "TooManyRequestsException",
        ],
    ),
    (
        Kind::Passing,
        &[
            "RequestTimeout",
            "RequestTimeoutException",
            "InternalError",
            "InternalFailure",
            "InternalServerException",
            "ServiceUnavailable",
            "Unavailable",
        ],
    ),
    (
        Kind::Absent,
        &[
            "InvalidAMIID.NotFound",
            "InvalidAMIID.Unavailable",
            "InvalidSnapshot.NotFound",
            "InvalidSnapshotID.NotFound",
            "InvalidVolume.NotFound",
            "ResourceNotFoundException",
            "ParameterNotFound",
        ],
    ),
    (Kind::InUse, &["InvalidSnapshot.InUse", "VolumeInUse", "IncorrectState"]),
    (Kind::Expired, &["ExpiredToken", "ExpiredTokenException", "RequestExpired"]),
    (
        Kind::Limit,
        &[
            "ResourceLimitExceeded",
            "PendingSnapshotLimitExceeded",
            "SnapshotLimitExceeded",
            "ConcurrentLimitExceededException",
            "ConcurrentSnapshotLimitExceeded",
            "ServiceQuotaExceededException",
        ],
    ),
    (Kind::Refused, &["InvalidAMIName.Duplicate"]),
];

/// Reads the kind off the service's own code, and off the HTTP status where the code says nothing.
pub(crate) fn kind(code: Option<&str>, status: u16) -> Kind {
    let named = code.and_then(|code| CODES.iter().find(|(_, codes)| codes.contains(&code)));
    match (named, status) {
        (Some((kind, _)), _) => *kind,
        (None, 429) => Kind::Throttled,
        (None, 500..=599) => Kind::Passing,
        (None, _) => Kind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_goes_before_the_status() {
        assert_eq!(kind(Some("RequestLimitExceeded"), 503), Kind::Throttled);
        assert_eq!(kind(Some("Unheard"), 503), Kind::Passing);
        assert_eq!(kind(None, 429), Kind::Throttled);
        assert_eq!(kind(Some("UnauthorizedOperation"), 403), Kind::Refused);
        assert_eq!(kind(Some("InvalidAMIName.Duplicate"), 400), Kind::Refused);
    }

    #[test]
    fn no_code_is_of_two_kinds() {
        let mut all: Vec<_> = CODES.iter().flat_map(|(_, codes)| codes.iter()).collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
