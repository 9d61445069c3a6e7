//! Transfers against a service in memory that fails as the real one does.

mod download;
mod service;
mod upload;
