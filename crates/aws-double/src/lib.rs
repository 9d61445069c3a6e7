//! A double of AWS for tests: EC2 images, snapshots, volumes and tags, the EBS direct API, instance metadata, STS and parameters,
//! over a socket.
//!
//! Start with [`Double`]. It is stricter than AWS: a parameter that it does not know is refused, and so is every request that
//! AWS's documentation forbids, with AWS's own codes. States are `pending` first, ids are as AWS makes them, and bytes are
//! real: a snapshot that was uploaded can be read back, here and through the API. [`Fault`]s can be laid on any operation, and
//! every request is written down ([`Double::requests`]).
//!
//! One port serves all services, as the credential scope of a request's signature tells which it means; the access key tells
//! the account. Signatures are not checked. Instance metadata is what is asked for without any.
//!
//! A [`Machine`] is an instance, whose attached volumes are real block devices of this machine; that needs root.

mod answer;
mod blocks;
mod clock;
mod ebs;
mod ec2;
mod fault;
mod machine;
mod metadata;
mod params;
mod server;
mod services;
mod signature;
mod world;

pub use clock::Delays;
pub use fault::{Fault, FaultKind};
pub use machine::{Kernel, Machine};
pub use server::{Double, DoubleBuilder, Request};
pub use world::{Attachment, Image, SeedImage, Snapshot, Volume};
