//! Faults that are laid on operations.

use std::time::Duration;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The service says that we ask too often, in its own words.
    Throttle,
    /// The service stumbles.
    Internal,
    /// The answer takes this much longer.
    Delay(Duration),
    /// The connection ends before anything happens.
    DropBefore,
    /// It happens, and the connection ends before the answer.
    DropAfter,
    /// What is named is said not to be there.
    NotFound,
    /// The caller may not.
    Denied,
    /// The credentials have run out.
    Expired,
    /// It happens, and what is made ends in failure, with this reason.
    Fails(String),
}

/// A fault on one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub(crate) operation: String,
    pub(crate) region: Option<String>,
    pub(crate) skip: u32,
    pub(crate) times: u32,
    pub(crate) kind: FaultKind,
}

impl Fault {
    /// Lays a fault on the next call of an operation.
    pub fn on(operation: &str, kind: FaultKind) -> Self {
        Self { operation: operation.into(), region: None, skip: 0, times: 1, kind }
    }

    /// Lets so many calls go well first.
    #[must_use]
    pub fn skip(self, skip: u32) -> Self {
        Self { skip, ..self }
    }

    /// Does it so many times.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times, ..self }
    }

    /// Does it in one region only.
    #[must_use]
    pub fn within(self, region: &str) -> Self {
        Self { region: Some(region.into()), ..self }
    }
}

/// Takes the fault that is due for a call.
pub(crate) fn due(faults: &mut [Fault], operation: &str, region: &str) -> Option<FaultKind> {
    let here = |fault: &&mut Fault| {
        fault.operation == operation && fault.times > 0 && fault.region.as_deref().is_none_or(|one| one == region)
    };
    let fault = faults.iter_mut().find(here)?;
    if fault.skip > 0 {
        fault.skip -= 1;
        return None;
    }
    fault.times -= 1;
    Some(fault.kind.clone())
}
