//! Whom a call trusts.

use std::process::Stdio;
use std::sync::Arc;

use bake_engine::Verdict;
use finalizer_http::HttpPoke;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::support::{Answer, SECRET, Server, bake, fails, settings, told};

/// A server whose certificate nobody but itself signed, for this name; and the certificate.
async fn start(name: &str) -> (Server, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (server, listener) = Server::listen().await;
    let recorder = server.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                recorder.clone().serve(stream, Server::script(&[Answer::status(200, "")])).await;
            }
        }
    });
    (server, made.cert.pem())
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_gets_no_secret() {
    let (server, _) = start("127.0.0.1").await;
    let failure = fails(settings(&format!("https://{}/", server.address), json!({}))).await;
    insta::assert_snapshot!(told(&failure, &server), @"
    Permanent: cannot call `POST https://SERVER/`
    the server is not trusted: no authority that this system knows signed its certificate
    hint: if an authority of your own signed the certificate, add that to the certificates of this system
    ");
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_server_without_tls_is_no_matter_of_trust() {
    let (server, listener) = Server::listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream.read_to_end(&mut Vec::new()).await
    });
    let failure = fails(settings(&format!("https://{}/", server.address), json!({}))).await;
    insta::assert_snapshot!(told(&failure, &server), @"
    Permanent: cannot call `POST https://SERVER/`
    no agreement on encryption: received corrupt message of type InvalidContentType
    hint: look whether the server takes `https://` at this port
    ");
}

/// The certificates of the system are read from where it says, which a test can change only for another process.
#[tokio::test]
async fn an_authority_of_the_system_is_trusted_for_its_own_names() {
    for (name, outcome) in [("127.0.0.1", "calls"), ("asgard.example.com", "refuses")] {
        let (server, certificate) = start(name).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("certificates.pem");
        std::fs::write(&file, certificate).unwrap();
        let test = format!("tls::a_child_{outcome}_the_server");
        let child = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &test, "--ignored"])
            .env("SSL_CERT_FILE", file)
            .env("SERVER", server.address.to_string())
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
        let got_secret = server.requests().iter().any(|request| request.contains(SECRET));
        assert_eq!(got_secret, outcome == "calls");
    }
}

fn server_of_parent() -> String {
    format!("https://{}/", std::env::var("SERVER").expect("another test runs this one"))
}

#[tokio::test]
#[ignore = "a part of another test"]
async fn a_child_calls_the_server() {
    let baked = bake(HttpPoke::new, settings(&server_of_parent(), json!({})), |_| {}, 1).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
}

#[tokio::test]
#[ignore = "a part of another test"]
async fn a_child_refuses_the_server() {
    let failure = fails(settings(&server_of_parent(), json!({}))).await;
    assert!(failure.error[1].contains("certificate not valid for name \"127.0.0.1\""), "{failure:?}");
}
