//! How a plugin reads its settings.

use std::collections::BTreeMap;
use std::time::Duration;

use bake_config::{ByteSize, Catalog, Config, Secret, Settings};
use insta::assert_snapshot;
use serde::Deserialize;

use crate::catalog::{environment, load};

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum VolumeType {
    Gp2,
    Gp3,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Ec2 {
    region: Option<String>,
    token: Option<Secret>,
    owner: Option<String>,
    attempts: u8,
    wait: Duration,
    volume_type: VolumeType,
    encrypted: bool,
    cache_size: ByteSize,
}

fn settings(text: &str) -> Settings {
    let text = environment(&format!("  plugins: {{ cloud: {{ ec2: {{ {text} }} }} }}\n"));
    load(&text)
        .and_then(|config: Config| config.environment("e"))
        .unwrap_or_else(|errors| panic!("{errors}"))
        .cloud
        .settings
}

#[test]
fn every_kind() {
    let read: Ec2 =
        settings("region: 1.10, owner: 012345678901, wait: 90s, volume_type: gp2, encrypted: true").parse().unwrap();
    let expected = Ec2 {
        region: Some("1.10".into()),
        token: None,
        owner: Some("012345678901".into()),
        attempts: 5,
        wait: Duration::from_secs(90),
        volume_type: VolumeType::Gp2,
        encrypted: true,
        cache_size: ByteSize(8 << 30),
    };
    assert_eq!(read, expected);
}

#[test]
fn what_a_struct_does_not_take() {
    assert_snapshot!(settings("attempts: 256").parse::<Ec2>().unwrap_err(), @"environments.yaml:7:40: `attempts`: a whole number from 0 to 255 is wanted, `256` is written");
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Narrow {
        regions: String,
    }
    assert_snapshot!(settings("region: x").parse::<Narrow>().unwrap_err(), @"
    built-in: unknown key `attempts`
      hint: known: regions
    ");
    assert_snapshot!(settings("").parse::<BTreeMap<String, u8>>().unwrap_err(), @"built-in: `wait`: a whole number from 0 to 255 is wanted, `10m` is written");
    let lists = settings("region: x").parse::<BTreeMap<String, Vec<String>>>().unwrap_err();
    assert_snapshot!(lists, @"built-in: `attempts`: a list is wanted, `5` is written");
}

#[test]
fn secrets_are_masked() {
    let text = environment("  plugins: { cloud: { ec2: { token: hunter2 } } }\n");
    let environment = load(&text).unwrap().environment("e").unwrap();
    let token = environment.cloud.settings.parse::<Ec2>().unwrap().token.unwrap();
    assert_eq!(token.expose(), "hunter2");
    let shown = format!("{environment:?} {token:?} {token} {} {:?}", environment.to_json(), environment.values());
    assert!(shown.contains("****") && !shown.contains("hunter2"), "{shown}");

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Wrong {
        token: u8,
    }
    let error = environment.cloud.settings.parse::<Wrong>().unwrap_err().to_string();
    assert!(error.contains("`****` is written") && !error.contains("hunter2"), "{error}");
}

#[test]
fn secrets_in_a_list_are_masked() {
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Wrong {
        keys: Vec<u8>,
    }
    let text = environment("  plugins: { cloud: { local: { keys: [hunter2] } } }\n").replace("ec2", "local");
    let local = load(&text).unwrap().environment("e").unwrap().cloud.settings;
    let error = local.parse::<Wrong>().unwrap_err().to_string();
    assert!(error.contains("`****` is written") && !error.contains("hunter2"), "{error}");
}

/// A text keeps its place, so that what is made of it can say where it was written.
#[test]
fn texts_come_with_their_places() {
    let text = environment("  finalizer_set: [tag_artifacts: { tags: { b: 1.10, a: \"x\", Owner: ~ } }]\n");
    let environment = load(&text).unwrap().environment("e").unwrap();
    let tags = environment.finalizer_set.groups[0].members[0].settings.texts("tags");
    let tags: Vec<String> = tags.iter().map(|(key, tag)| format!("{key}={} {}", tag.text, tag.origin)).collect();
    assert_snapshot!(tags.join("\n"), @"
    creator={{ vars.creator }} built-in
    b=1.10 environments.yaml:6:47
    a=x environments.yaml:6:56
    ");
    let wait = environment.cloud.settings.text("wait").unwrap();
    assert_eq!((wait.text.as_str(), wait.origin.to_string().as_str()), ("10m", "built-in"));
    assert_eq!(environment.cloud.settings.text("region"), None);
    assert_eq!(environment.cloud.settings.texts("wait"), []);
}

/// Only what a setting takes as a boolean or a number is one: an account id never.
#[test]
fn json_has_the_types_of_the_settings() {
    let ec2 = "region: true, owner: 012345678901, attempts: 3, encrypted: true, cache_size: 9GiB, wait: 1m, token: 5";
    assert_snapshot!(settings(ec2).to_json(), @r#"{"attempts":3,"wait":"1m","volume_type":"gp3","encrypted":true,"cache_size":"9GiB","region":"true","owner":"012345678901","token":"****"}"#);
    assert_snapshot!(settings("attempts: 18446744073709551615").to_json()["attempts"], @"18446744073709551615");
    assert_snapshot!(settings("attempts: 99999999999999999999").to_json()["attempts"], @r#""99999999999999999999""#);
}

#[test]
fn sizes() {
    let sizes = [("8GiB", 8 << 30), ("512 MiB", 512 << 20), ("0B", 0), ("3kB", 3000), ("1536KiB", 1536 << 10)];
    for (text, bytes) in sizes {
        assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
    }
    for text in ["", "8", "8G", "GiB", "1.5GiB", "-1B", "99999999TiB"] {
        assert!(text.parse::<ByteSize>().is_err(), "{text}");
    }
    let printed: Vec<String> = [8 << 30, 1536 << 10, 0, 1_000_001].map(|bytes| ByteSize(bytes).to_string()).into();
    assert_eq!(printed, ["8GiB", "1536KiB", "0B", "1000001B"]);
}

mod catalog {
    use bake_config::{Built, PluginInfo, PluginKind, Setting, Stage, Takes};

    use super::Catalog;

    fn plugin(kind: PluginKind, settings: &'static [Setting]) -> PluginInfo {
        PluginInfo { kind, name: "p", version: "1", summary: "", stage: None, settings, usual: &[], built: Built::Yes }
    }

    #[test]
    #[should_panic(expected = "two plugins are called cloud `p`")]
    fn two_of_a_name() {
        Catalog::new(vec![plugin(PluginKind::Cloud, &[]), plugin(PluginKind::Cloud, &[])]);
    }

    #[test]
    #[should_panic(expected = "finalizers, and only they, have a stage")]
    fn no_stage() {
        Catalog::new(vec![plugin(PluginKind::Finalizer, &[])]);
    }

    #[test]
    #[should_panic(expected = "`n` is `many`; it takes a whole number")]
    fn wrong_default() {
        const SETTINGS: &[Setting] =
            &[Setting { name: "n", takes: Takes::Integer, default: Some("many"), summary: "" }];
        Catalog::new(vec![plugin(PluginKind::Cloud, SETTINGS)]);
    }

    fn usual(kind: PluginKind, usual: &'static [(&'static str, &'static str)]) {
        let stage = (kind == PluginKind::Finalizer).then_some(Stage::Notify);
        Catalog::new(vec![PluginInfo { stage, usual, ..plugin(kind, &[]) }]);
    }

    #[test]
    fn usual_values_are_of_finalizers() {
        usual(PluginKind::Finalizer, &[("optional", "true"), ("timeout", "30s"), ("retry", "2"), ("when", "x")]);
    }

    #[test]
    #[should_panic(expected = "cloud `p`: `optional` cannot be usual")]
    fn usual_elsewhere() {
        usual(PluginKind::Cloud, &[("optional", "true")]);
    }

    #[test]
    #[should_panic(expected = "finalizer `p`: `name` cannot be usual")]
    fn usual_name() {
        usual(PluginKind::Finalizer, &[("name", "x")]);
    }

    #[test]
    #[should_panic(expected = "finalizer `p`: `url` cannot be usual")]
    fn usual_setting() {
        usual(PluginKind::Finalizer, &[("url", "x")]);
    }

    #[test]
    #[should_panic(expected = "`timeout` is `30`; it takes a time")]
    fn wrong_usual() {
        usual(PluginKind::Finalizer, &[("timeout", "30")]);
    }
}
