//! What may be written about the two finalizers, and what is checked before anything begins.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bake_config::{Built, PluginInfo, PluginKind, Secret, Setting, Stage, Takes, Text};
use reqwest::header::HeaderName;
use serde::{Deserialize, Serialize};

use crate::address;
use crate::call::header_value;
use crate::error::SettingsError;

/// What may be written about `http_poke` in `environments.yaml`.
pub const HTTP_POKE: PluginInfo =
    info("http_poke", "Makes an HTTP call whose URL, headers and body are templates", &settings("bake"));

/// What may be written about `asgard_poke` in `environments.yaml`.
///
/// An image is as good without it, and nobody waits long for an Asgard that is down.
pub const ASGARD_POKE: PluginInfo = PluginInfo {
    usual: &[("optional", "true"), ("timeout", "1m")],
    ..info("asgard_poke", "Tells Netflix Asgard that there is a new image", &settings("image"))
};

const fn info(name: &'static str, summary: &'static str, settings: &'static [Setting]) -> PluginInfo {
    let (kind, stage) = (PluginKind::Finalizer, Some(Stage::Notify));
    PluginInfo {
        kind,
        name,
        version: env!("CARGO_PKG_VERSION"),
        summary,
        stage,
        settings,
        usual: &[],
        built: Built::Yes,
    }
}

const fn settings(per: &'static str) -> [Setting; 9] {
    const METHODS: Takes = Takes::OneOf(&["POST", "PUT", "GET", "PATCH", "DELETE"]);
    [
        setting(
            "url",
            Takes::Text,
            None,
            "Template of the URL, which must be set; `{{ value | urlencode }}` keeps a value one piece",
        ),
        setting("method", METHODS, Some("POST"), "What kind of call"),
        setting("headers", Takes::TextMap, None, "Headers: their names, and templates of their values"),
        setting(
            "secret_headers",
            Takes::Map(&Takes::Secret),
            None,
            "Headers that are sent as they are, and never shown or kept: `Authorization: Bearer …`",
        ),
        setting("body", Takes::Text, None, "Template of the body; its kind belongs in the header `Content-Type`"),
        setting(
            "per",
            Takes::OneOf(&["bake", "image"]),
            Some(per),
            "One call for the bake, or one for each image and copy",
        ),
        setting(
            "expect",
            Takes::List(&Takes::Integer),
            None,
            "Statuses that are a success; any from 200 to 299 if not set",
        ),
        setting(
            "wait",
            Takes::Duration,
            Some("10s"),
            "How long each call may take, from looking up the host to the end of the answer",
        ),
        setting("proxy", Takes::Secret, None, "URL of a proxy for these calls: `http://proxy.example.com:3128`"),
    ]
}

const fn setting(name: &'static str, takes: Takes, default: Option<&'static str>, summary: &'static str) -> Setting {
    Setting { name, takes, default, summary }
}

/// What a plugin does where nobody says how many calls it should make.
pub(crate) fn default_per(plugin: &PluginInfo) -> Per {
    if plugin.name == ASGARD_POKE.name { Per::Image } else { Per::Bake }
}

/// The settings of both plugins.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// Template of the URL.
    pub url: Option<Text>,
    /// What kind of call.
    pub method: Method,
    /// Templates of the headers' values.
    pub headers: BTreeMap<String, Text>,
    /// Values of headers, sent as they are.
    pub secret_headers: BTreeMap<String, Secret>,
    /// Template of the body.
    pub body: Option<Text>,
    /// How many calls; the plugin's own number if not set.
    pub per: Option<Per>,
    /// Statuses that are a success; any from 200 to 299 if there are none.
    pub expect: Vec<u16>,
    /// How long a call may take.
    pub wait: Duration,
    /// URL of a proxy.
    pub proxy: Option<Secret>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            url: None,
            method: Method::Post,
            headers: BTreeMap::new(),
            secret_headers: BTreeMap::new(),
            body: None,
            per: None,
            expect: Vec::new(),
            wait: Duration::from_secs(10),
            proxy: None,
        }
    }
}

/// The method of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `GET`
    Get,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
}

impl From<Method> for reqwest::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Post => Self::POST,
            Method::Put => Self::PUT,
            Method::Get => Self::GET,
            Method::Patch => Self::PATCH,
            Method::Delete => Self::DELETE,
        }
    }
}

/// How many calls a bake makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// One.
    Bake,
    /// One for each image that there is, copies included.
    Image,
}

/// Headers that say where a message ends, or whom a connection is for. Two opinions on that are how requests are smuggled.
const FRAMING: [&str; 5] = ["connection", "content-length", "te", "transfer-encoding", "upgrade"];

impl HttpSettings {
    /// Refuses what cannot work, whatever the templates give.
    pub(crate) fn check(&self, finalizer: &str) -> Result<(), SettingsError> {
        let wrong = |setting: &str, reason: String| SettingsError::Wrong {
            finalizer: finalizer.to_owned(),
            setting: setting.to_owned(),
            reason,
        };
        if let Some(url) = &self.url {
            address::check_template(&url.text).map_err(|reason| wrong("url", format!("{}: {reason}", url.origin)))?;
        }
        let mut names = HashSet::new();
        let headers = self.headers.keys().map(|name| ("headers", name));
        for (setting, name) in headers.chain(self.secret_headers.keys().map(|name| ("secret_headers", name))) {
            let known = HeaderName::from_bytes(name.as_bytes());
            let known = known.map_err(|_| wrong(setting, format!("{name:?} cannot be the name of a header")))?;
            if FRAMING.contains(&known.as_str()) {
                return Err(wrong(setting, format!("`{name}` is set by the HTTP library itself")));
            }
            if !names.insert(known) {
                return Err(wrong(setting, format!("`{name}` is there twice")));
            }
        }
        for (name, secret) in &self.secret_headers {
            let reason = || wrong("secret_headers", format!("the value of `{name}` holds a control character"));
            header_value(secret.expose()).ok_or_else(reason)?;
        }
        if let Some(status) = self.expect.iter().find(|status| !(200..600).contains(*status)) {
            return Err(wrong("expect", format!("`{status}` is not a status that ends a call, from 200 to 599")));
        }
        if self.wait.is_zero() {
            return Err(wrong("wait", "no call takes no time".to_owned()));
        }
        if let Some(proxy) = &self.proxy {
            // The library's own error would quote the secret.
            let bad = || wrong("proxy", "it is not a URL such as `http://proxy.example.com:3128`".to_owned());
            reqwest::Proxy::all(proxy.expose()).map_err(|_| bad())?;
        }
        Ok(())
    }
}
