//! `http_poke` and `asgard_poke`: tell somebody over HTTP that there are new images.
//!
//! Start with [`HttpPoke`]. Each call is two steps: `fill in` renders the templates, and `call` sends the request, a
//! mutation that may be repeated, since a second poke is as good as one that arrived twice. What is secret never gets into
//! either step: [`HttpCalls`], the registered kind, holds it and adds it on the way out.
//!
//! The journal keeps URL, headers and body as they were filled in; where a URL is shown, the values of its query are left
//! out. What must be in neither place belongs in `secret_headers`.
//!
//! The library is `reqwest`, since it is asynchronous: a call ends the moment its time is up, where `ureq` would leave a
//! thread behind that nobody can stop. Alone, on two cores, it builds in
//! 83 s with all that it needs, and `ureq` in 57 s. Cryptography is `ring`, which needs a C compiler and nothing more. Whom to
//! trust is what the system's certificates say (or `SSL_CERT_FILE`), so that a company's own authority works; a proxy is a
//! setting, since plugins do not read the environment.

mod address;
mod answer;
mod call;
mod error;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use bake_config::{PluginInfo, Stage, Text};
use bake_core::{BakeHandles, Finalizer, Image, Images, Needs, PlanError, Templates};
use bake_engine::{Handle, Steps};

pub use call::{HttpCalls, register};
pub use error::SettingsError;
pub use settings::{ASGARD_POKE, HTTP_POKE, HttpSettings, Method, Per};

use address::HostTemplate;
use call::HttpRequest;

/// Keys of the texts that are filled in.
const URL: &str = "url";
const HOST: &str = "url's host";
const BODY: &str = "body";

/// Calls a URL once the images are there.
pub struct HttpPoke {
    plugin: &'static PluginInfo,
    calls: HttpCalls,
    per: Per,
    texts: Filled,
    /// What is the same for every call.
    fixed: HttpRequest,
}

/// The texts that are filled in before a call.
struct Filled {
    url: Text,
    /// The part of the URL that says whom to call, where that is a template.
    host: Option<Text>,
    headers: BTreeMap<String, Text>,
    body: Option<Text>,
}

impl HttpPoke {
    /// Makes `http_poke` for its place in a set.
    pub fn new(place: &str, settings: HttpSettings, calls: &HttpCalls) -> Result<Self, SettingsError> {
        Self::build(&HTTP_POKE, place, settings, calls)
    }

    /// Makes `asgard_poke` for its place in a set.
    pub fn asgard(place: &str, settings: HttpSettings, calls: &HttpCalls) -> Result<Self, SettingsError> {
        Self::build(&ASGARD_POKE, place, settings, calls)
    }

    fn build(
        plugin: &'static PluginInfo,
        place: &str,
        settings: HttpSettings,
        calls: &HttpCalls,
    ) -> Result<Self, SettingsError> {
        settings.check(place)?;
        let HttpSettings { url, method, headers, secret_headers, body, per, expect, wait, proxy } = settings;
        let url = url.ok_or_else(|| SettingsError::MissingUrl { finalizer: place.into(), plugin: plugin.name })?;
        let host = match address::host_template(&url.text) {
            HostTemplate::Literal => None,
            HostTemplate::Filled(part) => Some(Text { text: part.to_owned(), origin: url.origin.clone() }),
        };
        calls.hold(place, secret_headers, proxy);
        let per = per.unwrap_or(settings::default_per(plugin));
        let fixed = HttpRequest {
            finalizer: place.to_owned(),
            method,
            url: String::new(),
            host: None,
            headers: BTreeMap::new(),
            body: None,
            expect,
            wait,
        };
        Ok(Self { plugin, calls: calls.clone(), per, texts: Filled { url, host, headers, body }, fixed })
    }

    /// Adds the two steps of a call.
    fn plan_call(
        &self,
        bake: &BakeHandles,
        steps: &mut Steps<'_>,
        image: Option<Handle<Image>>,
    ) -> Result<(), PlanError> {
        let filled = bake.fill_in(steps, image, self.texts.by_key())?;
        let text = |key: String| filled.at::<String>(format!("/{}", key.replace('~', "~0").replace('/', "~1")));
        let Filled { host, headers, body, .. } = &self.texts;
        let headers: BTreeMap<_, _> = headers.keys().map(|name| (name.clone(), text(header_key(name)))).collect();
        let host = host.as_ref().map(|_| text(HOST.into()));
        let body = body.as_ref().map(|_| text(BODY.into()));
        let fixed = self.fixed.clone();
        steps.step("call").needs((text(URL.into()), host, headers, body)).mutate(
            self.calls.kind(),
            move |(url, host, headers, body)| HttpRequest { url, host, headers, body, ..fixed.clone() },
        );
        Ok(())
    }
}

fn header_key(name: &str) -> String {
    format!("headers.{name}")
}

impl Filled {
    fn by_key(&self) -> BTreeMap<String, Text> {
        let one = |key: &str, text: &Text| (key.to_owned(), text.clone());
        let host = self.host.iter().map(|host| one(HOST, host));
        let headers = self.headers.iter().map(|(name, text)| one(&header_key(name), text));
        let body = self.body.iter().map(|body| one(BODY, body));
        [one(URL, &self.url)].into_iter().chain(host).chain(headers).chain(body).collect()
    }
}

impl Finalizer for HttpPoke {
    fn name(&self) -> &'static str {
        self.plugin.name
    }

    fn stage(&self) -> Stage {
        Stage::Notify
    }

    fn needs(&self) -> Needs {
        Needs { snapshot: false }
    }

    fn templates(&self) -> Templates {
        // The host is a part of the URL: a mistake in it need not be shown twice.
        let late = self.texts.by_key().into_iter().filter(|(key, _)| key != HOST).collect();
        Templates { late, ..Templates::default() }
    }

    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        match self.per {
            Per::Bake => self.plan_call(bake, steps, None)?,
            Per::Image => {
                for (name, &image) in &bake.images {
                    self.plan_call(bake, &mut steps.under(name), Some(image))?;
                }
            }
        }
        Ok(Images::new())
    }
}
