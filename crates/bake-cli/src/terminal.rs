//! What the terminal can do, and where log lines go.

use std::io::IsTerminal;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::Global;

/// Sends what the program logs about itself to standard error: warnings, or more with `-v`, or what `RUST_LOG` says.
pub(crate) fn start_logging(global: &Global) {
    let level = match (global.quiet, global.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::DEBUG,
        (false, _) => LevelFilter::TRACE,
    };
    let asked = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_default(level));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours(global)).without_time();
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
}

/// Tells whether standard error may be coloured.
pub(crate) fn colours(global: &Global) -> bool {
    !global.no_color
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::io::stderr().is_terminal()
}

/// Says something to people. A terminal that is gone, or a full disk behind it, must not end a bake.
pub(crate) fn tell(text: &str) {
    use std::io::Write;
    let _gone = std::io::stderr().write_all(text.as_bytes());
}

/// Writes to standard output. A reader that went away (`bake … | head`) is no error of ours.
pub(crate) fn print_line(line: &str) -> anyhow::Result<()> {
    use std::io::Write;
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
