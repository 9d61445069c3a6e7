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
    // What the crates of AWS warn of either ends in an error of ours, or did not matter.
    let of_aws = if global.verbose == 0 { LevelFilter::ERROR } else { level };
    let filter = asked.unwrap_or_else(|| Targets::new().with_default(level).with_target("aws_", of_aws));
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

/// Text of others as one line that a terminal only shows: what could move its cursor, ring its bell, turn the direction of
/// text or begin another line is spelled out.
pub(crate) fn plain(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() && c != '\t' || turns(c) {
            true => plain.extend(c.escape_default()),
            false => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn what_others_wrote_is_shown_and_not_obeyed() {
        assert_eq!(plain("a\nb\t\u{1b}[2Jc\u{202e}d\r"), "a\\nb\t\\u{1b}[2Jc\\u{202e}d\\r");
        assert_eq!(plain("Grüße, 世界"), "Grüße, 世界");
    }
}
