//! What apt-get printed, kept so that an error can be told in its own words.

use std::collections::VecDeque;

use bake_engine::{StepContext, StepError, StepResult};
use bake_linux::{Outcome, OutputSink, Space};

/// Lines of output that an error shows; the whole is in the step's log.
const LAST_LINES: usize = 15;
/// A line longer than this is cut: output may be binary, and without end.
const LINE_LIMIT: usize = 4096;
/// Most that a program may answer; a package database of 100,000 packages fits.
const ANSWER_LIMIT: usize = 64 << 20;

/// Sends output to the step's log, a line at a time, and keeps the last ones.
pub(crate) struct Transcript {
    cx: StepContext,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    last: VecDeque<String>,
    /// Complaints of apt, wherever in the output they stood.
    complaints: Vec<String>,
}

impl Transcript {
    pub(crate) fn new(cx: StepContext) -> Self {
        Self { cx, stdout: vec![], stderr: vec![], last: VecDeque::new(), complaints: vec![] }
    }

    /// Returns apt's complaints, or else the last lines.
    pub(crate) fn finish(mut self) -> Vec<String> {
        for rest in [std::mem::take(&mut self.stdout), std::mem::take(&mut self.stderr)] {
            if !rest.is_empty() {
                self.line(&rest);
            }
        }
        let mut lines: Vec<_> = self.last.into();
        for complaint in self.complaints {
            if !lines.contains(&complaint) {
                lines.insert(0, complaint);
            }
        }
        lines
    }

    fn line(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        // A progress bar rewrites its line by carriage returns; its last state says it all.
        let text = text.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default().trim_end();
        // Nothing of the image speaks to the user's terminal: a title, a clipboard, a cursor.
        let text = &text.replace(|c: char| c.is_control() && c != '\t', "\u{fffd}");
        if text.is_empty() {
            return;
        }
        self.cx.log(text);
        if is_complaint(text) && self.complaints.len() < LAST_LINES {
            self.complaints.push(text.to_owned());
        }
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(text.to_owned());
    }
}

fn is_complaint(line: &str) -> bool {
    ["E: ", "Err:", "dpkg: error"].iter().any(|start| line.starts_with(start)) || is_index_failure(line)
}

fn is_index_failure(line: &str) -> bool {
    line.starts_with("W: Failed to fetch") || line.contains("Some index files failed to download")
}

/// Tells whether an index could not be fetched; an apt older than 2.1.1 says so and exits with 0.
pub(crate) fn index_failed(lines: &[String]) -> bool {
    lines.iter().any(|line| is_index_failure(line))
}

/// Hands every whole line of `bytes` to `take`, keeping an unfinished one in `pending`.
fn split_lines(pending: &mut Vec<u8>, bytes: &[u8], mut take: impl FnMut(&[u8])) {
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        let room = LINE_LIMIT.saturating_sub(pending.len());
        pending.extend(&piece[..piece.len().min(room)]);
        if piece.ends_with(b"\n") {
            let line = std::mem::take(pending);
            take(line.strip_suffix(b"\n").unwrap_or(&line));
        }
    }
}

impl OutputSink for Transcript {
    fn stdout(&mut self, bytes: &[u8]) {
        let mut pending = std::mem::take(&mut self.stdout);
        split_lines(&mut pending, bytes, |line| self.line(line));
        self.stdout = pending;
    }

    fn stderr(&mut self, bytes: &[u8]) {
        let mut pending = std::mem::take(&mut self.stderr);
        split_lines(&mut pending, bytes, |line| self.line(line));
        self.stderr = pending;
    }
}

/// Keeps a program's answer whole.
#[derive(Default)]
pub(crate) struct Collected {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    too_long: bool,
}

impl Collected {
    /// The answer as text.
    pub(crate) fn text(self, title: &str) -> StepResult<String> {
        if self.too_long {
            return Err(StepError::permanent(format!("`{title}` answered more than {ANSWER_LIMIT} bytes")));
        }
        String::from_utf8(self.stdout)
            .map_err(|_| StepError::permanent(format!("`{title}` answered bytes that are no text")))
    }

    /// The end of what it complained about.
    pub(crate) fn error_lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.stderr);
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].to_vec()
    }
}

impl OutputSink for Collected {
    fn stdout(&mut self, bytes: &[u8]) {
        match self.stdout.len() + bytes.len() > ANSWER_LIMIT {
            true => self.too_long = true,
            false => self.stdout.extend(bytes),
        }
    }

    fn stderr(&mut self, bytes: &[u8]) {
        self.stderr.extend(
            &bytes[..bytes.len().min(LINE_LIMIT * LAST_LINES - self.stderr.len().min(LINE_LIMIT * LAST_LINES))],
        );
    }
}

/// Turns a failed apt-get into an error that says what to do, where that is known.
pub(crate) fn explain(title: &str, outcome: &Outcome, lines: Vec<String>, space: Option<Space>) -> StepError {
    let failed = |message: String| StepError::permanent(message).details(lines.clone());
    let says = |text: &str| lines.iter().any(|line| line.contains(text));
    let full = says("No space left on device") || says("You don't have enough free space");
    if let Some(space) = space.filter(|space| full || space.is_full()) {
        let left = format!("{} bytes and {} files are left", space.bytes_free, space.inodes_free);
        return failed(format!("the root is full: `{title}` failed, {left}"))
            .hint("start from a base image with a larger disk: `bake base create debian --size 8GiB`");
    }
    let error = failed(match outcome.success() {
        true => format!("`{title}` could not fetch an index"),
        false => format!("`{title}` failed: {}", outcome.status),
    });
    if says("Unable to locate package") || says("has no installation candidate") {
        return error.hint("is the name right, and is its repository among the root's sources or in `plugins.provisioner.apt.repositories`?");
    }
    if says("Version '") && says("was not found") {
        return error.hint("ask for the package without a version to get the one that the repositories have");
    }
    if says("Temporary failure resolving") || says("Could not connect") || says("Connection refused") {
        return error.hint("can this machine reach the repositories that the root names?");
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_taken_line_by_line_whatever_its_pieces() {
        let mut pending = Vec::new();
        let mut lines = Vec::new();
        for piece in [&b"on"[..], b"e\ntwo\nth", b"ree"] {
            split_lines(&mut pending, piece, |line| lines.push(String::from_utf8_lossy(line).into_owned()));
        }
        assert_eq!(lines, ["one", "two"]);
        assert_eq!(pending, b"three");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut pending = Vec::new();
        for _ in 0..100 {
            split_lines(&mut pending, &[b'x'; 1000], |_| panic!("there was no line end"));
        }
        assert_eq!(pending.len(), LINE_LIMIT);
    }

    #[test]
    fn an_old_apts_warning_about_an_index_is_a_failure() {
        let lines = |text: &str| [text.to_owned()];
        assert!(index_failed(&lines("W: Failed to fetch http://x/dists/y  Could not connect")));
        assert!(index_failed(&lines(
            "W: Some index files failed to download. They have been ignored, or old ones used instead."
        )));
        assert!(!index_failed(&lines("Get:1 http://x bookworm InRelease")));
    }
}
