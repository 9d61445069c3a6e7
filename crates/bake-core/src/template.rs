//! Templates for names, descriptions and tags: minijinja, strict.
//!
//! A name that does not exist is an error that lists the names that do, never an empty text: an AMI called
//! `-1.0` is found weeks later.

use minijinja::{Environment, UndefinedBehavior, Value};

/// Instructions that one template may take: thousands of times what a name or a tag needs, and gone in a moment.
const FUEL: u64 = 100_000;
/// Longest text that a template may give, in bytes: no tag, name or description of any cloud is as long.
const LONGEST: usize = 64 << 10;
/// Characters of a template that an error shows.
const SHOWN: usize = 200;

/// A template that cannot be read or filled in.
#[derive(Debug, thiserror::Error)]
#[error("cannot fill in the template `{template}`: {reason}")]
pub struct TemplateError {
    /// The template's text, or the beginning of a long one.
    pub template: String,
    /// What went wrong, in minijinja's words, with the names that exist where one was missing.
    pub reason: String,
}

impl TemplateError {
    fn new(template: &str, reason: impl Into<String>) -> Self {
        let template = match template.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &template[..end]),
            None => template.to_owned(),
        };
        Self { template, reason: reason.into() }
    }
}

/// An environment in which nothing is guessed and nothing runs for ever.
fn strict() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment
}

/// Renders one template over the given values.
pub(crate) fn render(template: &str, values: &serde_json::Value) -> Result<String, TemplateError> {
    let values = &Value::from(minijinja::value::Serde(values));
    let rendered = strict()
        .render_str(template, values)
        .map_err(|error| TemplateError::new(template, explain(&error, template, values)))?;
    match rendered.len() {
        length if length <= LONGEST => Ok(rendered),
        length => Err(TemplateError::new(template, format!("it gives {length} bytes, and {LONGEST} are allowed"))),
    }
}

/// Decides a predicate over the given values. What is neither yes nor no is an error.
pub(crate) fn holds(predicate: &str, values: &serde_json::Value) -> Result<bool, TemplateError> {
    let values = &Value::from(minijinja::value::Serde(values));
    let as_template = format!("{{{{ {predicate} }}}}");
    let failed = |reason: String| TemplateError::new(predicate, reason);
    let environment = strict();
    let expression = environment.compile_expression(predicate).map_err(|error| failed(error.to_string()))?;
    let value = expression.eval(values).map_err(|error| failed(explain(&error, &as_template, values)))?;
    match value.kind() {
        minijinja::value::ValueKind::Bool => Ok(value.is_true()),
        minijinja::value::ValueKind::Undefined => Err(failed(explain_missing(&as_template, values))),
        _ => Err(failed(format!("it gives `{value}`, which is neither true nor false"))),
    }
}

/// Checks the syntax of a predicate alone.
pub(crate) fn check_predicate(predicate: &str) -> Result<(), TemplateError> {
    let compiled = Environment::new().compile_expression(predicate).map(|_| ());
    compiled.map_err(|error| TemplateError::new(predicate, error.to_string()))
}

/// Checks the syntax alone, before anything is known.
pub(crate) fn check(template: &str) -> Result<(), TemplateError> {
    let parsed = Environment::new().template_from_str(template).map(|_| ());
    parsed.map_err(|error| TemplateError::new(template, error.to_string()))
}

fn explain(error: &minijinja::Error, template: &str, values: &Value) -> String {
    if error.kind() != minijinja::ErrorKind::UndefinedError {
        return error.to_string();
    }
    match explain_missing(template, values) {
        nothing if nothing.is_empty() => error.to_string(),
        missing => missing,
    }
}

