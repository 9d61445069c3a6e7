//! A cloud on the local disk: base images, volumes, snapshots and images in a folder.
