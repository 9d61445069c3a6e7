//! What is refused before anything begins.

use crate::support::{SECRET, settings, wait};
use std::time::Duration;

use bake_config::{Built, Catalog, Layers, PluginInfo, PluginKind, Text};
use bake_engine::Mutations;
use finalizer_http::{ASGARD_POKE, HTTP_POKE, HttpPoke, HttpSettings, Method, Per, register};
use serde_json::{Value, json};

fn refused(url: &str, more: Value) -> String {
    let calls = register(&mut Mutations::new());
    HttpPoke::new("tell", settings(url, more), &calls).err().expect("it is refused").to_string()
}

#[test]
fn a_missing_url_is_named_when_the_plugin_is_made() {
    let calls = register(&mut Mutations::new());
    let error = HttpPoke::asgard("tell", HttpSettings::default(), &calls).err().unwrap();
    insta::assert_snapshot!(error, @"`asgard_poke` at `tell` needs the setting `url`, and nothing is written there");
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let url = "https://host/";
    insta::assert_snapshot!(refused("https://ann:pw@host/", json!({})), @"`url` of the finalizer `tell`: built-in: a user or a password in a URL ends up in logs; write `secret_headers: { Authorization: … }` instead");
    insta::assert_snapshot!(refused(url, json!({ "headers": { "a b": "" } })), @r#"`headers` of the finalizer `tell`: "a b" cannot be the name of a header"#);
    insta::assert_snapshot!(refused(url, json!({ "headers": { "Content-Length": "1" } })), @"`headers` of the finalizer `tell`: `Content-Length` is set by the HTTP library itself");
    insta::assert_snapshot!(refused(url, json!({ "headers": { "authorization": "x" } })), @"`secret_headers` of the finalizer `tell`: `Authorization` is there twice");
    insta::assert_snapshot!(refused(url, json!({ "expect": [200, 99] })), @"`expect` of the finalizer `tell`: `99` is not a status that ends a call, from 200 to 599");
    insta::assert_snapshot!(refused(url, json!({ "wait": wait(0) })), @"`wait` of the finalizer `tell`: no call takes no time");
}

#[test]
fn a_refused_secret_is_not_shown() {
    let newline = json!({ "secret_headers": { "X-Key": format!("{SECRET}\n") } });
    insta::assert_snapshot!(refused("https://host/", newline), @"`secret_headers` of the finalizer `tell`: the value of `X-Key` holds a control character");
    let proxy = json!({ "proxy": format!("http://ann:{SECRET}@:bad port") });
    insta::assert_snapshot!(refused("https://host/", proxy), @"`proxy` of the finalizer `tell`: it is not a URL such as `http://proxy.example.com:3128`");
}

#[test]
fn settings_have_no_secret_in_their_debug_output() {
    let shown = format!("{:?}", settings("https://host/", json!({ "proxy": SECRET })));
    assert!(shown.contains("****") && !shown.contains(SECRET), "{shown}");
}

#[test]
fn settings_are_read_from_a_file() {
    let plugin = |kind| PluginInfo {
        kind,
        name: "p",
        version: "",
        summary: "",
        stage: None,
        settings: &[],
        usual: &[],
        built: Built::Yes,
    };
    let others = PluginKind::ALL.into_iter().filter(|kind| *kind != PluginKind::Finalizer).map(plugin);
    let catalog = Catalog::new(others.chain([HTTP_POKE, ASGARD_POKE]).collect());
    let file = format!(
        "finalizer_sets:
  set: [asgard_poke, http_poke: {{ url: 'https://host/', method: PUT, body: hi, expect: [200, 202], wait: 1m,
        headers: {{ X-Image: '{{{{ image.id }}}}' }}, secret_headers: {{ Authorization: {SECRET} }} }}]
env: {{ cloud: p, blockdevice: p, volume: p, provisioner: p, finalizer_set: set }}
"
    );
    let config = Layers::new().built_in(file).load(&catalog).unwrap_or_else(|errors| panic!("{errors}"));
    let environment = config.environment("env").unwrap_or_else(|errors| panic!("{errors}"));
    let [asgard, http] = &environment.finalizer_set.members().collect::<Vec<_>>()[..] else { panic!("two members") };
    let parsed: HttpSettings = http.settings.parse().unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!((parsed.method, parsed.per), (Method::Put, Some(Per::Bake)));
    assert_eq!((parsed.expect, parsed.wait), (vec![200, 202], Duration::from_secs(60)));
    assert_eq!(
        (&parsed.headers["X-Image"].text, parsed.secret_headers["Authorization"].expose()),
        (&"{{ image.id }}".to_owned(), SECRET)
    );
    assert!(!http.settings.to_json().to_string().contains(SECRET));
    let parsed: HttpSettings = asgard.settings.parse().unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!((parsed.url, parsed.per, parsed.method), (None::<Text>, Some(Per::Image), Method::Post));
}
