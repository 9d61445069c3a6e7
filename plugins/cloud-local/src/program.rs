//! Running programs of the host, and telling how far the work is.

use bake_linux::{HostCommand, HostError, HostOutput};
use tokio::sync::mpsc;

use crate::error::{StoreError, StoreResult};

/// How far a long piece of work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A new part of the work begins.
    Doing(&'a str),
    /// A program that does the work said this.
    Line(&'a str),
}

/// Hears how far the work is.
pub type Listener<'a> = &'a (dyn Fn(Progress<'_>) + Send + Sync);

/// Runs a program that says nothing worth hearing.
pub(crate) async fn run(action: &'static str, command: HostCommand) -> StoreResult<HostOutput> {
    command.run().await.map_err(|source| StoreError::Program { action, source })
}

/// Runs a program and passes its lines on.
pub(crate) async fn run_aloud(
    action: &'static str,
    command: HostCommand,
    listen: Listener<'_>,
) -> StoreResult<HostOutput> {
    let (sender, mut lines) = mpsc::unbounded_channel::<String>();
    // The receiver lives as long as the command: it ends when the command drops its sender.
    let command = command.on_line(move |line| drop(sender.send(line.to_owned())));
    let listening = async {
        while let Some(line) = lines.recv().await {
            listen(Progress::Line(&line));
        }
    };
    let (done, ()) = tokio::join!(command.run(), listening);
    done.map_err(|source: HostError| StoreError::Program { action, source })
}

/// Runs blocking work on a thread made for it.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> StoreResult<T> + Send + 'static,
) -> StoreResult<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Cancelled),
        },
    }
}
