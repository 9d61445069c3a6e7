//! A disk file as the disk to bake on.
