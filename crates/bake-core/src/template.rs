//! Templates for names, descriptions and tags: minijinja, strict.
//!
//! A name that does not exist is an error that lists the names that do, never an empty text: an AMI called
//! `-1.0` is found weeks later.

use std::collections::BTreeSet;

use minijinja::{Environment, UndefinedBehavior, Value};

/// Instructions that one template may take: thousands of times what a name or a tag needs, and gone in a moment.
const FUEL: u64 = 100_000;
/// Longest text that a template may give, in bytes: no tag, name or description of any cloud is as long.
const LONGEST: usize = 64 << 10;
/// Characters of a template that an error shows.
const SHOWN: usize = 200;

/// A template or an expression that cannot be read, or not be filled in.
#[derive(Debug, thiserror::Error)]
#[error("cannot evaluate `{template}`: {reason}")]
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
    environment.add_filter("strftime", strftime);
    environment
}

/// How times are written in templates' values: `2026-11-30 12:00:00 UTC`.
pub(crate) const DATE: &str = "%Y-%m-%d %H:%M:%S UTC";

/// `date | strftime('%Y%m%d')`: a time in another form.
fn strftime(date: String, format: String) -> Result<String, minijinja::Error> {
    let wrong = |error: jiff::Error| {
        minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, format!("`strftime`: {error}"))
    };
    let time = jiff::civil::DateTime::strptime(DATE, &date).map_err(wrong)?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).map_err(wrong)?;
    jiff::fmt::strtime::format(&format, &time).map_err(wrong)
}

/// Values as templates take them.
pub(crate) fn to_value(json: &serde_json::Value) -> Value {
    Value::from(minijinja::value::Serde(json))
}

/// Whether a text has anything to fill in; if not, it is an expression where either may stand.
pub(crate) fn is_template(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark))
}

/// Renders one template over the given values.
pub(crate) fn render(template: &str, values: &Value) -> Result<String, TemplateError> {
    let rendered = try_render(template, values)
        .map_err(|error| TemplateError::new(template, explain(&error, template, values)))?;
    match rendered.len() {
        length if length <= LONGEST => Ok(rendered),
        length => Err(TemplateError::new(template, format!("it gives {length} bytes, and {LONGEST} are allowed"))),
    }
}

fn try_render(template: &str, values: &Value) -> Result<String, minijinja::Error> {
    strict().render_str(template, values)
}

/// Decides a predicate over the given values. What is neither yes nor no is an error.
pub(crate) fn holds(predicate: &str, values: &Value) -> Result<bool, TemplateError> {
    let value = evaluate(predicate, values)?;
    match value.kind() {
        minijinja::value::ValueKind::Bool => Ok(value.is_true()),
        _ => Err(TemplateError::new(predicate, format!("it gives `{value}`, which is neither true nor false"))),
    }
}

/// Evaluates an expression over the given values.
pub(crate) fn evaluate(expression: &str, values: &Value) -> Result<Value, TemplateError> {
    let failed = |reason: String| TemplateError::new(expression, reason);
    let value =
        try_evaluate(expression, values).map_err(|error| failed(explain(&error, &as_template(expression), values)))?;
    match value.is_undefined() {
        true => Err(failed(explain_missing(&as_template(expression), values))),
        false => Ok(value),
    }
}

fn try_evaluate(expression: &str, values: &Value) -> Result<Value, minijinja::Error> {
    strict().compile_expression(expression)?.eval(values)
}

fn as_template(expression: &str) -> String {
    format!("{{{{ {expression} }}}}")
}

/// Checks a template before its values are known: its syntax, its filters, and that every name exists.
pub(crate) fn check(template: &str, stand_ins: &Value) -> Result<(), TemplateError> {
    refuse_mistakes(try_render(template, stand_ins).map(drop), template, template, stand_ins)
}

/// Checks a predicate before its values are known.
pub(crate) fn check_predicate(predicate: &str, stand_ins: &Value) -> Result<(), TemplateError> {
    let evaluated = try_evaluate(predicate, stand_ins);
    let missing =
        evaluated.as_ref().is_ok_and(Value::is_undefined).then(|| explain_missing(&as_template(predicate), stand_ins));
    match missing.filter(|missing| !missing.is_empty()) {
        Some(missing) => Err(TemplateError::new(predicate, missing)),
        None => refuse_mistakes(evaluated.map(drop), predicate, &as_template(predicate), stand_ins),
    }
}

/// Tells mistakes of whoever wrote a text from what comes of stand-ins, which are not what the real values will be.
fn refuse_mistakes(
    tried: Result<(), minijinja::Error>,
    text: &str,
    template: &str,
    stand_ins: &Value,
) -> Result<(), TemplateError> {
    use minijinja::ErrorKind as Kind;
    let Err(error) = tried else { return Ok(()) };
    let reason = match error.kind() {
        Kind::SyntaxError
        | Kind::BadEscape
        | Kind::UnknownFilter
        | Kind::UnknownFunction
        | Kind::UnknownMethod
        | Kind::UnknownTest
        | Kind::TooManyArguments
        | Kind::MissingArgument
        | Kind::OutOfFuel => error.to_string(),
        // What is no name but, say, the third part of a version, may be there in the end.
        Kind::UndefinedError => explain_missing(template, stand_ins),
        _ => String::new(),
    };
    if reason.is_empty() { Ok(()) } else { Err(TemplateError::new(text, reason)) }
}

