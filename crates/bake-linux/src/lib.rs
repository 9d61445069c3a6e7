//! Kernel resources of one bake, owned by a child process: sandbox, loop devices, mounts, files inside a root.
