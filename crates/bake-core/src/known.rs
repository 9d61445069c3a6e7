//! What templates and predicates may name, and when its value is known.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectRepr};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use crate::template::{self, TemplateError, to_value};
use crate::{BaseImage, Image, Installed, Package};

/// The values that are known before a bake begins: what users may tune, and what belongs to the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    vars: BTreeMap<String, String>,
    environment: String,
    run: String,
    date: String,
}

/// A variable that is a template and cannot be filled in.
#[derive(Debug, thiserror::Error)]
#[error("the variable `{name}`")]
pub struct VariableError {
    /// Its name.
    pub name: String,
    /// Why not.
    #[source]
    pub source: TemplateError,
}

/// When a name's value is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// Before anything is made.
    Start,
    /// When the step `base` has looked the base image up.
    Base,
    /// When the step `volume/provision` has asked the package database.
    Provision,
    /// When an image is registered.
    Image,
}

impl Moment {
    /// Returns the step that makes it known; none for what is known from the start.
    pub fn step(self) -> Option<&'static str> {
        match self {
            Self::Start => None,
            Self::Base => Some("base"),
            Self::Provision => Some("volume/provision"),
            Self::Image => Some("finalize"),
        }
    }

    /// Says it for people: "after `base`".
    pub fn words(self) -> &'static str {
        match self {
            Self::Start => "when a bake begins",
            Self::Base => "after `base`",
            Self::Provision => "after `volume/provision`",
            Self::Image => "once an image is registered",
        }
    }
}

/// A name that templates may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// How it is written: `package.version`. A part that users name themselves is in capitals: `vars.NAME`.
    pub path: &'static str,
    /// When it is known.
    pub moment: Moment,
    /// What it is.
    pub summary: &'static str,
}

const fn name(path: &'static str, moment: Moment, summary: &'static str) -> Name {
    Name { path, moment, summary }
}

/// All names there are.
pub const NAMES: [Name; 27] = [
    name("vars.NAME", Moment::Start, "what the environment, a variable or a flag says"),
    name("env.name", Moment::Start, "the environment's name"),
    name("run.id", Moment::Start, "the run's id"),
    name(
        "date",
        Moment::Start,
        "when the bake began, such as `2026-11-30 12:00:00 UTC`; for other forms `date | strftime('%Y%m%d')`",
    ),
    name("base.id", Moment::Base, "the base image's id"),
    name("base.name", Moment::Base, "the base image's name"),
    name("base.region", Moment::Base, "where the base image is"),
    name("base.architecture", Moment::Base, "what it runs on, such as `x86_64`"),
    name("base.size", Moment::Base, "the size of its disk in bytes"),
    name("base.tags.KEY", Moment::Base, "a tag of the base image"),
    name("arch", Moment::Base, "what the image runs on: the base image's architecture"),
    name("region", Moment::Base, "where the image is: the base image's region, or that of a copy"),
    name("package.name", Moment::Provision, "the package that names the image"),
    name("package.epoch", Moment::Provision, "its epoch, or nothing"),
    name("package.version", Moment::Provision, "its version without epoch and release"),
    name("package.version_with_epoch", Moment::Provision, "its version with the epoch, if it has one: `1:2.0`"),
    name("package.release", Moment::Provision, "its release, or `0`"),
    name("package.architecture", Moment::Provision, "its architecture in the distribution's words: `amd64`, `all`"),
    name(
        "package.appversion",
        Moment::Provision,
        "name, version with epoch, and release, which can be taken apart again",
    ),
    name("packages", Moment::Provision, "all requested packages, each with the fields of `package`"),
    name("image.id", Moment::Image, "the image's id: of the only one, copies aside, or of the one that a call is for"),
    name("image.name", Moment::Image, "its name"),
    name("image.region", Moment::Image, "where it is"),
    name("image.store", Moment::Image, "how its root disk is kept: `local`, `ebs` or `s3`"),
    name(
        "images.NAME.id",
        Moment::Image,
        "an image by its name within the bake, such as `images.ebs.id`; likewise `name`, `region`, `store`",
    ),
    name("images.NAME.name", Moment::Image, "its name"),
    name("images.NAME.region", Moment::Image, "where it is"),
];

