//! Attached volumes on fake machines: how they are named, and how they are found.

mod finding;
mod machine;
mod naming;
