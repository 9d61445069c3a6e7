//! Installs Debian packages with the root own apt.
