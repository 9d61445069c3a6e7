//! What is read of an answer, and what of it may be shown.

use std::borrow::Cow;

use reqwest::Response;

use crate::address::MASK;
use crate::error::Trouble;

/// Nobody reads more of an answer, and an endless one must end somewhere.
const MOST_READ: usize = 64 << 10;
/// How much of it an error shows, in bytes and in lines.
const MOST_SHOWN: usize = 2 << 10;
const MOST_LINES: usize = 20;
/// Shorter ones are words such as `1` or `us`, and hide what an answer says.
const SHORTEST_SECRET: usize = 4;

/// Reads the body to its end, or to the limit.
pub(crate) async fn read(response: &mut Response) -> Result<Vec<u8>, Trouble> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = MOST_READ - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == MOST_READ {
            break;
        }
    }
    Ok(body)
}

/// What must not be shown although a server may say it back.
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    pub(crate) fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut secrets = Vec::new();
        for value in values {
            // `Bearer abc` is said back as `abc`, too.
            secrets.extend(value.split_whitespace().map(str::to_owned));
            secrets.push(value);
        }
        secrets.retain(|secret| secret.len() >= SHORTEST_SECRET);
        // One may be a part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self(secrets)
    }

    /// The text without them.
    pub(crate) fn mask(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, MASK))
    }
}

/// The first lines of a body, as text that does nothing to a terminal.
pub(crate) fn first_lines(body: &[u8], secrets: &Secrets) -> Vec<String> {
    let text: Cow<'_, str> = String::from_utf8_lossy(body);
    let text: String = text.chars().filter(|&c| c == '\n' || !c.is_control()).collect();
    let text = secrets.mask(&text);
    let shown = &text[..text.floor_char_boundary(MOST_SHOWN)];
    shown.lines().map(str::trim_end).filter(|line| !line.is_empty()).take(MOST_LINES).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_body_is_shown_by_its_first_lines_without_secrets_and_control_characters() {
        let secrets = Secrets::new(["Bearer hunter22".to_owned(), "us".to_owned()]);
        let body = b"no \x1b[31mBearer hunter22\r\n\n  nor hunter\x0022 for us\xff\n";
        assert_eq!(first_lines(body, &secrets), ["no [31m****", "  nor **** for us\u{fffd}"]);
        let long = format!("{}ü", "x".repeat(MOST_SHOWN - 1));
        assert_eq!(first_lines(long.as_bytes(), &secrets)[0].len(), MOST_SHOWN - 1);
        assert_eq!(first_lines("line\n".repeat(100).as_bytes(), &secrets).len(), MOST_LINES);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_a_server_says_is_short_and_shows_no_secret(body in prop::collection::vec(any::<u8>(), 0..5000), at in 0usize..5000) {
            let mut body = body;
            let at = at.min(body.len());
            body.splice(at..at, *b"hunter22");
            let lines = first_lines(&body, &Secrets::new(["hunter22".to_owned()]));
            prop_assert!(lines.iter().map(String::len).sum::<usize>() <= MOST_SHOWN);
            prop_assert!(!lines.iter().any(|line| line.contains("hunter22") || line.contains(char::is_control)));
        }
    }
}
