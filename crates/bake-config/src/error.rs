//! What is wrong with the configuration: every mistake with its place and, where known, its mend.

use std::collections::BTreeSet;
use std::fmt;

use crate::origin::Origin;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where it is.
    pub origin: Origin,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Other places that have to do with it: a remark and the place.
    pub related: Vec<(String, Origin)>,
}

impl ConfigError {
    pub(crate) fn new(origin: &Origin, message: impl Into<String>) -> Self {
        Self { origin: origin.clone(), message: message.into(), hint: None, related: Vec::new() }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn related(mut self, remark: impl Into<String>, origin: &Origin) -> Self {
        self.related.push((remark.into(), origin.clone()));
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.message)?;
        for (remark, origin) in &self.related {
            write!(f, "\n  {origin}: {remark}")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Every mistake that was found, in the order of the files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The mistakes, at least one.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
    }

    /// Gives `Ok(value)` when nothing was found. Mistakes are said once, however many environments share them.
    pub(crate) fn check<T>(value: T, found: Vec<ConfigError>) -> Result<T, Self> {
        let mut errors: Vec<ConfigError> = Vec::new();
        for error in found {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        errors.sort_by(|a, b| a.origin.cmp(&b.origin));
        if errors.is_empty() { Ok(value) } else { Err(Self(errors)) }
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl IntoIterator for ConfigErrors {
    type Item = ConfigError;
    type IntoIter = std::vec::IntoIter<ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

/// Names what exists beside what was written: "did you mean `apt`? known: apt, yum".
pub(crate) fn known<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    let listed = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    match closest(written, &names) {
        Some(name) => format!("did you mean `{name}`? known: {listed}"),
        None => format!("known: {listed}"),
    }
}

/// Two slips in three letters are another word: allow one slip per three characters, and a mere difference of case.
pub(crate) fn closest<'a>(written: &str, names: &[&'a str]) -> Option<&'a str> {
    let folded = written.to_lowercase().replace('-', "_");
    let allowed = folded.chars().count().div_ceil(3).min(3);
    let distance = |name: &str| strsim::damerau_levenshtein(&folded, &name.to_lowercase());
    let best = names.iter().copied().min_by_key(|name| distance(name))?;
    (distance(best) <= allowed).then_some(best)
}
