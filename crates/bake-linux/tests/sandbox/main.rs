//! The sandbox on a real kernel: needs root and loop devices.

mod commands;
mod death;
mod files;
mod hostile;
mod life;
mod overlaid;
mod support;

bake_linux::sandbox_test_entry!();
