//! The parameters of a request, each of which has to be taken by somebody.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use crate::answer::Refusal;

/// The parameters of a request. What is left when it has been understood is what nobody knows, and is refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    values: BTreeMap<String, String>,
}

impl Params {
    /// Reads a form.
    pub(crate) fn of_form(body: &[u8]) -> Self {
        Self { values: form_urlencoded::parse(body).into_owned().collect() }
    }

    /// Returns all of them, for the log.
    pub(crate) fn all(&self) -> BTreeMap<String, String> {
        self.values.clone()
    }

    /// Takes a text.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.values.remove(name)
    }

    /// Takes a text that has to be there.
    pub(crate) fn need(&mut self, name: &str) -> Result<String, Refusal> {
        let missing = || {
            let message = format!("The request must contain the parameter {name}");
            Refusal::new("MissingParameter", message)
        };
        self.take(name).ok_or_else(missing)
    }

    /// Takes a number or a truth value.
    pub(crate) fn parsed<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Refusal> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let wrong = |_| Refusal::new("InvalidParameterValue", format!("Invalid value '{text}' for {name}"));
        text.parse().map(Some).map_err(wrong)
    }

    /// Takes a list of texts: `NAME.1`, `NAME.2`.
    pub(crate) fn list(&mut self, name: &str) -> Vec<String> {
        (1..).map_while(|number| self.take(&format!("{name}.{number}"))).collect()
    }

    /// Takes a list of structures: those whose parameters begin with `NAME.1.`, and so on.
    pub(crate) fn structures(&mut self, name: &str) -> Vec<Params> {
        (1..).map_while(|number| self.structure(&format!("{name}.{number}"))).collect()
    }

    /// Takes a structure, if any of its parameters is there.
    pub(crate) fn structure(&mut self, name: &str) -> Option<Params> {
        let prefix = format!("{name}.");
        let keys: BTreeSet<String> = self.values.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
        let take = |key: String| (key[prefix.len()..].to_owned(), self.values.remove(&key).expect("it was just there"));
        let values: BTreeMap<_, _> = keys.into_iter().map(take).collect();
        (!values.is_empty()).then_some(Params { values })
    }

    /// Refuses what nobody took.
    pub(crate) fn done(self) -> Result<(), Refusal> {
        match self.values.keys().next() {
            None => Ok(()),
            Some(name) => Err(Refusal::new("UnknownParameter", format!("The parameter {name} is not recognized"))),
        }
    }
}
