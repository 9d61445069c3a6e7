//! The sandbox on a real kernel: needs root and loop devices.

mod life;
mod support;

bake_linux::sandbox_test_entry!();
