//! A Linux root on a disk: found, checked, mounted in the sandbox, sealed.