/// Names what a template asks for and the values do not have.
fn explain_missing(template: &str, values: &Value) -> String {
    let environment = Environment::new();
    let missing = environment
        .template_from_str(template)
        .map(|parsed| parsed.undeclared_variables(true))
        .unwrap_or_default()
        .into_iter()
        .filter(|path| lookup(values, path).is_none_or(|value| value.is_undefined()))
        .collect::<std::collections::BTreeSet<_>>();
    missing.iter().map(|path| describe_missing(path, values)).collect::<Vec<_>>().join("; ")
}

/// Says which part of a path is the first that does not exist, and what exists there instead.
fn describe_missing(path: &str, values: &Value) -> String {
    let ends = path.match_indices('.').map(|(end, _)| end).chain([path.len()]);
    let exists = |path: &str| lookup(values, path).is_some_and(|value| !value.is_undefined());
    let missing = ends.map(|end| &path[..end]).find(|path| !exists(path)).unwrap_or(path);
    let (parent, last) = missing.rsplit_once('.').map_or((None, missing), |(parent, last)| (Some(parent), last));
    let place = parent.map_or_else(|| Some(values.clone()), |parent| lookup(values, parent));
    let names = place.and_then(|value| Some(value.try_iter().ok()?.map(|key| key.to_string()).collect::<Vec<_>>()));
    let mut known = names.unwrap_or_default();
    known.sort();
    match (parent, known.is_empty()) {
        (_, true) => format!("there is no `{missing}`"),
        (None, false) => format!("there is no `{last}`; there are: {}", known.join(", ")),
        (Some(parent), false) => format!("there is no `{last}` in `{parent}`; there are: {}", known.join(", ")),
    }
}

fn lookup(values: &Value, path: &str) -> Option<Value> {
    path.split('.').try_fold(values.clone(), |value, key| value.get_attr(key).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values() -> serde_json::Value {
        json!({ "package": { "name": "hello", "version": "2.10" }, "arch": "x86_64" })
    }

    #[test]
    fn known_names_are_filled_in() {
        assert_eq!(render("{{ package.name }}-{{ package.version }}", &values()).unwrap(), "hello-2.10");
        assert_eq!(render("{{ package.tag | default('none') }}", &values()).unwrap(), "none");
    }

    #[test]
    fn a_missing_name_lists_what_exists() {
        let error = render("{{ package.nmae }}", &values()).unwrap_err();
        assert_eq!(error.reason, "there is no `nmae` in `package`; there are: name, version");
        let error = render("{{ pakage }}", &values()).unwrap_err();
        assert_eq!(error.reason, "there is no `pakage`; there are: arch, package");
    }

    #[test]
    fn a_predicate_says_yes_or_no_or_why_not() {
        assert!(holds("arch == 'x86_64' and package.version != '1'", &values()).unwrap());
        assert!(!holds("arch in ['aarch64']", &values()).unwrap());
        let reason = |predicate| holds(predicate, &values()).unwrap_err().reason;
        assert_eq!(reason("package.name"), "it gives `hello`, which is neither true nor false");
        assert_eq!(reason("pakage.name == 'x'"), "there is no `pakage`; there are: arch, package");
        assert_eq!(reason("package.nmae"), "there is no `nmae` in `package`; there are: name, version");
        assert!(check_predicate("arch ==").is_err() && check_predicate("arch == 'x'").is_ok());
    }

    #[test]
    fn no_template_runs_for_ever_or_gives_a_flood() {
        let twice = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        let endless = render(twice, &values()).unwrap_err();
        assert!(endless.reason.contains("fuel"), "{endless}");
        let flood = render("{{ 'x' * 100000 }}", &values()).unwrap_err();
        assert_eq!(flood.reason, "it gives 100000 bytes, and 65536 are allowed");
        assert_eq!(render(&"{{".repeat(1000), &values()).unwrap_err().template.chars().count(), SHOWN + 1);
    }

    #[test]
    fn a_syntax_error_is_found_without_values() {
        assert!(check("{{ package.name").is_err());
        assert!(check("{{ package.name }}").is_ok());
        assert!(render("{{ a", &json!({})).is_err());
    }
}
