//! Exit codes: scripts rely on them, so each has one meaning and never another.

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for is done.
    Done = 0,
    /// The command line or the configuration is wrong; nothing was started.
    Usage = 2,
    /// Baked, and an optional finalizer failed.
    DoneOptionalFailed = 10,
    /// Baked, and something temporary could not be removed.
    DoneWithLeftovers = 11,
    /// Failed; nothing is left.
    Failed = 20,
    /// Failed; something is left, and was listed.
    FailedWithLeftovers = 21,
    /// Failed, and the outcome of an operation is unknown.
    FailedUnknown = 22,
    /// Cancelled; nothing is left.
    Cancelled = 30,
    /// Cancelled; something is left, and was listed.
    CancelledWithLeftovers = 31,
    /// Cancelled, and the outcome of an operation is unknown.
    CancelledUnknown = 32,
    /// An earlier run of the same request is unfinished.
    Unfinished = 73,
    /// The journal cannot be written.
    Journal = 74,
    /// The same request is running now.
    Running = 75,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
