//! What is sent, what is a success, and what people see if it is none.

use crate::support::{Answer, SECRET, Server, bake, fails, settings, told, wait};

use std::sync::{Arc, Mutex};

use bake_engine::{Class, Verdict};
use finalizer_http::HttpPoke;
use serde_json::json;

#[tokio::test]
async fn a_call_is_filled_in_and_carries_its_secret() {
    let server = Server::start(&[Answer::status(204, "")]).await;
    let more = json!({
        "method": "PUT", "headers": { "Content-Type": "text/plain" }, "body": "{{ image.name }} by {{ vars.creator }}",
    });
    let url = server.url("/{{ package.name }}?version={{ 'a b&c' | urlencode }}");
    let baked = bake(HttpPoke::new, settings(&url, more), |_| {}, 1).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
    let [request] = &server.requests()[..] else { panic!("{:?}", server.requests()) };
    assert!(request.starts_with("PUT /hello-bake?version=a%20b%26c HTTP/1.1\r\n"), "{request}");
    let has = |line: &str| request.to_ascii_lowercase().contains(&format!("\r\n{}\r\n", line.to_ascii_lowercase()));
    assert!(has("Content-Type: text/plain") && has(&format!("Authorization: Bearer {SECRET}")), "{request}");
    assert!(request.ends_with(&format!("{} by ann", baked.images[0].name)), "{request}");
    assert_eq!(baked.outcome.outputs["finalize/poke/call"], json!({ "status": 204 }));
}

#[tokio::test]
async fn each_image_gets_a_call_of_its_own_with_its_own_values() {
    let server = Server::start(&[Answer::status(200, "")]).await;
    let settings = settings(&server.url("/{{ region }}/{{ image.id }}"), json!({}));
    let baked = bake(HttpPoke::asgard, settings.clone(), |_| {}, 2).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
    let mut called: Vec<_> =
        server.requests().iter().map(|request| request.split(' ').nth(1).unwrap().to_owned()).collect();
    let mut wanted: Vec<_> = baked.images.iter().map(|image| format!("/{}/{}", image.region, image.id)).collect();
    called.sort();
    wanted.sort();
    assert_eq!((called.len(), called), (2, wanted));
    assert!(baked.began.contains(&"finalize/poke/fake-another/call".to_owned()), "{:?}", baked.began);
}

