//! Tags what the bake made.
