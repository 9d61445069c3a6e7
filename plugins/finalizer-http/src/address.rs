//! URLs: what of them may be shown, and which ones are refused.

use reqwest::Url;

/// What a secret looks like wherever it is shown.
pub(crate) const MASK: &str = "****";

/// How much of a text that is no URL an error shows, in characters.
const SHOWN: usize = 200;

const NO_USER: &str =
    "a user or a password in a URL ends up in logs; write `secret_headers: { Authorization: … }` instead";

/// Whom a URL template calls.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HostTemplate<'a> {
    /// Always the same one, or whomever one value says as a whole.
    Literal,
    /// One whose name is filled in: the template up to the path.
    Filled(&'a str),
}

/// Finds the scheme and host of a URL template, and whether values go into them.
pub(crate) fn host_template(template: &str) -> HostTemplate<'_> {
    match split(template) {
        Some((_, authority, before_path)) if authority.contains("{{") => HostTemplate::Filled(before_path),
        _ => HostTemplate::Literal,
    }
}

/// The scheme, what is between `//` and the path, and both together. None if it is not written but filled in.
fn split(template: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = template.split_once("://")?;
    if scheme.contains('{') {
        return None;
    }
    let mut end = 0;
    while let Some(next) = rest[end..].find(['/', '?', '#', '{']).map(|next| end + next) {
        let closing = match rest.get(next..next + 2) {
            Some("{{") => "}}",
            Some("{%") => "%}",
            Some("{#") => "#}",
            _ if rest[next..].starts_with('{') => "{",
            _ => return Some((scheme, &rest[..next], &template[..scheme.len() + 3 + next])),
        };
        end = rest[next..].find(closing).map_or(rest.len(), |at| next + at + closing.len());
    }
    Some((scheme, rest, template))
}

/// Refuses a template that can give no good URL.
pub(crate) fn check_template(template: &str) -> Result<(), String> {
    let Some((scheme, authority, _)) = split(template) else {
        return match template.contains("{{") {
            true => Ok(()),
            false => Err("it does not begin with `https://` or `http://`".to_owned()),
        };
    };
    if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
        return Err("it does not begin with `https://` or `http://`".to_owned());
    }
    if authority.contains("{%") {
        return Err("its host may hold `{{ … }}`, and no `{% … %}`".to_owned());
    }
    if authority.contains('@') {
        return Err(NO_USER.to_owned());
    }
    Ok(())
}

/// Reads a URL that was filled in, and refuses one that is not what its template promised. `host` is scheme and host alone,
/// filled in: a value in them that brought a `/` or an `@` along would send the call to somebody else.
pub(crate) fn parse(text: &str, host: Option<&str>) -> Result<Url, String> {
    let smuggled = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
    // The library takes some of these out and goes on with the rest.
    if let Some(found) = text.chars().find(|&c| smuggled(c)) {
        return Err(format!("it holds {found:?}; fill values in with `| urlencode`"));
    }
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err("it does not begin with `https://` or `http://`".to_owned());
    }
    if has_user(&url) {
        return Err(NO_USER.to_owned());
    }
    match host {
        Some(host) if !is_host_alone(host) => {
            Err(format!("a value in its host is not a part of a name: `{}`", shown_text(host)))
        }
        Some(_) | None => Ok(url),
    }
}

/// `https://name:port`, and nothing that ends the host before its end.
fn is_host_alone(host: &str) -> bool {
    let name = host.split_once("://").map_or("", |(_, name)| name);
    !name.is_empty() && !name.contains(['/', '?', '#', '\\', '@', '%'])
}

fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// The URL as it may be shown: without user, password, and the values of its query.
pub(crate) fn shown(url: &Url) -> String {
    let user = if has_user(url) { format!("{MASK}@") } else { String::new() };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let query = url.query().map(|query| format!("?{}", masked_query(query))).unwrap_or_default();
    format!("{}://{user}{}{port}{}{query}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

fn masked_query(query: &str) -> String {
    // What has no `=` may be a bare token.
    let masked = |pair: &str| pair.split_once('=').map_or(MASK.to_owned(), |(key, _)| format!("{key}={MASK}"));
    query.split('&').map(masked).collect::<Vec<_>>().join("&")
}

/// A text that is no URL, as far as it may be shown: what looks like user, password or query is left out.
pub(crate) fn shown_text(text: &str) -> String {
    let (before, query) = text.split_once('?').map_or((text, ""), |(before, _)| (before, "?****"));
    let before = match (before.split_once("://"), before.rfind('@')) {
        (Some((scheme, _)), Some(at)) if at > scheme.len() => format!("{scheme}://{MASK}{}", &before[at..]),
        (None, Some(at)) => format!("{MASK}{}", &before[at..]),
        _ => before.to_owned(),
    };
    let shown: String = before.escape_debug().take(SHOWN).collect();
    format!("{shown}{query}")
}

/// The values of a query, as they are written and as they are meant.
pub(crate) fn query_values(url: &Url) -> impl Iterator<Item = String> {
    let query = url.query().unwrap_or_default();
    let written = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value).to_owned());
    written.chain(url.query_pairs().map(|(_, value)| value.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template_host(template: &str) -> Option<&str> {
        match host_template(template) {
            HostTemplate::Literal => None,
            HostTemplate::Filled(part) => Some(part),
        }
    }

    #[test]
    fn the_host_of_a_template_is_found_before_its_path() {
        assert_eq!(template_host("https://asgard/{{ region }}/image"), None);
        assert_eq!(template_host("{{ vars.asgard }}/{{ region }}"), None);
        let filled = "https://asgard.{{ region | default('/?') }}.example.com";
        assert_eq!(template_host(filled), Some(filled));
        assert_eq!(template_host(&format!("{filled}/a/{{{{ b }}}}")), Some(filled));
        assert_eq!(template_host(&format!("{filled}?a={{{{ b }}}}")), Some(filled));
        assert_eq!(template_host("https://a{b.{{ c }}/d"), Some("https://a{b.{{ c }}"));
        assert_eq!(template_host("https://a.{{ b"), Some("https://a.{{ b"), "the mistake is shown when it is checked");
    }

    #[test]
    fn a_value_in_the_host_cannot_send_the_call_elsewhere() {
        let parse = |value: &str| parse(&format!("https://a.{value}.com/p"), Some(&format!("https://a.{value}.com")));
        assert!(parse("eu-west-1").is_ok());
        for value in ["evil.com/", "evil.com?", "evil.com#", "@evil.com", "evil.com:1\\", "b%2f", "b\n", "b c", "b\t"] {
            assert!(parse(value).is_err(), "{value:?} got through");
        }
        insta::assert_snapshot!(parse("x@evil.com/?key=secret").unwrap_err(), @"a user or a password in a URL ends up in logs; write `secret_headers: { Authorization: … }` instead");
        insta::assert_snapshot!(parse("evil.com/?key=secret").unwrap_err(), @"a value in its host is not a part of a name: `https://a.evil.com/?****`");
    }

    #[test]
    fn urls_are_shown_without_what_may_be_secret() {
        let shown = |url: &str| shown(&Url::parse(url).unwrap());
        assert_eq!(shown("https://ann:pw@host:8443/a?token=abc&b#c"), "https://****@host:8443/a?token=****&****");
        assert_eq!(shown("http://host"), "http://host/");
        assert_eq!(shown("http://[::1]:80/a?x="), "http://[::1]/a?x=****");
        assert_eq!(shown_text("htp//ann:pw@host\n/a?token=abc"), "****@host\\n/a?****");
        assert_eq!(shown_text("https://ann:pw@host:port/a"), "https://****@host:port/a");
    }

    #[test]
    fn templates_that_can_give_no_good_url_are_refused() {
        let refused = |template| check_template(template).unwrap_err();
        assert_eq!(check_template("{{ vars.url }}"), Ok(()));
        assert_eq!(check_template("HTTPS://host/{% if x %}a{% endif %}"), Ok(()));
        insta::assert_snapshot!(refused("host/path"), @"it does not begin with `https://` or `http://`");
        insta::assert_snapshot!(refused("file:///etc/shadow"), @"it does not begin with `https://` or `http://`");
        insta::assert_snapshot!(refused("https://a{% if x %}b{% endif %}/"), @"its host may hold `{{ … }}`, and no `{% … %}`");
        insta::assert_snapshot!(refused("https://{{ vars.user }}:pw@host/"), @"a user or a password in a URL ends up in logs; write `secret_headers: { Authorization: … }` instead");
    }
}
