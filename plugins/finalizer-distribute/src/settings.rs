//! What may be written about this plugin.

use std::collections::BTreeMap;
use std::time::Duration;

use bake_config::{Built, PluginInfo, PluginKind, Setting, Stage, Takes, Text};
use bake_core::{Encryption, Region};
use serde::Deserialize;

/// Words of `encryption` that name no key.
const INHERIT: &str = "inherit";
const DEFAULT: &str = "default";
const PLAIN: &str = "plain";

/// What may be written about this plugin in `environments.yaml`.
pub const INFO: PluginInfo = PluginInfo {
    kind: PluginKind::Finalizer,
    name: "distribute_images",
    version: env!("CARGO_PKG_VERSION"),
    summary: "Copies images to other regions and accounts, and shares them",
    stage: Some(Stage::Distribute),
    settings: &[
        Setting {
            name: "regions",
            takes: Takes::List(&Takes::Text),
            default: Some("[]"),
            summary: "Regions to copy every image to. One where the image is already is passed over",
        },
        Setting {
            name: "accounts",
            takes: Takes::List(&Takes::AccountId),
            default: Some("[]"),
            summary: "Accounts to share the images with, in every region, for clouds that have accounts",
        },
        Setting {
            name: "copy_to",
            takes: Takes::List(&Takes::AccountId),
            default: Some("[]"),
            summary: "Accounts that get images of their own in each of the regions. How to act there is a setting of the cloud",
        },
        Setting {
            name: "encryption",
            takes: Takes::Map(&Takes::Text),
            default: None,
            summary: "How copies are encrypted, by region: `inherit`, `default` (the account's key), `plain`, or a key",
        },
        Setting {
            name: "deprecate_after",
            takes: Takes::Duration,
            default: None,
            summary: "After which time others do not find the images any more",
        },
        Setting {
            name: "protect",
            takes: Takes::Boolean,
            default: Some("false"),
            summary: "Whether the images cannot be removed before somebody takes that back",
        },
        Setting {
            name: "success",
            takes: Takes::OneOf(&["all", "best_effort"]),
            default: Some("all"),
            summary: "Whether the bake fails if one target does, or only says so",
        },
    ],
    usual: &[],
    built: Built::Yes,
};

/// The settings of this plugin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DistributeSettings {
    /// Where to copy the images to.
    pub regions: Vec<Text>,
    /// With whom to share them.
    pub accounts: Vec<Text>,
    /// Who gets images of their own.
    pub copy_to: Vec<Text>,
    /// How copies are encrypted, by region.
    pub encryption: BTreeMap<String, Text>,
    /// How long the images are good.
    pub deprecate_after: Option<Duration>,
    /// Whether they are kept from being removed.
    pub protect: bool,
    /// What counts as success.
    pub success: Success,
}

/// What counts as success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Success {
    /// Every target has every image.
    #[default]
    All,
    /// What failed is reported, and the bake succeeds.
    BestEffort,
}

impl DistributeSettings {
    /// Says what cannot be, whatever the cloud.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (region, Text { text, origin }) in &self.encryption {
            if !self.regions.iter().any(|one| one.text == *region) {
                return Err(format!("{origin}: `encryption` is about `{region}`, which is not among the `regions`"));
            }
            if text == DEFAULT && !self.accounts.is_empty() {
                return Err(format!(
                    "{origin}: what is encrypted with the account's default key cannot be shared with other accounts; name a key \
                     for `{region}`"
                ));
            }
        }
        match (self.copy_to.first(), self.regions.is_empty()) {
            (Some(Text { origin, .. }), true) => Err(format!("{origin}: `copy_to` needs `regions` to copy to")),
            _ => Ok(()),
        }
    }

    /// How copies in a region are encrypted.
    pub(crate) fn encryption_in(&self, region: &Region) -> Encryption {
        match self.encryption.get(region.as_str()).map(|text| text.text.as_str()) {
            None | Some(INHERIT) => Encryption::Inherit,
            Some(DEFAULT) => Encryption::DefaultKey,
            Some(PLAIN) => Encryption::Plain,
            Some(key) => Encryption::Key(key.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(region: &str, encryption: &str, accounts: &[&str]) -> DistributeSettings {
        DistributeSettings {
            regions: vec![Text::built_in("there")],
            encryption: [(region.to_owned(), Text::built_in(encryption))].into(),
            accounts: accounts.iter().map(|account| Text::built_in(*account)).collect(),
            ..DistributeSettings::default()
        }
    }

    #[test]
    fn what_cannot_be_shared_is_refused_before_it_is_made() {
        assert_eq!(settings("there", "default", &[]).check(), Ok(()));
        assert_eq!(settings("there", "alias/ours", &["012345678901"]).check(), Ok(()));
        assert!(settings("there", "default", &["012345678901"]).check().unwrap_err().contains("cannot be shared"));
        assert!(settings("elsewhere", "plain", &[]).check().unwrap_err().contains("not among the `regions`"));
        let nowhere = DistributeSettings { copy_to: vec![Text::built_in("012345678901")], ..Default::default() };
        assert!(nowhere.check().unwrap_err().contains("needs `regions`"));
    }

    #[test]
    fn a_word_that_is_none_of_ours_is_a_key() {
        let of = |text| settings("there", text, &[]).encryption_in(&Region::new("there"));
        assert_eq!(
            [of("inherit"), of("default"), of("plain")],
            [Encryption::Inherit, Encryption::DefaultKey, Encryption::Plain]
        );
        assert_eq!(of("alias/ours"), Encryption::Key("alias/ours".into()));
        assert_eq!(settings("there", "plain", &[]).encryption_in(&Region::new("elsewhere")), Encryption::Inherit);
    }
}
