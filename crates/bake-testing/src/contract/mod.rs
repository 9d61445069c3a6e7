//! What the traits of plugins promise, as tests that every plugin and every fake runs.
