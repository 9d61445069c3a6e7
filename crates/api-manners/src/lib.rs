//! How to behave towards a cloud's API: it is asked no more often than it likes, and a failure of a moment ends nothing.
//!
//! Start with [`Manners`], which is one for the whole process, and ask it for the [`Caller`] of a [`Place`]. A call goes through
//! [`Caller::call`], the only layer of retries there is. Whoever waits for something that the cloud makes waits at a [`Poller`],
//! which asks for all that is waited for in one call.
//!
//! Nothing here knows a cloud's library. A cloud turns its library's errors into [`Failure`], by the table of [`classify`].

mod backoff;
mod bucket;
mod caller;
mod class;
mod error;
mod failure;
mod operation;
mod poller;
mod wait;

pub use bucket::Rate;
pub use caller::{Caller, Manners, Observer, Refresh, Retry, Settings};
pub use class::{ErrorClass, Service, classify, classify_validation};
pub use error::CallError;
pub use failure::Failure;
pub use operation::{Bucket, Effect, Operation, Place};
pub use poller::{Pace, Poller};
pub use wait::{Awaited, Verdict, Wait, WaitError};
