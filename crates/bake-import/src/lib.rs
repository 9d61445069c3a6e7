//! From Netflix Aminator to `bake`: reads its configuration and writes an `environments.yaml` that says the same.
//!
//! Start with [`find`], which reads the files of a folder such as `/etc/aminator`, and give them to [`import`]. Nothing
//! is printed or written here:
//!
//! ```no_run
//! let sources = bake_import::find("/etc/aminator".as_ref())?;
//! let imported = bake_import::import(&sources)?;
//! std::fs::write("environments.yaml", &imported.yaml)?;
//! for note in &imported.notes {
//!     eprintln!("{note}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | Aminator | `bake` |
//! |---|---|
//! | `cloud`, `provisioner`, `volume`, `blockdevice` of an environment | the same; `aptitude` is `apt` |
//! | `finalizer: tagging_ebs`, `tagging_s3` | `finalizer_set: [register_ebs_ami, tag_artifacts]`, `[register_s3_ami, tag_artifacts]` |
//! | `name_format`, `description_format` | `image_name` with Aminator's `-ebs` or `-s3`, `description` |
//! | `tag_formats`, and the tags `creator` and `creation_time` | the `tags` of `tag_artifacts` |
//! | `creator`, `suffix_format` | `vars.creator`, `vars.suffix` |
//! | `region`, `base_ami_name`, `base_ami_id` | `plugins.cloud.ec2.region`, `.base` |
//! | `bucket`, `default_cert`, `default_privatekey`, `default_ec2_user` | settings of `register_s3_ami` |
//!
//! Aminator's packaged defaults hold where a site's files say nothing, so they are written too. A tag or a var stands at
//! the top where both finalizers agree on it, else in the environments of each. Whatever has no counterpart is a [`Note`]
//! with its place; what says no more than Aminator's own default shares a note for each file.
//!
//! The steps, a module each: `find` → `site` (files over defaults) → `environments`, `cloud`, `finalizers` with `format`,
//! `rest` (what nobody else reads) → `document` (their places in the new file) → `yaml` (the text). Design:
//! `docs/design/0004-environments.md`.

mod cloud;
mod document;
mod environments;
mod finalizers;
mod find;
mod format;
mod report;
mod rest;
mod site;
mod yaml;

pub use find::{Source, find};
pub use report::{ImportErrors, Note};

use document::Read;
use finalizers::Store;
use report::Report;
use site::Site;

/// What an import gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The content of the new `environments.yaml`.
    pub yaml: String,
    /// What has no counterpart or was changed, in the order of the files.
    pub notes: Vec<Note>,
}

/// Returns the `environments.yaml` that says what Aminator's files say.
///
/// The files are given from the weakest to the strongest. The tables of later ones merge over those of earlier ones.
///
/// # Errors
///
/// With every mistake that Aminator itself would stop at: what is not YAML, a list where a table belongs.
pub fn import(sources: &[Source]) -> Result<Imported, ImportErrors> {
    let mut report = Report::default();
    let site = Site::read(sources, &mut report);
    let read = Read {
        environments: environments::environments(&site, &mut report),
        cloud: cloud::settings(&site, &mut report),
        ebs: finalizers::finalizer(&site, Store::Ebs, &mut report),
        s3: finalizers::finalizer(&site, Store::S3, &mut report),
    };
    rest::leave(&site, &mut report);
    let (yaml, notes) = report.finish(document::document(sources, &read))?;
    Ok(Imported { yaml, notes })
}
