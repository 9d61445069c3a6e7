//! Text of strangers: package names, region names, what programs print. Nothing of it may leave its quotes.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Longest line of a tooltip, in columns. Errors quote what programs print, and that may be a whole page.
const TOOLTIP_COLUMNS: usize = 240;

/// Returns the text as one line: without terminal escapes, control characters and marks that turn the direction of text.
pub(crate) fn one_line(text: &str) -> String {
    let plain = without_escapes(text);
    plain.split(is_odd).flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// Returns the lines of a tooltip: as many as there are, each clean and of bearable length.
pub(crate) fn tooltip_lines(text: &str) -> impl Iterator<Item = String> {
    let plain = without_escapes(text);
    let lines: Vec<_> = plain.lines().map(|line| cut(&one_line(line), TOOLTIP_COLUMNS)).collect();
    lines.into_iter().filter(|line| !line.is_empty())
}

/// Cuts a line to a number of columns, with an ellipsis if something is missing.
pub(crate) fn cut(line: &str, columns: usize) -> String {
    if line.width() <= columns {
        return line.to_owned();
    }
    format!("{}…", fitting(line, columns.saturating_sub(1)).trim_end())
}

/// Breaks a line in two where a word ends, and cuts the second one.
pub(crate) fn wrap(line: &str, columns: usize) -> Vec<String> {
    if line.width() <= columns {
        return vec![line.to_owned()];
    }
    let head = fitting(line, columns);
    let end = head.rfind([' ', '-', '_', '/', '.', '=', ':']).map_or(head.len(), |at| at + 1);
    // A break that leaves a stub is worse than one inside a word.
    let end = if end * 3 < head.len() { head.len() } else { end };
    vec![line[..end].trim_end().to_owned(), cut(line[end..].trim_start(), columns)]
}

/// Returns how many columns a line takes.
pub(crate) fn columns(line: &str) -> usize {
    line.width()
}

fn fitting(line: &str, columns: usize) -> &str {
    let mut used = 0;
    let end = line.char_indices().find_map(|(at, char)| {
        used += char.width().unwrap_or(0);
        (used > columns).then_some(at)
    });
    &line[..end.unwrap_or(line.len())]
}

/// Says whether a character has no place in a picture: it cannot be seen, changes how its neighbours are seen, or is not
/// allowed in XML.
fn is_odd(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{fffe}' | '\u{ffff}')
}

/// Leaves out what a terminal would take as an order.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(char) = rest.next() {
        let kind = match char {
            '\u{1b}' => rest.next_if(|next| matches!(next, ' '..='~')),
            '\u{9b}' => Some('['),
            '\u{9d}' => Some(']'),
            other => {
                plain.push(other);
                None
            }
        };
        match kind {
            // A control sequence ends with a letter or one of a few signs.
            Some('[') => while rest.next_if(|next| matches!(next, ' '..='?')).is_some() {},
            // A title and its like ends with a bell or with another escape; so does one that the end of the line cut off.
            Some(']' | 'P' | 'X' | '^' | '_') => while rest.next_if(|next| !next.is_control()).is_some() {},
            // What selects a character set has one more sign.
            Some(' '..='/') => {}
            Some(_) | None => continue,
        }
        let _final = rest.next_if(|next| matches!(next, '@'..='~' | '0'..='9' | '\u{7}'));
    }
    plain
}

/// Escapes text for XML, inside an element or a quoted attribute.
pub(crate) fn xml(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// Quotes text for Graphviz. It reads entities inside of quotes, so `&` is escaped as well.
pub(crate) fn dot<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let mut quoted = String::from("\"");
    for (number, line) in lines.into_iter().enumerate() {
        if number > 0 {
            quoted.push_str("\\n");
        }
        for char in line.chars() {
            match char {
                '"' => quoted.push_str("\\\""),
                '\\' => quoted.push_str("\\\\"),
                '&' => quoted.push_str("&amp;"),
                other => quoted.push(other),
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Quotes text for mermaid. What is not surely harmless is written by its number: mermaid reads HTML, Markdown, and words
/// such as `end` in places where one would not think of it.
pub(crate) fn mermaid<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let mut quoted = String::from("\"");
    for (number, line) in lines.into_iter().enumerate() {
        if number > 0 {
            quoted.push_str("<br/>");
        }
        for (at, char) in line.char_indices() {
            // `1.` would begin a list, and so would `-`. The last three: mermaid writes entities with them for itself, and
            // would take them for its own.
            let safe = match char {
                '.' => !line[..at].bytes().all(|byte| byte.is_ascii_digit()),
                '-' => at > 0,
                ' ' | '_' | '/' | ',' | '…' | '·' => true,
                '\u{fb02}' | '°' | '¶' => false,
                other => other.is_alphanumeric() || crate::state::State::is_mark(other),
            };
            if safe { quoted.push(char) } else { quoted.push_str(&format!("#{};", u32::from(char))) }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_left_out() {
        assert_eq!(one_line("\u{1b}[1;31mred\u{1b}[0m and \u{1b}]0;title\u{7}plain\r\n\tend"), "red and plain end");
        assert_eq!(one_line("\u{9b}31mred\u{1b}(Bx\u{202e}turned\u{0}"), "redx turned");
        assert_eq!(one_line("\u{1b}"), "");
    }

    #[test]
    fn long_names_break_where_a_word_ends() {
        assert_eq!(wrap("register_image", 20), ["register_image"]);
        assert_eq!(wrap("helloworld-with-a-long-name", 16), ["helloworld-with-", "a-long-name"]);
        assert_eq!(wrap("abcdefghijklmnopqrstuvwxyz", 10), ["abcdefghij", "klmnopqrs…"]);
        assert_eq!(cut("画像を登録する", 7), "画像を…");
    }

    #[test]
    fn quotes_stay_shut() {
        assert_eq!(dot(["a\"b\\", "&lt;"]), r#""a\"b\\\n&amp;lt;""#);
        assert_eq!(mermaid(["end; #quot; \"", "1. <b>"]), "\"end#59; #35;quot#59; #34;<br/>1#46; #60;b#62;\"");
        assert_eq!(xml("</title><script a='\"'>"), "&lt;/title&gt;&lt;script a=&#39;&quot;&#39;&gt;");
    }
}
