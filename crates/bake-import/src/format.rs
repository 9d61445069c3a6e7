//! From Python's `str.format` to templates: `{name}-{0:%Y}` becomes `{{ package.name }}-{{ date | strftime('%Y') }}`.

/// The names that Aminator fills in, the older ones too, and what they are called in templates.
const NAMES: [(&str, &str); 13] = [
    ("name", "package.name"),
    ("package_name", "package.name"),
    ("version", "package.version"),
    ("release", "package.release"),
    ("arch", "arch"),
    ("suffix", "vars.suffix"),
    ("creator", "vars.creator"),
    ("base_ami_name", "base.name"),
    ("ancestor_name", "base.name"),
    ("base_ami_id", "base.id"),
    ("ancestor_id", "base.id"),
    ("base_ami_version", BASE_VERSION),
    ("ancestor_version", BASE_VERSION),
];

/// Aminator takes an empty text where the base has no such tag.
const BASE_VERSION: &str = "base.tags.base_ami_version | default('')";

/// The directives that mean the same in Python and in the filter `strftime`. `%c`, `%x`, `%X` and `%r` follow the locale in
/// the one and not in the other, and `%z` and `%Z` are empty in the one alone.
const DIRECTIVES: &str = "aAbBhCdeDFgGHIjklmMnpPRsStTuUVwWyY%";

/// The marks between `%` and its letter that change padding and case alike in both.
const FLAGS: &str = "-_0^";

/// What a format is filled in with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// The package, the base image and what else is known of the image.
    Image,
    /// The time alone: a suffix is made before anything else is known.
    Time,
}

/// Why a format has no template that says the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("a `{{` is never closed")]
    Open,
    #[error("a `}}` closes nothing")]
    Closed,
    #[error("`{{{0}}}` is no name that bake knows")]
    Unknown(String),
    #[error("`{{{0}}}` is not known while the suffix is made")]
    TooEarly(String),
    #[error("`{{{0}}}` changes the value it shows, for which templates have other means")]
    Changed(String),
    #[error("`{{{0}}}` looks inside of a value")]
    Inside(String),
    #[error("`{{{field}}}` asks for the time by `{directive}`, which is not the same in bake")]
    Directive { field: String, directive: String },
    #[error("`{{{0}}}` is the time without a format")]
    BareTime(String),
}

