//! Names, descriptions and tags: what Aminator's two finalizers say, as settings of bake's.

use bake_config::{Entry, Node, Table};

use crate::format::{self, Over};
use crate::report::Report;
use crate::site::Site;
use crate::yaml::Tree;

/// The tag that Aminator sets last, whatever a format says.
const CREATION_TIME: &str = "creation_time";

/// The settings of `tagging_s3` that are settings of `register_s3_ami`. Aminator reads those that start with `default_`;
/// the others are its options, which some write down beside them.
const S3_SETTINGS: [(&str, &str); 7] = [
    ("bucket", "bucket"),
    ("default_cert", "cert"),
    ("cert", "cert"),
    ("default_privatekey", "privatekey"),
    ("privatekey", "privatekey"),
    ("default_ec2_user", "ec2_user"),
    ("ec2_user", "ec2_user"),
];

/// Where an image's disk is kept: the one difference between Aminator's two finalizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Ebs,
    S3,
}

impl Store {
    pub(crate) const ALL: [Self; 2] = [Self::Ebs, Self::S3];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Ebs => Self::S3,
            Self::S3 => Self::Ebs,
        }
    }

    /// Aminator's finalizer.
    pub(crate) fn plugin(self) -> &'static str {
        match self {
            Self::Ebs => "tagging_ebs",
            Self::S3 => "tagging_s3",
        }
    }

    /// The finalizer of bake's that registers.
    pub(crate) fn register(self) -> &'static str {
        match self {
            Self::Ebs => "register_ebs_ami",
            Self::S3 => "register_s3_ami",
        }
    }

    /// What Aminator puts behind the name of every image.
    fn ending(self) -> &'static str {
        match self {
            Self::Ebs => "-ebs",
            Self::S3 => "-s3",
        }
    }

    /// The keys that are read here; of all others something is told.
    pub(crate) fn keys(self) -> Vec<&'static str> {
        let common = ["name_format", "description_format", "tag_formats", "suffix_format", "creator"];
        let own = S3_SETTINGS.iter().map(|(key, _)| *key).filter(|_| self == Self::S3);
        common.into_iter().chain(own).collect()
    }
}

/// What one of Aminator's finalizers comes to.
#[derive(Debug)]
pub(crate) struct Finalizer {
    /// The settings of the finalizer that registers.
    pub(crate) settings: Vec<(String, Tree)>,
    pub(crate) tags: Vec<(String, Tree)>,
    pub(crate) creator: Tree,
    pub(crate) suffix: Tree,
}

/// Reads one of Aminator's finalizers.
pub(crate) fn finalizer(site: &Site, store: Store, report: &mut Report) -> Finalizer {
    let shipped = site.shipped_plugin(&("finalizer".to_owned(), store.plugin().to_owned()));
    let shipped = shipped.expect("both finalizers are Aminator's own");
    let table = site.plugin("finalizer", store.plugin(), report);
    let mut reader = Reader { table: &table, shipped, report };
    let register = store.register();
    let name = reader.format("name_format", &format!("plugins.finalizer.{register}.image_name"), Over::Image);
    let description =
        reader.format("description_format", &format!("plugins.finalizer.{register}.description"), Over::Image);
    let mut settings = vec![
        ("image_name".to_owned(), Tree::text(name + store.ending())),
        ("description".to_owned(), Tree::text(description)),
    ];
    if store == Store::S3 {
        settings.extend(reader.s3_settings());
    }
    let suffix = Tree::text(reader.format("suffix_format", "vars.suffix", Over::Time));
    Finalizer { settings, tags: reader.tags(), creator: Tree::text(reader.creator()), suffix }
}

struct Reader<'r> {
    table: &'r Table,
    shipped: &'r Table,
    report: &'r mut Report,
}

impl Reader<'_> {
    /// The template of a format that Aminator has a default for.
    fn format(&mut self, key: &str, setting: &str, over: Over) -> String {
        let default = self.shipped.get(key).and_then(Node::as_text).expect("Aminator's defaults have every format");
        let instead = format!("Aminator's default `{default}` is written instead; see to `{setting}`");
        let written = self.table.entry(key).and_then(|entry| self.template(key, entry, over, &instead));
        written.unwrap_or_else(|| {
            format::template(default, over).expect("a test turns Aminator's own formats into templates")
        })
    }

    /// The template of a format; `None` if there is none, which is told with what happens `instead`.
    fn template(&mut self, key: &str, entry: &Entry, over: Over, instead: &str) -> Option<String> {
        let problem = match self.report.text(key, &entry.node).map(|text| format::template(text, over)) {
            Some(Ok(template)) => return Some(template),
            Some(Err(error)) => error.to_string(),
            None => "it is empty".to_owned(),
        };
        self.report.note(&entry.node.origin, format!("`{key}`"), format!("{problem}: {instead}"));
        None
    }

    fn tags(&mut self) -> Vec<(String, Tree)> {
        let mut tags = Vec::new();
        let formats = self.table.get("tag_formats").and_then(|node| self.report.table("tag_formats", node));
        for (tag, entry) in formats.into_iter().flat_map(Table::iter) {
            let key = format!("tag_formats.{tag}");
            if tag == CREATION_TIME {
                let outcome =
                    "left out: Aminator sets this tag to the time of the bake, whatever is written; so does bake";
                self.report.note(&entry.node.origin, format!("`{key}`"), outcome);
                continue;
            }
            tags.extend(self.tag(tag, &key, entry).map(|template| (tag.to_owned(), Tree::text(template))));
        }
        // A format may take the place of this one, as in Aminator.
        if tags.iter().all(|(tag, _)| tag != "creator") {
            tags.push(("creator".to_owned(), Tree::text("{{ vars.creator }}")));
        }
        tags.push((CREATION_TIME.to_owned(), Tree::text("{{ date }}")));
        tags
    }

    fn tag(&mut self, tag: &str, key: &str, entry: &Entry) -> Option<String> {
        let default = self.shipped.get("tag_formats").and_then(Node::as_table).and_then(|tags| tags.get(tag));
        let setting = format!("plugins.finalizer.tag_artifacts.tags.{tag}");
        match default.and_then(Node::as_text) {
            Some(default) => {
                let instead = format!("Aminator's default `{default}` is written instead; see to `{setting}`");
                let default = || format::template(default, Over::Image).ok();
                self.template(key, entry, Over::Image, &instead).or_else(default)
            }
            None => {
                let instead = format!("the tag is left out; write a template of it as `{setting}`");
                self.template(key, entry, Over::Image, &instead)
            }
        }
    }

    /// A text, which as a `var` must not be taken for a template.
    fn creator(&mut self) -> String {
        let node = self.table.get("creator");
        let text = node.and_then(|node| self.report.text("creator", node)).unwrap_or("aminator");
        format::last_literal(text)
    }

    fn s3_settings(&mut self) -> Vec<(String, Tree)> {
        let mut settings: Vec<(String, Tree)> = Vec::new();
        for (key, setting) in S3_SETTINGS {
            let Some(entry) = self.table.entry(key) else { continue };
            let Some(text) = self.report.text(key, &entry.node).filter(|text| !text.is_empty()) else { continue };
            match settings.iter().any(|(other, _)| other == setting) {
                true => self.report.note(
                    &entry.node.origin,
                    format!("`{key}`"),
                    format!("left out: Aminator takes `default_{key}`, which is written too"),
                ),
                false => settings.push((setting.to_owned(), Tree::text(text))),
            }
        }
        settings
    }
}