/// The names that a template or an expression asks for, such as `package.version`.
pub(crate) fn names_in(text: &str) -> BTreeSet<String> {
    let template = if is_template(text) { text.to_owned() } else { as_template(text) };
    let parsed = strict();
    let parsed = parsed.template_from_str(&template);
    parsed.map(|parsed| parsed.undeclared_variables(true)).unwrap_or_default().into_iter().collect()
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
    let missing = names_in(template).into_iter().filter(|path| lookup(values, path).is_none());
    missing.map(|path| describe_missing(&path, values)).collect::<Vec<_>>().join("; ")
}

/// Says which part of a path is the first that does not exist, and what exists there instead.
fn describe_missing(path: &str, values: &Value) -> String {
    let ends = path.match_indices('.').map(|(end, _)| end).chain([path.len()]);
    let missing = ends.map(|end| &path[..end]).find(|path| lookup(values, path).is_none()).unwrap_or(path);
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

pub(crate) fn lookup(values: &Value, path: &str) -> Option<Value> {
    let found = path.split('.').try_fold(values.clone(), |value, key| value.get_attr(key).ok());
    found.filter(|value| !value.is_undefined())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Value {
        to_value(&serde_json::json!({
            "package": { "name": "hello", "version": "2.10" }, "arch": "x86_64", "date": "2026-11-30 12:00:01 UTC",
        }))
    }

    #[test]
    fn known_names_are_filled_in() {
        assert_eq!(render("{{ package.name }}-{{ package.version }}", &values()).unwrap(), "hello-2.10");
        assert_eq!(render("{{ package.tag | default('none') }}", &values()).unwrap(), "none");
        assert_eq!(render("{{ date | strftime('%Y%m%d%H%M') }}", &values()).unwrap(), "202611301200");
    }

    #[test]
    fn a_missing_name_lists_what_exists() {
        let error = render("{{ package.nmae }}", &values()).unwrap_err();
        assert_eq!(error.reason, "there is no `nmae` in `package`; there are: name, version");
        let error = render("{{ pakage }}", &values()).unwrap_err();
        assert_eq!(error.reason, "there is no `pakage`; there are: arch, date, package");
    }

    #[test]
    fn a_predicate_says_yes_or_no_or_why_not() {
        assert!(holds("arch == 'x86_64' and package.version != '1'", &values()).unwrap());
        assert!(!holds("arch in ['aarch64']", &values()).unwrap());
        let reason = |predicate| holds(predicate, &values()).unwrap_err().reason;
        assert_eq!(reason("package.name"), "it gives `hello`, which is neither true nor false");
        assert_eq!(reason("pakage.name == 'x'"), "there is no `pakage`; there are: arch, date, package");
        assert_eq!(reason("package.nmae"), "there is no `nmae` in `package`; there are: name, version");
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
    fn mistakes_are_found_before_values_are_known() {
        let wrong = |template| check(template, &values()).unwrap_err().reason;
        assert!(wrong("{{ package.name").starts_with("syntax error"));
        assert!(wrong("{{ arch | uper }}").starts_with("unknown filter"));
        assert_eq!(wrong("{{ package.nmae }}"), "there is no `nmae` in `package`; there are: name, version");
        let wrong = |predicate| check_predicate(predicate, &values()).unwrap_err().reason;
        assert!(wrong("arch ==").starts_with("syntax error"));
        assert_eq!(wrong("package.nmae == 'x'"), "there is no `nmae` in `package`; there are: name, version");
        assert_eq!(wrong("archh"), "there is no `archh`; there are: arch, date, package");
    }

    #[test]
    fn what_only_stand_ins_do_wrong_is_no_mistake() {
        for template in [
            "{{ package.nmae | default('none') }}",
            "{{ (package.version | split('.'))[7] }}",
            "{{ package.name | int + 1 }}",
            "{% if arch == 'riscv64' %}{{ nowhere }}{% endif %}",
        ] {
            assert!(check(template, &values()).is_ok(), "{template}");
        }
        assert!(check_predicate("(package.name | int) > 3", &values()).is_ok());
        assert!(check_predicate("package.nmae is defined", &values()).is_ok());
    }

    #[test]
    fn the_names_that_are_asked_for() {
        let names = |text| names_in(text).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(names("{{ package.name }}-{{ vars.a | default(vars.b) }}"), "package.name vars.a vars.b");
        assert_eq!(names("arch == 'x' and base.tags.team is defined"), "arch base.tags.team");
        assert_eq!(names("plain"), "plain");
        assert_eq!(names("{{ broken"), "");
    }
}