/// Returns the template that gives what Python's `format` would.
pub(crate) fn template(format: &str, over: Over) -> Result<String, FormatError> {
    let mut template = String::new();
    let mut text = String::new();
    let mut rest = format;
    while let Some(c) = rest.chars().next() {
        let doubled = rest[c.len_utf8()..].starts_with(c);
        match c {
            '{' | '}' if doubled => {
                text.push(c);
                rest = &rest[2..];
            }
            '{' => {
                let end = field_end(&rest[1..]).ok_or(FormatError::Open)?;
                template += &literal(&std::mem::take(&mut text));
                template += &expression(&rest[1..=end], over)?;
                rest = &rest[end + 2..];
            }
            '}' => return Err(FormatError::Closed),
            c => {
                text.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    Ok(template + &last_literal(&text))
}

/// Returns the template that gives this text and nothing else.
pub(crate) fn literal(text: &str) -> String {
    // `{{`, `{%` and `{#` mean something, and a `{` may come to stand before the `{{` of an expression.
    text.replace('{', "{{ '{' }}")
}

/// The same for a text that ends a template, which would lose a line break there.
pub(crate) fn last_literal(text: &str) -> String {
    let before = text.trim_end_matches(['\n', '\r']);
    let breaks = text[before.len()..].replace('\n', "\\n").replace('\r', "\\r");
    match breaks.as_str() {
        "" => literal(text),
        breaks => format!("{}{{{{ '{breaks}' }}}}", literal(before)),
    }
}

/// Where the `}` is that ends a field: a format inside a format has braces of its own.
fn field_end(rest: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some(index),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn expression(field: &str, over: Over) -> Result<String, FormatError> {
    let name_end = field.find(['!', ':']).unwrap_or(field.len());
    let (name, how) = field.split_at(name_end);
    if name == "0" || name.is_empty() && (over == Over::Time || how.contains('%')) {
        return match how.strip_prefix(':') {
            Some(time) if !time.is_empty() => Ok(format!("{{{{ date | strftime('{}') }}}}", strftime(time, field)?)),
            Some(_) => Err(FormatError::BareTime(field.to_owned())),
            None if how.is_empty() => Err(FormatError::BareTime(field.to_owned())),
            None => Err(FormatError::Changed(field.to_owned())),
        };
    }
    if name.contains(['.', '[']) {
        return Err(FormatError::Inside(field.to_owned()));
    }
    let Some((_, expression)) = NAMES.iter().find(|(known, _)| *known == name) else {
        return Err(FormatError::Unknown(field.to_owned()));
    };
    match how {
        _ if over == Over::Time => Err(FormatError::TooEarly(field.to_owned())),
        // All of them are texts, which these leave as they are.
        "" | ":" | "!s" | "!s:" | ":s" => Ok(format!("{{{{ {expression} }}}}")),
        _ => Err(FormatError::Changed(field.to_owned())),
    }
}

/// The format of a time as the inside of a quoted text in a template.
fn strftime(format: &str, field: &str) -> Result<String, FormatError> {
    let mut written = String::new();
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        match c {
            '%' => {
                written += &directive(&mut characters).map_err(|directive| {
                    let field = field.to_owned();
                    FormatError::Directive { field, directive }
                })?
            }
            // A brace here is a format inside the format.
            '{' | '}' => return Err(FormatError::Changed(field.to_owned())),
            '\\' | '\'' => written.extend(['\\', c]),
            c => written.push(c),
        }
    }
    Ok(written)
}

/// Reads what follows a `%`; gives it as an error if it is not the same in both.
fn directive(characters: &mut std::str::Chars<'_>) -> Result<String, String> {
    let mut directive = String::from("%");
    for c in characters {
        directive.push(c);
        match c {
            // Six digits in Python, as many as there are in the filter.
            'f' if directive.len() == 2 => return Ok("%6f".to_owned()),
            c if DIRECTIVES.contains(c) => return Ok(directive),
            c if FLAGS.contains(c) && directive.len() == 2 => {}
            _ => break,
        }
    }
    Err(directive)
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, UndefinedBehavior};
    use proptest::prelude::*;

    use super::*;

    /// One-digit fields, so that padding shows.
    const THEN: &str = "2026-03-04 05:06:07.012345+00:00[UTC]";

    fn strftime(format: &str) -> Result<String, jiff::Error> {
        jiff::fmt::strtime::format(format, &THEN.parse::<jiff::Zoned>()?)
    }

    fn render(template: &str) -> String {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.add_filter("strftime", |_: &str, format: &str| strftime(format).unwrap());
        let values = serde_json::json!({
            "package": { "name": "hello", "version": "1.10", "release": "012" },
            "arch": "x86_64",
            "vars": { "suffix": "s", "creator": "ann" },
            "base": { "name": "base", "id": "ami-1", "tags": {} },
            "date": "any",
        });
        environment.render_str(template, minijinja::value::Serde(values)).unwrap()
    }

    fn image(format: &str) -> Result<String, String> {
        template(format, Over::Image).map_err(|error| error.to_string())
    }

    fn time(format: &str) -> Result<String, String> {
        template(format, Over::Time).map_err(|error| error.to_string())
    }

    #[test]
    fn names_become_those_of_templates() {
        assert_eq!(image("{name}-{arch}").unwrap(), "{{ package.name }}-{{ arch }}");
        assert_eq!(image("{base_ami_version!s:}").unwrap(), "{{ base.tags.base_ami_version | default('') }}");
        assert_eq!(time("{0:%Y%m%d%H%M}").unwrap(), "{{ date | strftime('%Y%m%d%H%M') }}");
        assert_eq!(time("v{:it's %f}").unwrap(), r"v{{ date | strftime('it\'s %6f') }}");
    }

    #[test]
    fn what_has_no_counterpart_is_said_with_the_field() {
        let problem = |format| image(format).unwrap_err();
        assert_eq!(problem("{name"), "a `{` is never closed");
        assert_eq!(problem("name}"), "a `}` closes nothing");
        assert_eq!(problem("{build_job}"), "`{build_job}` is no name that bake knows");
        assert_eq!(problem("{}"), "`{}` is no name that bake knows");
        assert_eq!(problem("{name!r}"), "`{name!r}` changes the value it shows, for which templates have other means");
        assert_eq!(
            problem("{name:>10}"),
            "`{name:>10}` changes the value it shows, for which templates have other means"
        );
        assert_eq!(
            problem("{name:{arch}}"),
            "`{name:{arch}}` changes the value it shows, for which templates have other means"
        );
        assert_eq!(problem("{a.b}"), "`{a.b}` looks inside of a value");
        assert_eq!(problem("{a[0]}"), "`{a[0]}` looks inside of a value");
        assert_eq!(problem("{0:%c}"), "`{0:%c}` asks for the time by `%c`, which is not the same in bake");
        assert_eq!(problem("{0:%Y%}"), "`{0:%Y%}` asks for the time by `%`, which is not the same in bake");
        assert_eq!(problem("{0}"), "`{0}` is the time without a format");
        assert_eq!(time("{name}").unwrap_err(), "`{name}` is not known while the suffix is made");
    }

    /// The values are those of C's `strftime`, which Python calls.
    #[test]
    fn every_directive_that_is_let_through_is_the_same_in_the_filter() {
        let expected = "Wed Wednesday Mar March Mar 20 04  4 03/04/26 2026-03-04 26 2026 05 05 063  5  5 03 06 \n AM am \
                        05:06 1772600767 07 \t 05:06:07 3 09 10 3 09 26 2026 %";
        let format: Vec<String> = DIRECTIVES.chars().map(|c| format!("%{c}")).collect();
        assert_eq!(strftime(&format.join(" ")).unwrap(), expected);
        assert_eq!(strftime("%6f %-d %_d %0e %^a").unwrap(), "012345 4  4 04 WED");
        for c in (' '..='~').filter(|c| !DIRECTIVES.contains(*c) && !"f{}".contains(*c) && !FLAGS.contains(*c)) {
            assert!(time(&format!("{{0:%{c}}}")).is_err(), "%{c}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_text_is_never_taken_for_a_template(text in prop_oneof!["[{}%#' a\n\r-]{0,12}", any::<String>()]) {
            prop_assert_eq!(render(&last_literal(&text)), text);
        }

        #[test]
        fn a_template_gives_what_the_format_gives(parts in prop::collection::vec(part(), 0..8)) {
            let (format, expected): (Vec<String>, Vec<String>) = parts.into_iter().unzip();
            prop_assert_eq!(render(&template(&format.concat(), Over::Image).unwrap()), expected.concat());
        }

        #[test]
        fn no_format_makes_it_panic(format in prop_oneof!["[{}!:%.0aé]{0,12}", any::<String>()]) {
            for over in [Over::Image, Over::Time] {
                if let Ok(template) = template(&format, over) {
                    render(&template);
                }
            }
        }
    }

    /// A piece of a format and what Python makes of it.
    fn part() -> impl Strategy<Value = (String, String)> {
        const FIELDS: &[(&str, &str)] = &[
            ("{package_name}", "hello"),
            ("{version}", "1.10"),
            ("{release!s}", "012"),
            ("{ancestor_id}", "ami-1"),
            ("{base_ami_version}", ""),
            ("{suffix:s}", "s"),
            ("{0:%F %T UTC}", "2026-03-04 05:06:07 UTC"),
            ("{0:'%j\\}", "'063\\"),
        ];
        let field = prop::sample::select(FIELDS).prop_map(|(format, value)| (format.to_owned(), value.to_owned()));
        let text = "[{}%#' a\n-]{0,6}".prop_map(|text| (text.replace('{', "{{").replace('}', "}}"), text));
        prop_oneof![field, text]
    }
}
