//! Debian packages made on the spot, and repositories of them.
//!
//! [`Deb`] makes any package; the functions make those that tests share, each with a behaviour of its own.
//! [`standard`] is a repository of the tame ones.

mod deb;
mod hostile;
mod repository;
mod tame;

pub use deb::Deb;
pub use hostile::{EvilTarget, daemon, evil, failing, huge, killer, slow};
pub use repository::Repository;
pub use tame::{conf, curious, hello, hello_dep, service, standard};
