//! The call itself, as a mutation of the kind `http.call`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bake_config::Secret;
use bake_engine::{Calls, Found, Keep, Mutation, MutationKind, Mutations, Op, Resend, StepContext, StepResult, Undone};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Response, StatusCode, Url};
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use crate::address;
use crate::answer::{self, Secrets};
use crate::error::{CallError, Trouble};
use crate::settings::Method;

/// Times that a `GET` is sent on by its own server. More is a loop.
const MOST_REDIRECTS: usize = 5;

/// One call, as the journal keeps it: everything but the secrets.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct HttpRequest {
    /// The place of the finalizer, whose secrets are added when it is sent.
    pub(crate) finalizer: String,
    pub(crate) method: Method,
    pub(crate) url: String,
    /// Scheme and host alone, where values were filled into them.
    pub(crate) host: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<String>,
    /// Statuses that are a success; any from 200 to 299 if there are none.
    pub(crate) expect: Vec<u16>,
    pub(crate) wait: Duration,
}

/// What a call got back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HttpAnswer {
    status: u16,
}

/// The registered kind of call, and the secrets that it adds. Each finalizer leaves its own here, under its place.
#[derive(Clone)]
pub struct HttpCalls {
    kind: MutationKind<HttpRequest, HttpAnswer>,
    held: Arc<Held>,
}

/// What no journal gets to see.
#[derive(Default)]
struct Held {
    by_place: Mutex<BTreeMap<String, Private>>,
    tls: OnceCell<ClientConfig>,
}

#[derive(Clone)]
struct Private {
    headers: BTreeMap<String, Secret>,
    proxy: Option<Secret>,
}

/// Registers the kind of change that both finalizers make. To take back what a run made, that is enough: a call cannot be.
pub fn register(mutations: &mut Mutations) -> HttpCalls {
    let held = Arc::<Held>::default();
    HttpCalls { kind: mutations.register(HttpCall(Arc::clone(&held))), held }
}

impl HttpCalls {
    pub(crate) fn kind(&self) -> &MutationKind<HttpRequest, HttpAnswer> {
        &self.kind
    }

    /// Keeps the secrets of a finalizer; a later one at the same place takes over.
    pub(crate) fn hold(&self, place: &str, headers: BTreeMap<String, Secret>, proxy: Option<Secret>) {
        let mut by_place = self.held.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        by_place.insert(place.to_owned(), Private { headers, proxy });
    }
}

impl Held {
    fn private(&self, place: &str) -> Result<Private, Trouble> {
        let by_place = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        by_place
            .get(place)
            .cloned()
            .ok_or_else(|| Trouble::Process(format!("it does not hold the secrets of `{place}`")))
    }