/// Returns what is known of a name as a template writes it: `base.tags.team` is `base.tags.KEY`.
pub fn find_name(path: &str) -> Option<&'static Name> {
    let fits = |known: &&Name| {
        let (mut known, mut path) = (known.path.split('.'), path.split('.'));
        // A template may take a part of what is known, or the whole of which it is a part.
        loop {
            match (known.next(), path.next()) {
                (Some(known), Some(path)) if known == path || known.chars().all(|c| c.is_ascii_uppercase()) => {}
                (None, _) | (_, None) => return true,
                (Some(_), Some(_)) => return false,
            }
        }
    };
    NAMES.iter().find(fits)
}

impl Known {
    /// Puts together what is known at the start. A variable may itself be a template over `date`, `env` and `run`.
    pub fn new(
        vars: BTreeMap<String, String>,
        environment: &str,
        run: &str,
        started: jiff::Timestamp,
    ) -> Result<Self, VariableError> {
        let date = started.strftime(template::DATE).to_string();
        let mut known = Self { vars: BTreeMap::new(), environment: environment.into(), run: run.into(), date };
        let mut values = known.start();
        values.remove("vars");
        let values = to_value(&values.into());
        let fill_in = |(name, text): (String, String)| {
            let filled = if template::is_template(&text) { template::render(&text, &values) } else { Ok(text) };
            filled.map(|text| (name.clone(), text)).map_err(|source| VariableError { name, source })
        };
        known.vars = vars.into_iter().map(fill_in).collect::<Result<_, VariableError>>()?;
        Ok(known)
    }

    /// Returns the variables, filled in.
    pub fn vars(&self) -> &BTreeMap<String, String> {
        &self.vars
    }

    fn start(&self) -> Map<String, Json> {
        let values = json!({
            "vars": self.vars, "env": { "name": self.environment }, "run": { "id": self.run }, "date": self.date,
        });
        as_map(values)
    }

    /// What is known once packages are installed.
    pub(crate) fn provisioned(&self, base: &BaseImage, installed: &Installed) -> Values {
        let mut values = self.start();
        values.extend(base_values(base));
        values.extend(package_tables(installed));
        Values(values)
    }

    /// What is known at a moment, with stand-ins for what is not: `‹package.version›`.
    pub(crate) fn stand_ins(&self, moment: Moment) -> Value {
        self.with_facts(moment, &Facts::default())
    }

