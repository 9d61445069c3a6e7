//! Filters: values of one are alternatives, and all filters have to be met.

use crate::answer::Refusal;
use crate::params::Params;

/// A filter, with what its values match.
pub(super) struct Filter {
    name: String,
    values: Vec<String>,
}

/// Takes the filters of a request.
pub(super) fn take(params: &mut Params) -> Result<Vec<Filter>, Refusal> {
    let mut filters = Vec::new();
    for mut filter in params.structures("Filter") {
        let (name, values) = (filter.need("Name")?, filter.list("Value"));
        filter.done()?;
        filters.push(Filter { name, values });
    }
    Ok(filters)
}

/// Tells whether something meets all filters. `field` gives the values of a field, or `None` if there is no such field.
pub(super) fn meets(filters: &[Filter], field: impl Fn(&str) -> Option<Vec<String>>) -> Result<bool, Refusal> {
    for Filter { name, values } in filters {
        let unknown = || Refusal::new("InvalidParameterValue", format!("The filter '{name}' is invalid"));
        let there = field(name).ok_or_else(unknown)?;
        if !there.iter().any(|there| values.iter().any(|pattern| matches(pattern, there))) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `*` stands for anything, `?` for one character, and a backslash takes the meaning of what follows away.
fn matches(pattern: &str, text: &str) -> bool {
    fn go(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['*', rest @ ..] => (0..=text.len()).any(|skipped| go(rest, &text[skipped..])),
            ['?', rest @ ..] => !text.is_empty() && go(rest, &text[1..]),
            ['\\', meant, rest @ ..] | [meant, rest @ ..] => text.first() == Some(meant) && go(rest, &text[1..]),
        }
    }
    go(&pattern.chars().collect::<Vec<_>>(), &text.chars().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_a_shell() {
        assert!(matches("a*c", "abbc") && matches("a?c", "abc") && matches("*", "") && matches(r"a\*c", "a*c"));
        assert!(!matches("a?c", "ac") && !matches(r"a\*c", "abc") && !matches("a", "A"));
    }
}