#[tokio::test]
async fn a_failure_that_does_not_matter_fails_no_bake() {
    let server = Server::start(&[Answer::status(404, "no such page")]).await;
    let settings = settings(&server.url("/"), json!({}));
    let baked = bake(HttpPoke::new, settings, |placed| placed.optional = true, 1).await;
    assert_eq!((baked.outcome.verdict, baked.images.len()), (Verdict::Done, 1));
    assert_eq!(baked.outcome.failures.len(), 0);
    let [warning] = &baked.outcome.warnings[..] else { panic!("{:?}", baked.outcome.warnings) };
    insta::assert_snapshot!(told(warning, &server), @"
    Permanent: cannot call `POST http://SERVER/`
    the server answered 404 Not Found
    | no such page
    hint: look at the path in `url`
    ");
}

#[tokio::test]
async fn what_may_pass_is_tried_again() {
    for first in
        [Answer::status(500, ""), Answer::status(503, ""), Answer::status(429, ""), Answer::HangsUp, Answer::BreaksOff]
    {
        let server = Server::start(&[first, Answer::status(200, "")]).await;
        let settings = settings(&server.url("/"), json!({}));
        let baked = bake(HttpPoke::new, settings, |placed| placed.retry = Some(1), 1).await;
        assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_server_that_is_down_for_long_is_not_waited_for_without_end() {
    let server = Server::start(&[Answer::status(503, "")]).await;
    let failure = fails(settings(&server.url("/"), json!({}))).await;
    insta::assert_snapshot!(told(&failure, &server), @"
    Transient: cannot call `POST http://SERVER/`
    the server answered 503 Service Unavailable
    ");
}

#[tokio::test]
async fn one_limit_holds_for_all_of_an_answer() {
    let half = Answer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345".to_vec());
    for answer in [Answer::Nothing, half] {
        let server = Server::start(&[answer]).await;
        let failure = fails(settings(&server.url("/"), json!({ "wait": wait(200) }))).await;
        assert_eq!(failure.class, Class::Transient, "{failure:?}");
    }
    let server = Server::start(&[Answer::Nothing]).await;
    let failure = fails(settings(&server.url("/"), json!({ "wait": wait(200) }))).await;
    insta::assert_snapshot!(told(&failure, &server), @"
    Transient: cannot call `POST http://SERVER/`
    no answer within 0.2s
    hint: if the server needs longer, set `wait`
    ");
}

#[tokio::test]
async fn an_endless_answer_is_read_up_to_a_limit() {
    let server = Server::start(&[Answer::Endless]).await;
    let baked = bake(HttpPoke::new, settings(&server.url("/"), json!({})), |_| {}, 1).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
}

#[tokio::test]
async fn what_is_no_answer_is_none() {
    let huge = format!("HTTP/1.1 200 OK\r\nX-Huge: {}\r\n\r\n", "x".repeat(8 << 20)).into_bytes();
    for answer in
        [Answer::Raw(huge), Answer::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()), Answer::HangsUp, Answer::BreaksOff]
    {
        let server = Server::start(&[answer]).await;
        let failure = fails(settings(&server.url("/"), json!({}))).await;
        assert_eq!(failure.class, Class::Transient, "{failure:?}");
        assert!(failure.error[1].starts_with("the answer was lost: "), "{failure:?}");
    }
}

#[tokio::test]
async fn nobody_there_is_said_with_the_reason() {
    let (server, listener) = Server::listen().await;
    drop(listener);
    let failure = fails(settings(&server.url("/?token=abc"), json!({}))).await;
    insta::assert_snapshot!(told(&failure, &server), @"
    Transient: cannot call `POST http://SERVER/?token=****`
    no connection: Connection refused (os error 111)
    ");
    let failure = fails(settings("http://no-such-host.invalid/", json!({}))).await;
    assert_eq!(failure.class, Class::Transient, "{failure:?}");
    assert!(failure.error[1].starts_with("no connection: "), "{failure:?}");
}

#[tokio::test]
async fn what_a_server_says_back_shows_no_secret() {
    let body = format!("\x1b[31mno!\r\nyou sent Bearer {SECRET}\nand {SECRET} and ?token=s3cr3t%2Fvalue, s3cr3t/value");
    let server = Server::start(&[Answer::status(403, &body)]).await;
    let failure = fails(settings(&server.url("/a?token=s3cr3t%2Fvalue"), json!({}))).await;
    insta::assert_snapshot!(told(&failure, &server), @"
    Permanent: cannot call `POST http://SERVER/a?token=****`
    the server answered 403 Forbidden
    | [31mno!
    | you sent ****
    | and **** and ?token=****, ****
    hint: look at `secret_headers`, where `Authorization` belongs
    ");
}

#[tokio::test]
async fn only_expected_statuses_are_a_success() {
    let server = Server::start(&[Answer::status(200, "queued")]).await;
    let failure = fails(settings(&server.url("/"), json!({ "expect": [201, 409] }))).await;
    insta::assert_snapshot!(told(&failure, &server), @"
    Permanent: cannot call `POST http://SERVER/`
    the server answered 200 OK
    | queued
    hint: if that is a success, add it to `expect`
    ");
    let server = Server::start(&[Answer::status(409, "")]).await;
    let baked = bake(HttpPoke::new, settings(&server.url("/"), json!({ "expect": [201, 409] })), |_| {}, 1).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
}

#[tokio::test]
async fn a_get_is_sent_on_by_its_own_server_only() {
    let get = json!({ "method": "GET" });
    let server = Server::start(&[Answer::to(302, "/b"), Answer::to(307, "/c"), Answer::status(200, "")]).await;
    let baked = bake(HttpPoke::new, settings(&server.url("/a"), get.clone()), |_| {}, 1).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
    assert!(server.requests()[2].starts_with("GET /c ") && server.requests()[2].contains(SECRET));

    let thief = Server::start(&[Answer::status(200, "")]).await;
    for location in [thief.url("/?token=abc"), format!("//{}/?token=abc", thief.address)] {
        let server = Server::start(&[Answer::to(302, &location)]).await;
        let failure = fails(settings(&server.url("/a"), get.clone())).await;
        let told = told(&failure, &server).replace(&thief.address.to_string(), "THIEF");
        insta::allow_duplicates!(insta::assert_snapshot!(told, @"
        Permanent: cannot call `GET http://SERVER/a`
        the server sends the call on to `http://THIEF/?token=****` with 302 Found, and that is another server
        hint: set `url` to where the call should end
        "));
    }
    assert_eq!(thief.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_redirect_loop_ends() {
    let server = Server::start(&[Answer::to(302, "/again")]).await;
    let failure = fails(settings(&server.url("/"), json!({ "method": "GET" }))).await;
    assert_eq!(server.requests().len(), 6);
    insta::assert_snapshot!(told(&failure, &server), @"
    Permanent: cannot call `GET http://SERVER/`
    the server sends the call on and on, at last to `http://SERVER/again`
    hint: set `url` to where the call should end
    ");
}

#[tokio::test]
async fn a_post_is_not_sent_on() {
    let server = Server::start(&[Answer::to(301, "/there/?key=1")]).await;
    let failure = fails(settings(&server.url("/there"), json!({}))).await;
    assert_eq!(server.requests().len(), 1);
    insta::assert_snapshot!(told(&failure, &server), @"
    Permanent: cannot call `POST http://SERVER/there`
    the server sends the call on to `http://SERVER/there/?key=****` with 301 Moved Permanently, and only `GET` is sent on
    hint: set `url` to where the call should end
    ");
}

#[tokio::test]
async fn values_cannot_smuggle_headers_in() {
    let server = Server::start(&[Answer::status(200, "")]).await;
    let more = json!({ "headers": { "X-Version": "{{ '1.0\r\nX-Admin: yes' }}" } });
    let failure = fails(settings(&server.url("/"), more)).await;
    insta::assert_snapshot!(told(&failure, &server), @"
    Permanent: cannot call `POST http://SERVER/`
    the header `X-Version` got a value with a control character
    hint: look at the template in `headers`, and at the values that it takes
    ");
    let failure = fails(settings(&server.url("/{{ 'a b' }}?token={{ 'abc' }}"), json!({}))).await;
    insta::assert_snapshot!(told(&failure, &server), @"
    Permanent: cannot call `POST http://SERVER/a%20b?token=****`
    its URL was refused: it holds ' '; fill values in with `| urlencode`
    ");
    let failure = fails(settings("{{ 'http://ann:pw@' }}host/", json!({}))).await;
    insta::assert_snapshot!(told(&failure, &server), @"
    Permanent: cannot call `POST http://****@host/`
    its URL was refused: a user or a password in a URL ends up in logs; write `secret_headers: { Authorization: … }` instead
    ");
    assert_eq!(server.requests(), Vec::<String>::new(), "nothing is sent before all is checked");
}

#[tokio::test]
async fn values_in_the_host_send_the_call_where_they_should() {
    let server = Server::start(&[Answer::status(200, "")]).await;
    let port = server.address.port();
    let sent = settings(&format!("http://{{{{ '127' }}}}.0.0.1:{port}/"), json!({}));
    let baked = bake(HttpPoke::new, sent, |_| {}, 1).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
    let failure = fails(settings(&format!("http://{{{{ '127.0.0.1:{port}/' }}}}.example.com/"), json!({}))).await;
    insta::assert_snapshot!(told(&failure, &server), @"
    Permanent: cannot call `POST http://SERVER/.example.com/`
    its URL was refused: a value in its host is not a part of a name: `http://SERVER/.example.com`
    ");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_proxy_gets_the_call_if_there_is_one() {
    let proxy = Server::start(&[Answer::status(200, "")]).await;
    let through = settings("http://asgard.example.com/", json!({ "proxy": proxy.url("") }));
    let baked = bake(HttpPoke::new, through, |_| {}, 1).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
    assert!(proxy.requests()[0].starts_with("POST http://asgard.example.com/ HTTP/1.1\r\n"));
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_most_talkative_log_holds_no_secret() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let server = Server::start(&[Answer::to(302, "/b?token=s3cr3t"), Answer::status(200, "")]).await;
    let settings = settings(&server.url("/?token=s3cr3t"), json!({ "method": "GET" }));
    let baked = bake(HttpPoke::new, settings, |_| {}, 1).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("sent on by the same server"), "nothing was logged");
    assert!(!log.contains(SECRET) && !log.contains("s3cr3t"), "{log}");
}
