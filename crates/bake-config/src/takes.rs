//! Whether a value is what its setting takes, and what to write if it is not.

use crate::catalog::Takes;
use crate::de::is_integer;
use crate::error::{ConfigError, closest};
use crate::node::{Node, Table, Value};
use crate::values::{ByteSize, parse_duration};

/// Checks one value against what its setting takes. `Null` is always fine: it takes the value away.
pub(crate) fn check_value(takes: Takes, node: &Node, key: &str, errors: &mut Vec<ConfigError>) {
    match (takes, &node.value) {
        (_, Value::Null) => {}
        (Takes::List(item), Value::List(items)) => {
            for node in items {
                check_item(*item, node, key, errors);
            }
        }
        (Takes::TextMap, Value::Table(table)) => check_map(Takes::Text, table, key, errors),
        (Takes::Map(value), Value::Table(table)) => check_map(*value, table, key, errors),
        (_, Value::Scalar { text, .. }) => {
            if let Err(hint) = check_text(takes, text) {
                let error =
                    ConfigError::new(&node.origin, format!("`{key}` is {}; it takes {takes}", quote(takes, text)));
                errors.push(error.hint(hint.unwrap_or_else(|| example(takes))));
            }
        }
        (_, Value::List(_) | Value::Table(_)) => {
            let error = ConfigError::new(&node.origin, format!("`{key}` is {}; it takes {takes}", node.what()));
            errors.push(error.hint(example(takes)));
        }
    }
}

/// What was written, unless it may be a secret in the wrong place.
fn quote(takes: Takes, text: &str) -> String {
    match takes {
        Takes::List(inner) | Takes::Map(inner) => quote(*inner, text),
        Takes::Secret => "a text".to_owned(),
        _ => format!("`{text}`"),
    }
}

fn check_item(takes: Takes, node: &Node, key: &str, errors: &mut Vec<ConfigError>) {
    match node.value {
        Value::Null => {
            let error = ConfigError::new(&node.origin, format!("an item of `{key}` is empty"));
            errors.push(error.hint("take it out; an empty text is `\"\"`"));
        }
        Value::Scalar { .. } | Value::List(_) | Value::Table(_) => check_value(takes, node, key, errors),
    }
}

fn check_map(takes: Takes, table: &Table, key: &str, errors: &mut Vec<ConfigError>) {
    for (name, entry) in table.iter() {
        check_value(takes, &entry.node, &format!("{key}.{name}"), errors);
    }
}

/// Whether a text is what the setting takes; if not, with a hint where there is one.
fn check_text(takes: Takes, text: &str) -> Result<(), Option<String>> {
    let (fits, hint) = match takes {
        Takes::Text | Takes::Secret => (true, None),
        Takes::Boolean => (matches!(text, "true" | "false"), boolean_hint(text)),
        Takes::Integer => (is_integer(text), integer_hint(text)),
        // No time at all is never meant: what takes none of it cannot be done.
        Takes::Duration => (parse_duration(text).is_some_and(|time| !time.is_zero()), unit_hint(text, ["s", "m", "h"])),
        Takes::Size => (text.parse::<ByteSize>().is_ok(), unit_hint(text, ["MiB", "GiB", "GB"])),
        Takes::AccountId => (is_account_id(text), account_hint(text)),
        Takes::OneOf(words) => {
            (words.contains(&text), closest(text, words).map(|word| format!("did you mean `{word}`?")))
        }
        Takes::List(Takes::Secret) => (false, None),
        Takes::List(_) => (false, Some(format!("write a list: `[{text}]`"))),
        Takes::TextMap | Takes::Map(_) => (false, None),
    };
    if fits { Ok(()) } else { Err(hint) }
}

/// What a value could look like, where nothing better is known.
fn example(takes: Takes) -> String {
    match takes {
        Takes::Text | Takes::Secret => "write one text; quote it if it starts with `[` or `{`".to_owned(),
        Takes::Boolean => "write `true` or `false`".to_owned(),
        Takes::Integer => "write a number in decimal digits, such as `3`".to_owned(),
        Takes::Duration => "write a whole number and a unit: s, m, h, d".to_owned(),
        Takes::Size => "write a whole number and a unit: kB, MB, GB, TB, KiB, MiB, GiB, TiB".to_owned(),
        Takes::AccountId => "write all 12 digits, leading zeros included".to_owned(),
        Takes::OneOf(words) => format!("write `{}`", words.join("` or `")),
        Takes::List(_) => "write a list: `[ITEM]`".to_owned(),
        Takes::TextMap => "write a table: `{ KEY: TEXT }`".to_owned(),
        Takes::Map(_) => "write a table: `{ KEY: VALUE }`".to_owned(),
    }
}

fn boolean_hint(text: &str) -> Option<String> {
    match text.to_lowercase().as_str() {
        "true" | "yes" | "y" | "on" | "1" => Some("did you mean `true`?".to_owned()),
        "false" | "no" | "n" | "off" | "0" => Some("did you mean `false`?".to_owned()),
        _ => None,
    }
}

fn integer_hint(text: &str) -> Option<String> {
    let digits = text.trim_start_matches('0');
    let leading_zeros = digits.len() < text.len() && is_integer(digits);
    leading_zeros.then(|| format!("write it without the leading zeros: `{digits}`"))
}

fn unit_hint(text: &str, units: [&str; 3]) -> Option<String> {
    let number = text.trim();
    let bare = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    bare.then(|| format!("say the unit: {}", units.map(|unit| format!("`{number}{unit}`")).join(", ")))
}

fn is_account_id(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn account_hint(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    match digits.len() {
        12 if is_account_id(&digits) => Some(format!("did you mean `{digits}`?")),
        1..=11 if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(format!("was a leading zero lost? `{digits:0>12}`"))
        }
        _ => None,
    }
}
