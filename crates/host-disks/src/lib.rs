//! The disks of the machine that bakes, as its kernel shows them.
//!
//! Two questions about an attached volume are answered here. Before: which device name is free ([`DeviceNames::take`])? And after:
//! which of the disks is it ([`find`])? A cloud's name for the device is a wish that kernels read as they like, so the answer to the
//! second is never taken from the first alone.

mod find;
mod host;
mod name;

pub use find::{Evidence, Found, NotFound, Sought, find, look};
pub use host::{Host, SeenDisk};
pub use name::{DeviceName, DeviceNames, HeldName, InvalidName};
