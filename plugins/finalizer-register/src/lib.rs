//! Registers an image from the snapshot.
