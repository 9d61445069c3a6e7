//! A hook for tests of what a crash leaves: `BAKE_CRASH_AT=<step path>:<point>` ends the process there, at once, as if
//! by SIGKILL. The points, in the order in which a mutation passes them:
//!
//! | point | the process dies |
//! |---|---|
//! | `start` | before the step does anything |
//! | `before_intent` | before the intent is durable |
//! | `intent` | when the intent is durable and nothing was sent |
//! | `sent` | when the call was answered and its ids are not durable |
//! | `accepted` | when the ids are durable |
//! | `settled` | when it is ready and `done` is not durable |
//! | `done` | when `done` is durable |
//! | `retry` | when it has waited for its next try |
//! | `close` | before the live values of a scope are closed (the path is the scope's) |
//! | `closed` | when they are closed, and the scope is not durable |
//! | `undo` | before it is taken back |
//! | `undoing` | when the journal says that it is being taken back, and no call was sent |
//! | `undone` | when it was taken back, and that is not durable |
//!
//! Local work passes `start`, `settled` and `done`. The run as a whole has points of its own, under the path `run`:
//! `begun` or `resumed` when that is durable and no step was started; `ended` when all steps have; `closed`.

use std::sync::OnceLock;

/// Ends the process here if the test that started it says so.
pub(crate) fn point(step: &str, point: &str) {
    static WANTED: OnceLock<Option<(String, String)>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        // Not in a release: there no variable of the environment may end a bake.
        let at = cfg!(debug_assertions).then(|| std::env::var("BAKE_CRASH_AT").ok()).flatten()?;
        at.rsplit_once(':').map(|(step, point)| (step.to_owned(), point.to_owned()))
    });
    if wanted.as_ref().is_some_and(|(at, when)| at == step && when == point) {
        std::process::abort();
    }
}