    /// The values of a moment: facts where there are some, stand-ins elsewhere.
    pub(crate) fn with_facts(&self, moment: Moment, facts: &Facts) -> Value {
        let mut values = self.start();
        let not_yet = |known: &&Name| known.moment > Moment::Start && known.moment <= moment;
        NAMES.iter().filter(not_yet).for_each(|known| stand_in(&mut values, known.path));
        let (mut base_tags, mut images) = (BTreeMap::new(), BTreeMap::new());
        if let Some(base) = &facts.base {
            values.extend(base_values(base));
        }
        if let Some(installed) = &facts.installed {
            values.extend(package_tables(installed));
        }
        if !facts.images.is_empty() || facts.meant.is_some() {
            values.remove("image");
            values = Values(values).with_images(facts.meant.as_ref(), &facts.images).0;
        }
        for (path, text) in &facts.given {
            match path.strip_prefix("base.tags.") {
                Some(key) => drop(base_tags.insert(key.to_owned(), Value::from(text.as_str()))),
                None => put(&mut values, path, text.as_str().into()),
            }
        }
        if let Some(base) = facts.base.as_ref() {
            base_tags.extend(base.tags.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))));
        }
        images.extend(
            facts.images.keys().filter_map(|name| Some((name.clone(), to_value(values.get("images")?.get(name)?)))),
        );
        let mut values = entries(&to_value(&values.into()));
        let any_key = |of: &str, known, make: Option<fn(&str) -> Value>| {
            Value::from_object(AnyKey { of: of.into(), known, make })
        };
        if moment >= Moment::Base {
            let tag: fn(&str) -> Value = |path| Value::from(quoted(path));
            let tags = any_key("base.tags", base_tags, facts.base.is_none().then_some(tag));
            let mut base = entries(&values["base"]);
            base.insert("tags".into(), tags);
            values.insert("base".into(), Value::from(base));
        }
        if moment >= Moment::Image {
            let make = facts.images.is_empty().then_some(stand_in_image as fn(&str) -> Value);
            values.insert("images".into(), any_key("images", images, make));
        }
        Value::from(values)
    }

    /// Explains how a template or an expression comes to its value.
    ///
    /// # Errors
    ///
    /// If it cannot be evaluated, whatever the names that are not known will be.
    pub fn explain(&self, text: &str, facts: &Facts) -> Result<Explanation, TemplateError> {
        let values = self.with_facts(Moment::Image, facts);
        let moment = |path: &str| find_name(path).map_or(Moment::Start, |known| known.moment);
        let is_known = |path: &str| facts.cover(path, moment(path));
        let name = |path: String| {
            let value = template::lookup(&values, &path).filter(|_| is_known(&path)).map(|value| shown(&value));
            NameUse { moment: moment(&path), path, value }
        };
        let names: Vec<NameUse> = template::names_in(text).into_iter().map(name).collect();
        if names.iter().all(|name| is_known(&name.path)) {
            let value = match template::is_template(text) {
                true => template::render(text, &values)?,
                false => shown(&template::evaluate(text, &values)?),
            };
            return Ok(Explanation { names, value: Some(value), pattern: None });
        }
        let pattern = match template::is_template(text) {
            true => self.check(text, Moment::Image).map(|()| template::render(text, &values).ok())?,
            false => self.check_predicate(text, Moment::Image).map(|()| None)?,
        };
        Ok(Explanation { names, value: None, pattern })
    }

    /// Fills a template in if everything in it is known at the start.
    pub(crate) fn certain(&self, text: &str) -> Option<String> {
        let start =
            |path: &String| find_name(path).is_none_or(|known| known.moment == Moment::Start) && path != "run.id";
        let certain = template::names_in(text).iter().all(start);
        certain.then(|| template::render(text, &self.stand_ins(Moment::Start)).ok()).flatten()
    }

    /// Checks a template that is filled in once there are images of these names. `image` says whether one of them is meant.
    pub(crate) fn check_with_images<'a>(
        &self,
        text: &str,
        names: impl Iterator<Item = &'a str>,
        image: Option<&str>,
    ) -> Result<(), TemplateError> {
        let stand_in = |path: &str, region: &str| Image {
            id: crate::ImageId::new(quoted(&format!("{path}.id"))),
            name: quoted(&format!("{path}.name")),
            region: crate::Region::new(region),
            store: quoted(&format!("{path}.store")),
            account: None,
        };
        let images: BTreeMap<_, _> =
            names.map(|name| (name.to_owned(), stand_in(&format!("images.{name}"), "‹region›"))).collect();
        let several = image.is_none() && images.keys().filter(|name| !name.contains('/')).count() > 1;
        let facts =
            Facts {
                images: images.clone(), meant: image.map(|name| stand_in(name, "‹region›")), ..Facts::default()
            };
        template::check(text, &self.with_facts(Moment::Image, &facts)).map_err(|error| {
            match several && template::names_in(text).iter().any(|name| name.split('.').next() == Some("image")) {
                true => {
                    let names = images.keys().map(|name| format!("`images.{name}`")).collect::<Vec<_>>().join(", ");
                    TemplateError {
                        reason: format!("there are several images, so none is `image`: say which of {names}"),
                        ..error
                    }
                }
                false => error,
            }
        })
    }

    /// Checks a template that is filled in at a moment: its syntax, and that it names only what is known then.
    pub(crate) fn check(&self, text: &str, moment: Moment) -> Result<(), TemplateError> {
        template::check(text, &self.stand_ins(moment)).map_err(|error| too_early(error, text, moment))
    }

    /// Checks a predicate that is decided at a moment.
    pub(crate) fn check_predicate(&self, text: &str, moment: Moment) -> Result<(), TemplateError> {
        template::check_predicate(text, &self.stand_ins(moment)).map_err(|error| too_early(error, text, moment))
    }
}

