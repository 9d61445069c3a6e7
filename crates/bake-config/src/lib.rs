//! Environments: the composition of a bake, read from layers that remember where each value was written.
