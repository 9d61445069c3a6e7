//! Names of runs and of operations.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Letters and digits that nobody mistakes for each other when typing (no `i`, `l`, `o`, `u`).
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Four of them: about a million values within one second.
const RANDOM_LETTERS: usize = 4;

/// EC2 tags and all file systems take far more; a person does not.
const LONGEST: usize = 40;

/// The name of a run: `20260301-101500-k3f9`. Sorts by time, can be typed, and is legal in tags and file names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// Makes a new name for a run that starts at `started`.
    pub fn new(started: jiff::Timestamp) -> RunId {
        let time = started.strftime("%Y%m%d-%H%M%S");
        RunId(format!("{time}-{}", letters(random().to_le_bytes(), RANDOM_LETTERS)))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The text is not the name of a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a run: it has small letters, digits and `-`, such as `20260301-101500-k3f9`")]
pub struct BadRunId(String);

impl FromStr for RunId {
    type Err = BadRunId;

    fn from_str(text: &str) -> Result<RunId, BadRunId> {
        RunId::try_from(text.to_owned())
    }
}

impl TryFrom<String> for RunId {
    type Error = BadRunId;

    fn try_from(text: String) -> Result<RunId, BadRunId> {
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let good = (1..=LONGEST).contains(&text.len()) && !text.starts_with('-') && text.chars().all(legal);
        if good { Ok(RunId(text)) } else { Err(BadRunId(text)) }
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> String {
        id.0
    }
}

/// Returns the idempotency token of an operation: the same for every retry and every process, at most 64 characters.
pub(crate) fn operation_token(run: &RunId, step: &str, generation: u32) -> String {
    let mut hash = Sha256::new();
    for part in [run.as_str(), step, &generation.to_string()] {
        // The length goes in too, or `a` + `bc` would be `ab` + `c`.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    letters(hash.finalize(), 52)
}

/// Writes bytes as letters of the alphabet, five bits each, at most `count`.
fn letters(bytes: impl AsRef<[u8]>, count: usize) -> String {
    let bytes = bytes.as_ref();
    let bit = |at: usize| bytes.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1);
    (0..count)
        .map(|letter| {
            let index = (0..5).fold(0, |value, offset| value << 1 | usize::from(bit(letter * 5 + offset)));
            char::from(ALPHABET[index])
        })
        .collect()
}

/// Returns a random number. Good enough for names and jitter, and needs no library.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_sort_by_time_and_parse() {
        let at = |second| RunId::new(jiff::Timestamp::from_second(second).unwrap());
        let (first, second) = (at(1_772_000_000), at(1_772_000_001));
        assert!(first < second);
        assert_eq!(first.as_str().len(), 20);
        assert_eq!(first.to_string().parse::<RunId>().unwrap(), first);
        assert_ne!(at(5), at(5));
    }

    #[test]
    fn hostile_run_ids_are_refused() {
        for bad in ["", "-x", "../x", "a b", "A", "a/b", &"x".repeat(41)] {
            assert!(bad.parse::<RunId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn tokens_differ_by_each_part_and_never_change() {
        let run: RunId = "20260301-101500-k3f9".parse().unwrap();
        let token = operation_token(&run, "volume/create", 1);
        assert_eq!(token.len(), 52);
        assert_eq!(token, operation_token(&run, "volume/create", 1));
        assert_ne!(token, operation_token(&run, "volume/create", 2));
        assert_ne!(token, operation_token(&run, "volume/creat", 1));
        assert_eq!(token, "mh2rm4a51s9j7h6mwfbt5wqcwqq43kdqw748n82k3d7w4fe4kb6g");
    }
}
