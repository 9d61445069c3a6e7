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