/// What is known of a bake that has not happened, or of one that has.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The base image.
    pub base: Option<BaseImage>,
    /// What was installed.
    pub installed: Option<Installed>,
    /// Images by their name within the bake.
    pub images: BTreeMap<String, Image>,
    /// The image that is meant by `image`, where there may be several.
    pub meant: Option<Image>,
    /// Values of single names, for trying things out: `package.version`.
    pub given: BTreeMap<String, String>,
}

impl Facts {
    fn cover(&self, path: &str, moment: Moment) -> bool {
        let known = match moment {
            Moment::Start => true,
            Moment::Base => self.base.is_some(),
            Moment::Provision => self.installed.is_some(),
            Moment::Image => !self.images.is_empty(),
        };
        known || self.given.contains_key(path)
    }
}

/// How a text comes to its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The names in it.
    pub names: Vec<NameUse>,
    /// What it gives; `None` while a name is not known.
    pub value: Option<String>,
    /// What it will look like, with `‹name›` for what is not known.
    pub pattern: Option<String>,
}

/// A name that a text asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameUse {
    /// How it is written.
    pub path: String,
    /// Its value, if it is known.
    pub value: Option<String>,
    /// When it is known.
    pub moment: Moment,
}

/// A name that is right and comes too early is another mistake than one that does not exist.
fn too_early(error: TemplateError, text: &str, moment: Moment) -> TemplateError {
    let later = template::names_in(text).into_iter().find_map(|path| {
        let known = find_name(&path).filter(|known| known.moment > moment)?;
        Some(format!("`{path}` is known only {}, which is too late here", known.moment.words()))
    });
    match later {
        Some(reason) => TemplateError { reason, ..error },
        None => error,
    }
}

/// Values to fill templates in with.
#[derive(Clone, Debug)]
pub(crate) struct Values(Map<String, Json>);

impl Values {
    /// The same for something in another region.
    pub(crate) fn in_region(mut self, region: &crate::Region) -> Self {
        self.0.insert("region".into(), json!(region));
        self
    }

    /// The same with the images that there are by now. `image` is the one that is meant, if it is clear which: without a
    /// word, the only one that is no copy.
    pub(crate) fn with_images(mut self, image: Option<&Image>, images: &BTreeMap<String, Image>) -> Self {
        let mut originals = images.iter().filter(|(name, _)| !name.contains('/')).map(|(_, image)| image);
        let only = originals.next().filter(|_| originals.next().is_none());
        let image = image.or(only);
        if let Some(image) = image {
            self.0.insert("image".into(), json!(image));
            self.0.insert("region".into(), json!(image.region));
        }
        self.0.insert("images".into(), json!(images));
        self
    }

    pub(crate) fn to_value(&self) -> Value {
        to_value(&Json::Object(self.0.clone()))
    }
}

fn as_map(values: Json) -> Map<String, Json> {
    match values {
        Json::Object(map) => map,
        other => unreachable!("`json!` with braces makes an object, not {other}"),
    }
}

fn base_values(base: &BaseImage) -> Map<String, Json> {
    // What only the cloud has to know stays out of templates.
    let BaseImage { id, name, region, architecture, size, tags, snapshot: _, machine: _, borrowed: _ } = base;
    let fields =
        json!({ "id": id, "name": name, "region": region, "architecture": architecture, "size": size, "tags": tags });
    as_map(json!({ "base": fields, "arch": architecture, "region": region }))
}

fn package_tables(installed: &Installed) -> Map<String, Json> {
    let packages: Vec<_> = installed.requested.iter().map(package_values).collect();
    as_map(json!({ "package": package_values(&installed.main), "packages": packages }))
}

fn package_values(package: &Package) -> Json {
    json!({
        "name": package.name,
        "epoch": package.epoch.clone().unwrap_or_default(),
        "version": package.version,
        "version_with_epoch": package.version_with_epoch(),
        "release": package.release,
        "architecture": package.architecture,
        "appversion": package.appversion(),
    })
}

/// A value as people write it: texts as they are, the rest as JSON.
fn shown(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => serde_json::to_string(value).unwrap_or_else(|_| value.to_string()),
    }
}

fn quoted(path: &str) -> String {
    format!("‹{path}›")
}

