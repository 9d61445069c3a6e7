//! How errors are shown: a chain of short sentences, then what to do next.

use std::fmt::Write as _;

use bake_core::PlanError;
use bake_engine::{EngineError, Failure, JournalError};

use crate::exit::Exit;
use crate::terminal::{plain, tell};

/// An error that knows the next move, or the exit code that belongs to it.
#[derive(Debug)]
pub(crate) struct Advice {
    message: String,
    hint: Option<String>,
    exit: Exit,
}

impl Advice {
    /// Makes an error of use: exit code 2, nothing was started.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, exit: Exit::Usage }
    }

    /// Makes an error of any other sort.
    pub(crate) fn of(exit: Exit, message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, exit }
    }

    /// Adds the next move.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the next move, where one is known.
    pub(crate) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

/// Mistakes of an environment that makes no plan, all of them in one error: a line for each.
pub(crate) fn refused(mistakes: &[PlanError]) -> Advice {
    let lines = mistakes.iter().map(line).collect::<Vec<_>>().join("\n");
    Advice::usage(lines).maybe_hint(mistakes.iter().find_map(PlanError::hint))
}

/// A mistake on one line, with its place and its cause.
pub(crate) fn line(mistake: &PlanError) -> String {
    let source = std::error::Error::source(mistake).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{mistake}{source}")
}

impl std::fmt::Display for Advice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Advice {}

/// Prints an error and returns the exit code that belongs to it.
pub(crate) fn print(error: &anyhow::Error, otherwise: Exit) -> Exit {
    // `downcast_ref` of anyhow's own looks through contexts, which the errors of `chain` do not.
    let advice = error.downcast_ref::<Advice>();
    let step = error.downcast_ref::<bake_engine::StepError>();
    let store = error.downcast_ref::<cloud_local::StoreError>();
    let hint = advice
        .and_then(|advice| advice.hint.clone())
        .or_else(|| step.and_then(|step| step.hint_text().map(str::to_owned)))
        .or_else(|| store.and_then(Failure::hint));
    let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
    let details =
        step.map(|step| step.detail_lines().to_vec()).or_else(|| store.map(Failure::details)).unwrap_or_default();
    tell(&describe("error", &chain, &details, hint.as_deref()));
    let is_journals = error.downcast_ref::<JournalError>().is_some()
        || matches!(error.downcast_ref::<EngineError>(), Some(EngineError::Journal(_)));
    match advice {
        Some(advice) => advice.exit,
        None if is_journals => Exit::Journal,
        None => otherwise,
    }
}

/// Writes an error as people read it.
pub(crate) fn describe(word: &str, chain: &[String], details: &[String], hint: Option<&str>) -> String {
    let mut text = String::new();
    let mut sentences = chain.iter().map(String::as_str);
    let _ = writeln!(text, "{word}: {}", sentences.next().unwrap_or("failed"));
    // A wrapper that only repeats its source says nothing new.
    let mut last = chain.first().map(String::as_str);
    for sentence in sentences {
        if last != Some(sentence) {
            let _ = writeln!(text, "  caused by: {sentence}");
        }
        last = Some(sentence);
    }
    for line in details {
        let _ = writeln!(text, "  | {}", plain(line));
    }
    if let Some(hint) = hint {
        let _ = writeln!(text, "hint: {hint}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_chain_then_its_words_then_a_hint() {
        let chain = ["cannot install `hello`".to_owned(), "exit status: 100".into(), "exit status: 100".into()];
        insta::assert_snapshot!(describe("error", &chain, &["E: Unable to locate package hello".into()], Some("is the name right?")), @r"
        error: cannot install `hello`
          caused by: exit status: 100
          | E: Unable to locate package hello
        hint: is the name right?
        ");
    }
}
