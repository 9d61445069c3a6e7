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
    use bake_config::{Built, PluginInfo, PluginKind, Setting, Takes};

    use super::Catalog;

    fn plugin(kind: PluginKind, settings: &'static [Setting]) -> PluginInfo {
        PluginInfo { kind, name: "p", version: "1", summary: "", stage: None, settings, built: Built::Yes }
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
}
