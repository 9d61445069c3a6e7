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

/// Decides a predicate over the given values. What is neither yes nor no is an error.
pub(crate) fn holds(predicate: &str, values: &serde_json::Value) -> Result<bool, TemplateError> {
    let values = &Value::from(minijinja::value::Serde(values));
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let failed = |reason| TemplateError { template: predicate.into(), reason };
    let expression = environment.compile_expression(predicate).map_err(|error| failed(error.to_string()))?;
    let value =
        expression.eval(values).map_err(|error| failed(explain(&error, &format!("{{{{ {predicate} }}}}"), values)))?;
    match value.kind() {
        minijinja::value::ValueKind::Bool => Ok(value.is_true()),
        minijinja::value::ValueKind::Undefined => {
            Err(failed(explain_missing(&format!("{{{{ {predicate} }}}}"), values)))
        }
        _ => Err(failed(format!("it gives `{value}`, which is neither true nor false"))),
    }
}

/// Checks the syntax of a predicate alone.
pub(crate) fn check_predicate(predicate: &str) -> Result<(), TemplateError> {
    Environment::new()
        .compile_expression(predicate)
        .map(|_| ())
        .map_err(|error| TemplateError { template: predicate.into(), reason: error.to_string() })
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
    fn a_syntax_error_is_found_without_values() {
        assert!(check("{{ package.name").is_err());
        assert!(check("{{ package.name }}").is_ok());
        assert!(render("{{ a", &json!({})).is_err());
    }
}
