//! The `bake` command.
fn main() {}
