//! A server that answers as it is told, and bakes that poke it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bake_core::{Finalizer, FinalizerUse, OnFailure};
use bake_engine::{Cancel, Mutations, StepFailure};
use bake_testing::fake::{Baked, FakeFinalizer, Fakes};
use finalizer_http::{HttpCalls, HttpPoke, HttpSettings, SettingsError, register};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

/// What the server does with a request.
#[derive(Clone)]
pub(crate) enum Answer {
    /// A status, lines of headers, and a body.
    Status(u16, String, String),
    /// Says nothing for a long time.
    Nothing,
    /// Promises more than it sends, and hangs up.
    BreaksOff,
    /// Hangs up at once.
    HangsUp,
    /// A body that does not end.
    Endless,
    /// Bytes that are no HTTP.
    Raw(Vec<u8>),
}

impl Answer {
    pub(crate) fn status(status: u16, body: &str) -> Self {
        Self::Status(status, String::new(), body.to_owned())
    }

    pub(crate) fn to(status: u16, location: &str) -> Self {
        Self::Status(status, format!("Location: {location}\r\n"), String::new())
    }
}

/// What it answers, in order.
type Script = Arc<Mutex<VecDeque<Answer>>>;

/// A server on this machine, until the test ends. The last answer is given again and again.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) async fn start(answers: &[Answer]) -> Self {
        let (server, listener) = Self::listen().await;
        let (answers, recorder) = (Self::script(answers), server.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(recorder.clone().serve(stream, answers.clone()));
            }
        });
        server
    }

    pub(crate) fn script(answers: &[Answer]) -> Script {
        Arc::new(Mutex::new(answers.to_vec().into()))
    }

    pub(crate) async fn listen() -> (Self, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        (Self { address: listener.local_addr().unwrap(), requests: Arc::default() }, listener)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far, heads and bodies as they came.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) async fn serve(self, mut stream: impl AsyncRead + AsyncWrite + Unpin, answers: Script) {
        let Some(request) = read_request(&mut stream).await else { return };
        self.requests.lock().unwrap().push(request);
        let answer = {
            let mut answers = answers.lock().unwrap();
            let next = answers.pop_front().unwrap_or_else(|| Answer::status(200, ""));
            if answers.is_empty() {
                answers.push_back(next.clone());
            }
            next
        };
        give(&mut stream, answer).await;
        let _ = stream.shutdown().await;
    }
}

async fn give(stream: &mut (impl AsyncWrite + Unpin), answer: Answer) {
    let bytes = match answer {
        Answer::Status(status, headers, body) => {
            format!("HTTP/1.1 {status} \r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
        }
        Answer::BreaksOff => b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this".to_vec(),
        Answer::HangsUp => return,
        Answer::Raw(bytes) => bytes,
        Answer::Nothing => return tokio::time::sleep(Duration::from_secs(60)).await,
        Answer::Endless => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            while stream.write_all(&[b'x'; 8192]).await.is_ok() {}
            return;
        }
    };
    let _ = stream.write_all(&bytes).await;
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_ascii_lowercase()
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ").map(|length| length.parse::<usize>().unwrap()));
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
}

/// Whatever is in here must be seen by the server and by nobody else.
pub(crate) const SECRET: &str = "hunter22-hunter22";

/// Settings as a file would have them, with a secret header.
pub(crate) fn settings(url: &str, more: Value) -> HttpSettings {
    let mut settings = json!({ "url": url, "secret_headers": { "Authorization": format!("Bearer {SECRET}") } });
    let more = more.as_object().unwrap().clone();
    settings.as_object_mut().unwrap().extend(more);
    serde_json::from_value(settings).unwrap()
}

pub(crate) fn wait(milliseconds: u64) -> Value {
    json!({ "secs": milliseconds / 1000, "nanos": milliseconds % 1000 * 1_000_000 })
}

pub(crate) type Make = fn(&str, HttpSettings, &HttpCalls) -> Result<HttpPoke, SettingsError>;

pub(crate) fn fakes() -> Fakes {
    Fakes::new().registering(|mutations| drop(register(mutations)))
}

/// Bakes one image (and another one, if told so) and pokes as the place `poke`. The secret is in nothing that stays.
pub(crate) async fn bake(make: Make, settings: HttpSettings, lay: impl Fn(&mut FinalizerUse), images: usize) -> Baked {
    let calls = register(&mut Mutations::new());
    let poke: Arc<dyn Finalizer> = Arc::new(make("poke", settings, &calls).unwrap());
    let bake = fakes().bake(&["hello-bake"], &|cloud| {
        let mut register = vec![FakeFinalizer::register(cloud)?.placed()];
        if images == 2 {
            register.push(FakeFinalizer::register_another(cloud)?.placed());
        }
        let mut placed = FinalizerUse::new("poke", Arc::clone(&poke));
        placed.retry = Some(0);
        lay(&mut placed);
        Ok(vec![register, vec![placed]])
    });
    let baked = fakes().run(bake.unwrap(), Cancel::new(), OnFailure::TakeBack).await;
    let journal = baked.journal();
    let events = format!("{:?}", journal.events(&baked.outcome.run).unwrap());
    assert!(!events.contains(SECRET), "the secret is in an event");
    let folder = journal.path().parent().unwrap();
    let files = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
    let written = files.collect::<Vec<_>>().concat();
    let holds = |text: &str| written.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("finalize/poke/"), "this is no journal");
    assert!(!holds(SECRET), "the secret is in the journal");
    assert!(!format!("{:?}", baked.outcome).contains(SECRET), "the secret is in the outcome");
    baked
}

/// Pokes once and returns why that failed.
pub(crate) async fn fails(settings: HttpSettings) -> StepFailure {
    let baked = bake(HttpPoke::new, settings, |_| {}, 1).await;
    let [failure] = &baked.outcome.failures[..] else { panic!("{:?}", baked.outcome.failures) };
    failure.clone()
}

/// An error as people see it, with the port of the server taken out.
pub(crate) fn told(failure: &StepFailure, server: &Server) -> String {
    let hint = failure.hint.iter().map(|hint| format!("hint: {hint}"));
    let details = failure.details.iter().map(|line| format!("| {line}"));
    let lines: Vec<_> = failure.error.iter().cloned().chain(details).chain(hint).collect();
    format!("{:?}: {}", failure.class, lines.join("\n")).replace(&server.address.to_string(), "SERVER")
}