    /// A client for one call. It keeps no connection: the next call is minutes away, or a retry that wants a fresh one.
    async fn client(&self, proxy: Option<&Secret>) -> Result<Client, Trouble> {
        let tls = self.tls.get_or_try_init(trust).await?.clone();
        let mut client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(0)
            .user_agent(concat!("bake/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(tls);
        if let Some(proxy) = proxy {
            client = client.proxy(reqwest::Proxy::all(proxy.expose())?);
        }
        Ok(client.build()?)
    }
}

/// Trusts whom the system trusts. A system without certificates can still call `http://`.
async fn trust() -> Result<ClientConfig, Trouble> {
    let failed = |error: &dyn std::error::Error| Trouble::Process(error.to_string());
    let found = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs).await;
    let found = found.map_err(|error| failed(&error))?;
    for error in &found.errors {
        tracing::debug!(%error, "a certificate of this system cannot be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(versions.map_err(|error| failed(&error))?.with_root_certificates(roots).with_no_client_auth())
}

/// Reads the value of a header. None if it holds a control character, which could begin another header.
pub(crate) fn header_value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_bytes(text.as_bytes()).ok().filter(|_| !text.contains('\t'))
}

/// The mutation: sends what the journal holds, and the secrets of its finalizer.
struct HttpCall(Arc<Held>);

impl Mutation for HttpCall {
    type Request = HttpRequest;
    type Made = HttpAnswer;
    type Result = HttpAnswer;

    fn name(&self) -> &'static str {
        "http.call"
    }

    fn calls(&self) -> Calls {
        Calls { send: &["HTTP call"], settle: &[], undo: &[] }
    }

    fn keep(&self) -> Keep {
        Keep::NothingToUndo
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    async fn send(&self, _: &Op, request: &HttpRequest) -> StepResult<HttpAnswer> {
        let method = reqwest::Method::from(request.method);
        let sent = async {
            let url = address::parse(&request.url, request.host.as_deref()).map_err(Trouble::Url)?;
            let private = self.0.private(&request.finalizer)?;
            let headers = headers(request, &private)?;
            let client = self.0.client(private.proxy.as_ref()).await?;
            let secrets = secrets(&private, &url);
            let call = Call { client, request, headers, secrets };
            // One limit around all of it: redirects, and a body that comes in drops.
            let answered = tokio::time::timeout(request.wait, call.follow(url)).await;
            answered.unwrap_or(Err(Trouble::TooSlow(request.wait)))
        };
        let shown = || match Url::parse(&request.url) {
            Ok(url) => address::shown(&url),
            Err(_) => address::shown_text(&request.url),
        };
        Ok(sent.await.map_err(|trouble| CallError { call: format!("{method} {}", shown()), trouble })?)
    }

    /// Nobody can ask a server whether it was poked; it is poked again.
    async fn find(&self, _: &Op, _: &HttpRequest) -> StepResult<Found<HttpAnswer>> {
        Ok(Found::Absent)
    }

    async fn settle(&self, _: &StepContext, _: &HttpRequest, made: &HttpAnswer) -> StepResult<HttpAnswer> {
        Ok(made.clone())
    }

    async fn undo(&self, _: &Op, _: &HttpAnswer) -> StepResult<Undone> {
        Ok(Undone::Gone)
    }
}

/// All headers, once each of them is known to be one and no more.
fn headers(request: &HttpRequest, private: &Private) -> Result<HeaderMap, Trouble> {
    let open = request.headers.iter().map(|(name, value)| (name, value.as_str(), false));
    let secret = private.headers.iter().map(|(name, value)| (name, value.expose(), true));
    let mut headers = HeaderMap::new();
    for (name, value, is_secret) in open.chain(secret) {
        let refused = || Trouble::Header(name.clone());
        let mut value = header_value(value).ok_or_else(refused)?;
        value.set_sensitive(is_secret);
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?, value);
    }
    Ok(headers)
}

fn secrets(private: &Private, url: &Url) -> Secrets {
    let headers = private.headers.values().map(|secret| secret.expose().to_owned());
    Secrets::new(headers.chain(address::query_values(url)))
}

/// A call that is checked and on its way.
struct Call<'a> {
    client: Client,
    request: &'a HttpRequest,
    headers: HeaderMap,
    secrets: Secrets,
}

impl Call<'_> {
    /// Sends it, and follows where a `GET` is sent on to, as long as that is the same server: whoever else it is must not get
    /// the secrets, and nobody may read them on the way.
    async fn follow(&self, mut url: Url) -> Result<HttpAnswer, Trouble> {
        for _ in 0..=MOST_REDIRECTS {
            let mut response = self.once(&url).await?;
            let status = response.status();
            if self.is_good(status) {
                // An answer that breaks off may be that of something in between.
                answer::read(&mut response).await?;
                return Ok(HttpAnswer { status: status.as_u16() });
            }
            let Some(to) = location(&response, &url) else {
                let body = answer::read(&mut response).await?;
                return Err(Trouble::Answered { status, body: answer::first_lines(&body, &self.secrets) });
            };
            let elsewhere = |why| Trouble::Elsewhere { status, to: self.secrets.mask(&address::shown(&to)), why };
            if self.request.method != Method::Get {
                return Err(elsewhere("only `GET` is sent on"));
            }
            if to.origin() != url.origin() || address::parse(to.as_str(), None).is_err() {
                return Err(elsewhere("that is another server"));
            }
            tracing::debug!(status = status.as_u16(), "sent on by the same server");
            url = to;
        }
        Err(Trouble::TooManyRedirects(self.secrets.mask(&address::shown(&url))))
    }

    async fn once(&self, url: &Url) -> Result<Response, Trouble> {
        let request = self.client.request(self.request.method.into(), url.clone()).headers(self.headers.clone());
        let request = match &self.request.body {
            Some(body) => request.body(body.clone()),
            None => request,
        };
        Ok(request.send().await?)
    }

    fn is_good(&self, status: StatusCode) -> bool {
        let expect = &self.request.expect;
        if expect.is_empty() { status.is_success() } else { expect.contains(&status.as_u16()) }
    }
}

/// Where a redirect leads.
fn location(response: &Response, from: &Url) -> Option<Url> {
    let followed = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| followed)?;
    from.join(location.to_str().ok()?).ok()
}
