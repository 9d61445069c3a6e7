//! What may be written about this cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use bake_config::{Built, PluginInfo, PluginKind, Setting, Takes};
use bake_core::Region;
use serde::{Deserialize, Serialize};

/// What this plugin says of itself.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::Cloud,
    name: "ec2",
    version: env!("CARGO_PKG_VERSION"),
    summary: "Amazon EC2: AMIs, EBS volumes and snapshots",
    stage: None,
    settings: &[
        text("region", None, "The region to bake in; if it is left out, the one that AWS tools would use here"),
        text(
            "base",
            None,
            "The base image to use when none is asked for: an AMI id, a name, or `ssm:` and the name of a parameter",
        ),
        Setting {
            name: "owners",
            takes: Takes::List(&Takes::Text),
            default: Some("[self]"),
            summary: "Whose AMIs a name may mean: account ids, `self`, `amazon`. A name alone could be anybody's",
        },
        Setting {
            name: "newest",
            takes: Takes::Boolean,
            default: Some("false"),
            summary: "Takes the newest of several AMIs that a name means; `*` and `?` in it stand for anything",
        },
        text("volume_type", Some("gp3"), "The type of the volume to bake on, where `bake` runs on an instance"),
        text("profile", None, "The profile of the AWS configuration to take credentials from"),
        text("role", None, "The ARN of a role to act as"),
        Setting {
            name: "roles",
            takes: Takes::Map(&Takes::Text),
            default: None,
            summary: "The ARN of the role to act as in each other account, for copies that are to be theirs",
        },
        text("endpoint", None, "The URL of another service that speaks the API, for all calls"),
        Setting {
            name: "pace",
            takes: Takes::Duration,
            default: Some("2s"),
            summary: "How often to look at first at something that is waited for; it grows to eight times that",
        },
        Setting {
            name: "patience",
            takes: Takes::Duration,
            default: Some("60s"),
            summary: "How long to look for something, after a lost answer, before it counts as absent",
        },
    ],
    usual: &[],
    built: Built::Yes,
};

const fn text(name: &'static str, default: Option<&'static str>, summary: &'static str) -> Setting {
    Setting { name, takes: Takes::Text, default, summary }
}

/// The settings of this plugin.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ec2Settings {
    /// The region to bake in.
    pub region: Option<Region>,
    /// The base image to use when none is asked for.
    pub base: Option<String>,
    /// Whose AMIs a name may mean.
    pub owners: Vec<String>,
    /// Whether the newest of several AMIs is meant.
    pub newest: bool,
    /// The type of the volume to bake on.
    pub volume_type: String,
    /// The profile of the AWS configuration.
    pub profile: Option<String>,
    /// The ARN of a role to act as.
    pub role: Option<String>,
    /// The role to act as in other accounts.
    pub roles: BTreeMap<String, String>,
    /// Another service that speaks the API.
    pub endpoint: Option<String>,
    /// How often to look at first.
    pub pace: Duration,
    /// How long to look before something counts as absent.
    pub patience: Duration,
}

impl Default for Ec2Settings {
    fn default() -> Self {
        Self {
            region: None,
            base: None,
            owners: vec!["self".into()],
            newest: false,
            volume_type: "gp3".into(),
            profile: None,
            role: None,
            roles: BTreeMap::new(),
            endpoint: None,
            pace: Duration::from_secs(2),
            patience: Duration::from_secs(60),
        }
    }
}

#[cfg(feature = "aws")]
impl Ec2Settings {
    /// Reads settings as a run's journal has them, which may be of another version: what is not there, or is something else, is
    /// as if nobody had said it.
    pub(crate) fn recorded(record: &serde_json::Value) -> Self {
        let text = |name: &str| record.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        let time =
            |name: &str, usual| text(name).and_then(|text| humantime::parse_duration(&text).ok()).unwrap_or(usual);
        let roles = record.get("roles").and_then(|roles| roles.as_object());
        let role = |(account, role): (&String, &serde_json::Value)| Some((account.clone(), role.as_str()?.to_owned()));
        let usual = Self::default();
        Self {
            region: text("region").map(Region::new),
            profile: text("profile"),
            role: text("role"),
            roles: roles.into_iter().flatten().filter_map(role).collect(),
            endpoint: text("endpoint"),
            pace: time("pace", usual.pace),
            patience: time("patience", usual.patience),
            ..usual
        }
    }

    /// Returns how AWS is reached.
    pub(crate) fn way(&self) -> Way {
        Way { profile: self.profile.clone(), role: self.role.clone(), endpoint: self.endpoint.clone() }
    }
}

/// How AWS is reached, beyond what all AWS tools find out by themselves. It stands in journals, so that what was made can be
/// taken back in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Way {
    /// The profile of the AWS configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The ARN of a role to act as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Another service that speaks the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

#[cfg(all(test, feature = "aws"))]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_taken_back_the_way_it_was_made() {
        let record = serde_json::json!({
            "region": "eu-west-1", "profile": "baker", "pace": "10ms", "roles": { "012345678901": "arn:aws:iam::012345678901:role/r" },
            "of a later version": [1],
        });
        let settings = Ec2Settings::recorded(&record);
        assert_eq!(settings.way(), Way { profile: Some("baker".into()), role: None, endpoint: None });
        assert_eq!((settings.pace, settings.patience), (Duration::from_millis(10), Duration::from_secs(60)));
        assert_eq!(settings.roles.len(), 1);
        assert_eq!(Ec2Settings::recorded(&serde_json::json!("nonsense")), Ec2Settings::default());
    }
}
