//! Templates for names, descriptions and tags: minijinja, strict.
//!
//! A name that does not exist is an error that lists the names that do, never an empty text: an AMI called
//! `-1.0` is found weeks later.

use minijinja::{Environment, UndefinedBehavior, Value};

/// A template that cannot be read or filled in.
#[derive(Debug, thiserror::Error)]
#[error("cannot fill in the template `{template}`: {reason}")]
pub struct TemplateError {
    /// The template's text.
    pub template: String,
    /// What went wrong, in minijinja's words, with the names that exist where one was missing.
    pub reason: String,
}

/// Renders one template over the given values.
pub(crate) fn render(template: &str, values: &serde_json::Value) -> Result<String, TemplateError> {
    let values = &Value::from(minijinja::value::Serde(values));
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
        .render_str(template, values)
        .map_err(|error| TemplateError { template: template.into(), reason: explain(&error, template, values) })
}

/// Checks the syntax alone, before anything is known.
pub(crate) fn check(template: &str) -> Result<(), TemplateError> {
    Environment::new()
        .template_from_str(template)
        .map(|_| ())
        .map_err(|error| TemplateError { template: template.into(), reason: error.to_string() })
}

fn explain(error: &minijinja::Error, template: &str, values: &Value) -> String {
    if error.kind() != minijinja::ErrorKind::UndefinedError {
        return error.to_string();
    }
    let environment = Environment::new();
    let missing = environment
        .template_from_str(template)
        .map(|parsed| parsed.undeclared_variables(true))
        .unwrap_or_default()
        .into_iter()
        .filter(|path| lookup(values, path).is_none_or(|value| value.is_undefined()))
        .collect::<std::collections::BTreeSet<_>>();
    let mut lines: Vec<String> = missing.iter().map(|path| describe_missing(path, values)).collect();
    if lines.is_empty() {
        lines.push(error.to_string());
    }
    lines.join("; ")
}

fn describe_missing(path: &str, values: &Value) -> String {
    let (parent, last) = path.rsplit_once('.').map_or((None, path), |(parent, last)| (Some(parent), last));
    let place = match parent {
        None => Some(values.clone()),
        Some(parent) => lookup(values, parent),
    };
    let mut known: Vec<String> = place
        .and_then(|value| value.try_iter().ok().map(|keys| keys.map(|key| key.to_string()).collect()))
        .unwrap_or_default();
    known.sort();
    match (parent, known.is_empty()) {
        (_, true) => format!("there is no `{path}`"),
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
    fn a_syntax_error_is_found_without_values() {
        assert!(check("{{ package.name").is_err());
        assert!(check("{{ package.name }}").is_ok());
        assert!(render("{{ a", &json!({})).is_err());
    }
}
