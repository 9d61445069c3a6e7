//! Running the host's programs, with errors that say what they said.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Runs the command to its end and returns what it printed on stdout.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .env("LC_ALL", "C.UTF-8")
        // mkfs and friends live in folders that are not in everybody's PATH.
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run `{program}`"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8_lossy(&output.stdout);
        bail!("{command:?} failed, {}:\n{}{}", output.status, stdout, stderr);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Gives the value, or ends the test with the whole chain of errors.
#[track_caller]
pub(crate) fn or_panic<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error:#}"),
    }
}

/// Gives the value, or ends the test with all that the error says.
#[track_caller]
pub(crate) fn sure<T, E: std::error::Error>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{}", chain(&error)),
    }
}

/// Returns the messages of an error, from the outermost to the cause.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Waits a moment before looking again.
#[expect(clippy::disallowed_methods, reason = "tests wait outside of any runtime, and each caller has a limit")]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}