/// Puts a stand-in at a path. What is a number in the end is one here too.
fn stand_in(values: &mut Map<String, Json>, path: &'static str) {
    let package = |values: &Map<String, Json>| values.get("package").cloned().unwrap_or_default();
    let value = match path {
        "base.size" => json!(1 << 30),
        "packages" => json!([package(values)]),
        _ => json!(quoted(path)),
    };
    put(values, path, value);
}

/// Puts a value at a path of one or two keys.
fn put(values: &mut Map<String, Json>, path: &str, value: Json) {
    match path.split_once('.') {
        None => values.insert(path.into(), value),
        Some((table, field)) => {
            let table = values.entry(table).or_insert_with(|| json!({}));
            table.as_object_mut().and_then(|table| table.insert(field.into(), value))
        }
    };
}

fn stand_in_image(path: &str) -> Value {
    let field = |name: &str| (name.to_owned(), Value::from(quoted(&format!("{path}.{name}"))));
    Value::from(["id", "name", "region", "store"].map(field).into_iter().collect::<BTreeMap<_, _>>())
}

fn entries(value: &Value) -> BTreeMap<String, Value> {
    let keys = value.try_iter().into_iter().flatten();
    keys.filter_map(|key| Some((key.as_str()?.to_owned(), value.get_item(&key).ok()?))).collect()
}

/// A table of what users name themselves: what is known of it, and stand-ins for every other key.
#[derive(Debug)]
struct AnyKey {
    of: String,
    known: BTreeMap<String, Value>,
    make: Option<fn(&str) -> Value>,
}

