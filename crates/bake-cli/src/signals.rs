//! Signals: the first asks to stop and clean up, the second to stop cleaning, the third leaves at once.

use bake_engine::Cancel;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::terminal::tell;

/// Raises the level of `cancel` with every interrupt, termination or hang-up, for as long as the program runs.
pub(crate) fn watch(cancel: &Cancel) -> std::io::Result<()> {
    watch_for(cancel, "stopping: what was made is taken back; once more stops that too\n")
}

/// The same, with what the first signal is answered with.
pub(crate) fn watch_for(cancel: &Cancel, stopping: &'static str) -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let cancel = cancel.clone();
    tokio::spawn(async move {
        while next(&mut interrupt, &mut terminate, &mut hang_up).await.is_some() {
            match cancel.raise() {
                1 => tell(stopping),
                2 => tell("leaving things as they are; `bake runs` tells what there is\n"),
                // The user asked three times; guards would only delay it, and the kernel frees what the bake holds.
                _ => leave_at_once(),
            }
        }
    });
    Ok(())
}

async fn next(interrupt: &mut Signal, terminate: &mut Signal, hang_up: &mut Signal) -> Option<()> {
    tokio::select! {
        signal = interrupt.recv() => signal,
        signal = terminate.recv() => signal,
        signal = hang_up.recv() => signal,
    }
}

#[expect(clippy::disallowed_methods, reason = "skipping every guard is what the third signal asks for")]
fn leave_at_once() -> ! {
    std::process::exit(crate::exit::Exit::CancelledUnknown as i32)
}
