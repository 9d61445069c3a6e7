//! Both finalizers keep the contract and are what the catalog says. What they do besides is in the modules.

mod poke;
mod settings;
mod support;
mod tls;

use std::sync::Arc;

use bake_config::{Catalog, Setting};
use bake_core::Finalizer;
use bake_engine::Mutations;
use bake_testing::contract;
use finalizer_http::{ASGARD_POKE, HTTP_POKE, HttpPoke, register};
use serde_json::json;
use support::{Answer, Make, Server, settings};

async fn keeps_the_contract(make: Make) {
    let server = Server::start(&[Answer::status(200, "fine")]).await;
    let more = json!({
        "headers": { "X-Package": "{{ package.version }}" },
        "body": "{{ image.id }} in {{ region }}", "secret_headers": {},
    });
    let settings = settings(&server.url("/{{ region }}/{{ package.name | urlencode }}"), more);
    contract::finalizer_with(&|mutations| drop(register(mutations)), |_| {
        let calls = register(&mut Mutations::new());
        Ok(Arc::new(make("placed", settings.clone(), &calls).unwrap()))
    })
    .await;
    assert_eq!(server.requests().len(), 1, "planning and taking back make no calls");
}

#[tokio::test]
async fn http_poke_keeps_the_contract() {
    keeps_the_contract(HttpPoke::new).await;
}

#[tokio::test]
async fn asgard_poke_keeps_the_contract() {
    keeps_the_contract(HttpPoke::asgard).await;
}

#[test]
fn they_are_what_the_catalog_says() {
    Catalog::new(vec![HTTP_POKE, ASGARD_POKE]);
    let calls = register(&mut Mutations::new());
    for (info, make) in [(HTTP_POKE, HttpPoke::new as Make), (ASGARD_POKE, HttpPoke::asgard)] {
        let poke = make("poke", settings("https://host/", json!({})), &calls).unwrap();
        assert_eq!((poke.name(), Some(poke.stage()), poke.needs().snapshot), (info.name, info.stage, false));
    }
}

/// The settings struct has defaults of its own, for whoever makes it without a file.
#[test]
fn the_catalog_and_the_settings_have_the_same_defaults() {
    let default = |settings: &[Setting], name: &str| {
        settings.iter().find(|setting| setting.name == name).and_then(|setting| setting.default)
    };
    let settings = finalizer_http::HttpSettings::default();
    assert_eq!(default(HTTP_POKE.settings, "wait"), Some(&*format!("{}s", settings.wait.as_secs())));
    assert_eq!(default(HTTP_POKE.settings, "method"), json!(settings.method).as_str());
    assert_eq!(default(HTTP_POKE.settings, "per"), Some("bake"));
    assert_eq!(default(ASGARD_POKE.settings, "per"), Some("image"));
}