impl Object for AnyKey {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let known = key.as_str().and_then(|key| self.known.get(key)).cloned();
        known.or_else(|| Some(self.make?(&format!("{}.{key}", self.of))))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.known.keys().map(|key| Value::from(key.as_str())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{lookup, render};
    use crate::{Architecture, BaseId, ImageId, Machine, PackageChanges, Region};

    fn known() -> Known {
        let vars = [("creator", "ann"), ("suffix", "{{ date | strftime('%Y%m%d') }}-{{ env.name }}")];
        let vars = vars.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        Known::new(vars, "local", "r1", "2026-11-30T12:00:00Z".parse().unwrap()).unwrap()
    }

    fn provisioned() -> Values {
        let package = Package::from_debian("hello", "1:2.0-3", "amd64");
        let installed =
            Installed { requested: vec![package.clone()], main: package, changes: PackageChanges::default() };
        let base = BaseImage {
            id: BaseId::new("base-1"),
            name: "debian".into(),
            region: Region::new("here"),
            architecture: Architecture::new("x86_64"),
            size: 1,
            tags: [("KEY".into(), "value".into())].into(),
            snapshot: None,
            machine: Machine::default(),
            borrowed: false,
        };
        known().provisioned(&base, &installed)
    }

    fn image() -> Image {
        Image {
            id: ImageId::new("img-1"),
            name: "one".into(),
            region: Region::new("there"),
            store: "local".into(),
            account: None,
        }
    }

    /// The list is what people read and what checks believe; here it is held against what bakes really give.
    #[test]
    fn the_list_of_names_is_what_there_is() {
        let images = [("NAME".to_owned(), image())].into();
        let values = provisioned().with_images(None, &images).to_value();
        let vars = [("vars.NAME", "vars.creator")];
        for name in NAMES {
            let path = vars.iter().find(|(path, _)| *path == name.path).map_or(name.path, |(_, path)| path);
            assert!(lookup(&values, path).is_some(), "`{path}` is in the list and not in the values");
            let stand_in = lookup(&known().stand_ins(Moment::Image), path);
            assert!(stand_in.is_some(), "`{path}` has no stand-in");
        }
        for (table, fields) in entries(&values) {
            for field in entries(&fields).into_keys() {
                assert!(find_name(&format!("{table}.{field}")).is_some(), "`{table}.{field}` is not in the list");
            }
        }
    }

    #[test]
    fn variables_may_be_templates_over_what_is_known_at_the_start() {
        assert_eq!(known().vars()["suffix"], "20261130-local");
        let vars = [("a".to_owned(), "{{ package.name }}".to_owned())].into();
        let error = Known::new(vars, "local", "r1", jiff::Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(error.name, "a");
        insta::assert_snapshot!(error.source, @"cannot evaluate `{{ package.name }}`: there is no `package`; there are: date, env, run");
    }

    #[test]
    fn names_are_known_at_their_moment_and_not_before() {
        let check = |text, moment| known().check(text, moment).map_err(|error| error.reason);
        assert_eq!(check("{{ package.name }}-{{ base.tags.any }}-{{ vars.creator }}", Moment::Provision), Ok(()));
        assert_eq!(check("{{ image.id }} {{ images.ebs.id }}", Moment::Image), Ok(()));
        insta::assert_snapshot!(check("{{ image.id }}", Moment::Provision).unwrap_err(), @"`image.id` is known only once an image is registered, which is too late here");
        insta::assert_snapshot!(check("{{ vars.craetor }}", Moment::Provision).unwrap_err(), @"there is no `craetor` in `vars`; there are: creator, suffix");
        insta::assert_snapshot!(check("{{ images.ebs.ip }}", Moment::Image).unwrap_err(), @"there is no `ip` in `images.ebs`; there are: id, name, region, store");
        assert!(known().check_predicate("package.version == '1'", Moment::Base).is_err());
        assert_eq!(find_name("base.tags.team").unwrap().path, "base.tags.KEY");
        assert_eq!(find_name("nowhere"), None);
    }

    #[test]
    fn a_template_can_be_shown_before_its_values_are_known() {
        let shown = render("{{ package.name }}-{{ vars.suffix }}", &known().stand_ins(Moment::Provision)).unwrap();
        assert_eq!(shown, "‹package.name›-20261130-local");
    }

    #[test]
    fn what_is_not_known_yet_is_named_and_stood_in_for() {
        let explained = known().explain("{{ package.name }}-{{ vars.creator }}", &Facts::default()).unwrap();
        assert_eq!((explained.value, explained.pattern), (None, Some("‹package.name›-ann".into())));
        let names: Vec<_> = explained.names.iter().map(|name| (name.path.as_str(), name.value.as_deref())).collect();
        assert_eq!(names, [("package.name", None), ("vars.creator", Some("ann"))]);
        assert!(known().explain("{{ package.nmae }}", &Facts::default()).is_err());
        assert!(known().explain("vars.craetor == 'x'", &Facts::default()).is_err());
    }

    #[test]
    fn facts_make_it_known() {
        let given = |path: &str, text: &str| Facts { given: [(path.into(), text.into())].into(), ..Facts::default() };
        let value = |text, facts: &Facts| known().explain(text, facts).unwrap().value;
        assert_eq!(value("package.version == '1'", &Facts::default()), None);
        assert_eq!(value("package.version == '1'", &given("package.version", "1")).as_deref(), Some("true"));
        assert_eq!(value("{{ base.tags.team }}", &given("base.tags.team", "red")).as_deref(), Some("red"));
        let images: BTreeMap<_, _> = [("ebs".to_owned(), image())].into();
        let facts = Facts { images, ..Facts::default() };
        assert_eq!(value("{{ images.ebs.id }} {{ image.id }}", &facts).as_deref(), Some("img-1 img-1"));
        assert!(known().explain("{{ images.s3.id }}", &facts).is_err(), "all images are known, and this is none");
    }

    #[test]
    fn the_image_that_is_meant_says_the_region() {
        let (one, two) = (image(), Image { region: Region::new("elsewhere"), ..image() });
        let region = |values: Values| render("{{ region }}", &values.to_value()).unwrap();
        assert_eq!(region(provisioned()), "here");
        assert_eq!(region(provisioned().in_region(&Region::new("copy"))), "copy");
        let two_images: BTreeMap<_, _> = [("one".to_owned(), one.clone()), ("two".to_owned(), two.clone())].into();
        assert_eq!(region(provisioned().with_images(Some(&two), &two_images)), "elsewhere");
        assert_eq!(region(provisioned().with_images(None, &two_images)), "here", "nobody can tell which is meant");
        let copied: BTreeMap<_, _> = [("one".to_owned(), one), ("elsewhere/one".to_owned(), two)].into();
        assert_eq!(region(provisioned().with_images(None, &copied)), "there", "a copy is not what is meant");
    }
}
