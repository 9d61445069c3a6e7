//! What the result is called: names, description and tags, rendered once the package database has spoken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bake_config::{Condition, Origin, Stage, Text};
use bake_engine::{Classify, StepContext, StepError, StepResult};
use minijinja::Value;
use sha2::{Digest, Sha256};

use crate::bake::FinalizerUse;
use crate::image_name::image_name;
use crate::known::{Known, Moment, Values};
use crate::plugin::{ImageName, PlanError, TagTemplates, Templates};
use crate::tag_limits::{COUNT_LIMIT, TagError, check_tags, check_users_key};
use crate::template::{self, TemplateError};
use crate::{BaseImage, Identity, Installed, Region, Renamed, Rendered, Tags};

/// The name Aminator's users know. The suffix, a time stamp by default, keeps it unique.
pub const DEFAULT_NAME: &str =
    "{{ package.name }}-{{ package.version }}-{{ package.release }}-{{ arch }}-{{ vars.suffix }}";

/// The description Aminator's users know, of image and snapshot.
pub const DEFAULT_DESCRIPTION: &str = "name={{ package.name }}, arch={{ arch }}, ancestor_name={{ base.name }}, \
     ancestor_id={{ base.id }}, ancestor_version={{ base.tags.base_ami_version | default('') }}";

/// The key of the description among a finalizer's texts, and of the setting.
pub const DESCRIPTION: &str = "description";

/// Longest description, in characters; EC2 allows no more.
const LONGEST_DESCRIPTION: usize = 255;

/// Tags that everything carries besides: `bake:run`, `bake:step` and `bake:op`.
const OWN_TAGS: [&str; 3] = ["bake:run", "bake:step", "bake:op"];

/// When a finalizer's conditions are decided.
///
/// As early as possible, so that what cannot be decided stops the bake before anything that stays is made.
pub(crate) fn moment(conditions: &[Condition]) -> Moment {
    let names = conditions.iter().flat_map(|condition| template::names_in(&condition.predicate.text));
    let about_images = |name: String| ["image", "images"].contains(&name.split('.').next().unwrap_or_default());
    if names.into_iter().any(about_images) { Moment::Image } else { Moment::Provision }
}

/// Decides whether all conditions are met. What comes after one that is not is not asked, so that it may rely on it.
pub(crate) fn decide(finalizer: &str, conditions: &[Condition], values: &Value) -> StepResult<bool> {
    for Condition { predicate, holds } in conditions {
        let decided = template::holds(&predicate.text, values)
            .permanent()
            .map_err(|error| error.context(format!("{}: cannot tell whether `{finalizer}` runs", predicate.origin)))?;
        if decided != *holds {
            return Ok(false);
        }
    }
    Ok(true)
}

/// All that the step `identity` renders and decides.
#[derive(Clone)]
pub(crate) struct IdentityPlan {
    known: Arc<Known>,
    parts: Arc<[Part]>,
}

/// One finalizer's share.
struct Part {
    name: String,
    stage: Stage,
    conditions: Vec<Condition>,
    templates: Templates,
}

impl IdentityPlan {
    /// Collects what the finalizers of a set want. `name` is what the images are called, whatever the finalizers say.
    pub(crate) fn new<'a>(
        known: Arc<Known>,
        name: Option<&Text>,
        finalizers: impl Iterator<Item = &'a FinalizerUse> + Clone,
    ) -> Self {
        let parts = finalizers.clone().map(|placed| Part {
            name: placed.name.clone(),
            stage: placed.finalizer.stage(),
            conditions: placed.conditions.clone(),
            templates: with_name(placed.finalizer.templates(), name),
        });
        Self { known, parts: parts.collect() }
    }

    /// Finds what is wrong with any text whatever its values will be: all mistakes there are.
    pub(crate) fn check(&self) -> Vec<PlanError> {
        self.parts.iter().flat_map(|part| part.check(&self.known)).collect()
    }

    /// Renders everything and freezes it: what is made from here on is called as is said here.
    pub(crate) fn render(&self, cx: &StepContext, base: &BaseImage, installed: &Installed) -> StepResult<Identity> {
        let values = self.known.provisioned(base, installed);
        let mut identity = Identity { content_key: content_key(base, installed), ..Identity::default() };
        for part in self.parts.iter() {
            let runs = match moment(&part.conditions) {
                Moment::Image => None,
                _ => Some(decide(&part.name, &part.conditions, &values.to_value())?),
            };
            identity.runs.extend(runs.map(|runs| (part.name.clone(), runs)));
            if runs == Some(false) {
                continue;
            }
            let rendered = part.render(&values.to_value(), &mut identity.renamed)?;
            identity.finalizers.insert(part.name.clone(), rendered);
        }
        identity.description = self.description(&identity, &values)?;
        self.refuse_equal_names(&identity)?;
        for Renamed { finalizer, wanted, given } in &identity.renamed {
            cx.log(&format!(
                "the image of `{finalizer}` is called `{given}`, since `{wanted}` is too long or not legal"
            ));
        }
        Ok(identity)
    }

    /// Renders the tags of copies in one region: those that all finalizers want that run.
    pub(crate) fn copy_tags(
        &self,
        region: &Region,
        (base, installed, identity): (&BaseImage, &Installed, &Identity),
    ) -> StepResult<Tags> {
        let values = self.known.provisioned(base, installed).in_region(region).to_value();
        let running = self.parts.iter().filter(|part| identity.finalizers.contains_key(&part.name));
        let tags = running.map(|part| part.tags("copies", &part.templates.copy_tags, &values));
        Ok(tags.collect::<StepResult<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// The snapshot's description is that of the first image that is made of it.
    fn description(&self, identity: &Identity, values: &Values) -> StepResult<String> {
        let registering = self.parts.iter().filter(|part| part.stage == Stage::Register);
        let described = registering.filter_map(|part| identity.finalizers.get(&part.name)?.texts.get(DESCRIPTION));
        match described.into_iter().next() {
            Some(description) => Ok(description.clone()),
            None => Ok(shortened(template::render(DEFAULT_DESCRIPTION, &values.to_value()).permanent()?)),
        }
    }

    /// Two images of one name cannot be in one region. Finalizers of which one runs instead of the other may share one.
    fn refuse_equal_names(&self, identity: &Identity) -> StepResult<()> {
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        for (finalizer, runs) in &identity.runs {
            let rendered = identity.finalizers.get(finalizer).filter(|_| *runs);
            let Some(name) = rendered.and_then(|rendered| rendered.texts.get(ImageName::KEY)) else { continue };
            if let Some(other) = owners.insert(name, finalizer) {
                let error = format!("the images of `{other}` and `{finalizer}` would both be called `{name}`");
                let hint = format!("give one of them another `image_name`: `{finalizer}: {{ image_name: … }}`");
                return Err(StepError::permanent(error).hint(hint));
            }
        }
        Ok(())
    }
}

fn with_name(mut templates: Templates, name: Option<&Text>) -> Templates {
    if let (Some(own), Some(name)) = (&mut templates.image_name, name) {
        own.template = Text { text: format!("{}{}", name.text, own.ending), origin: name.origin.clone() };
    }
    templates
}

/// What was made, whenever and whoever made it: the base image and what is in the root now.
fn content_key(base: &BaseImage, installed: &Installed) -> String {
    let content =
        serde_json::json!({ "base": base.id, "requested": installed.requested, "changes": installed.changes });
    let digest = Sha256::digest(content.to_string().as_bytes());
    digest[..10].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Part {
    fn check(&self, known: &Known) -> Vec<PlanError> {
        let late: BTreeSet<&String> = self.templates.late.keys().collect();
        let texts = self.templates.all().into_iter().map(|(key, text)| {
            let moment = if late.contains(&key) { Moment::Image } else { Moment::Provision };
            (key, text, known.check(&text.text, moment))
        });
        let moment = moment(&self.conditions);
        let predicates = self.conditions.iter().map(|condition| {
            let text = &condition.predicate;
            ("when".to_owned(), text, known.check_predicate(&text.text, moment))
        });
        let all = texts.chain(predicates);
        let wrong = all.filter_map(|(key, text, checked)| Some(self.wrong(key, &text.origin, checked.err()?)));
        wrong.chain(self.check_what_is_certain(known)).collect()
    }

    /// What can be told of names and tags now: keys, their number, and values with nothing in them that is not known yet.
    fn check_what_is_certain(&self, known: &Known) -> Vec<PlanError> {
        let tables = self.templates.tags.values().chain([&self.templates.copy_tags]);
        let mut wrong: BTreeMap<(Origin, String), PlanError> = BTreeMap::new();
        let mut note = |origin: &Origin, source: TagError| {
            let mistake = PlanError::Tag { finalizer: self.name.clone(), origin: origin.clone(), source };
            wrong.insert((origin.clone(), mistake.to_string()), mistake);
        };
        for table in tables {
            let mut tags = Tags::new();
            for (key, text) in table {
                let value = known.certain(&text.text).unwrap_or_default();
                tags.insert(key.clone(), value.clone());
                if let Err(source) = check_users_key(key).and_then(|()| check_tags(&[(key.clone(), value)].into())) {
                    note(&text.origin, source);
                }
            }
            let count = tags.len() + OWN_TAGS.len();
            if let (true, Some(text)) = (count > COUNT_LIMIT, table.values().next()) {
                note(&text.origin, TagError::Count(count));
            }
        }
        let name = self.templates.image_name.iter().filter_map(|name| {
            let source = image_name(&known.certain(&name.template.text)?).err()?;
            let (finalizer, origin) = (self.name.clone(), name.template.origin.clone());
            Some(PlanError::ImageName { finalizer, origin, source })
        });
        wrong.into_values().chain(name).collect()
    }

    fn wrong(&self, key: String, origin: &Origin, source: TemplateError) -> PlanError {
        PlanError::Template { finalizer: self.name.clone(), key, origin: origin.clone(), source: Box::new(source) }
    }

    fn render(&self, values: &Value, renamed: &mut Vec<Renamed>) -> StepResult<Rendered> {
        let mut rendered = Rendered::default();
        if let Some(name) = &self.templates.image_name {
            let wanted = self.text(ImageName::KEY, &name.template, values)?;
            let given =
                image_name(&wanted).permanent().map_err(|error| self.placed(error, ImageName::KEY, &name.template))?;
            if given != wanted {
                renamed.push(Renamed { finalizer: self.name.clone(), wanted, given: given.clone() });
            }
            rendered.texts.insert(ImageName::KEY.into(), given);
        }
        for (key, text) in &self.templates.texts {
            let filled = self.text(key, text, values)?;
            let filled = if key == DESCRIPTION { shortened(filled) } else { filled };
            rendered.texts.insert(key.clone(), filled);
        }
        for (table, tags) in &self.templates.tags {
            rendered.tags.insert(table.clone(), self.tags(table, tags, values)?);
        }
        Ok(rendered)
    }

    fn tags(&self, table: &str, templates: &TagTemplates, values: &Value) -> StepResult<Tags> {
        let mut tags = Tags::new();
        for (key, text) in templates {
            check_users_key(key).permanent().map_err(|error| self.placed(error, table, text))?;
            let filled = self.text(&format!("tags.{key}"), text, values)?;
            check_tags(&[(key.clone(), filled.clone())].into())
                .permanent()
                .map_err(|error| self.placed(error, table, text))?;
            tags.insert(key.clone(), filled);
        }
        let with_own: Tags =
            tags.clone().into_iter().chain(OWN_TAGS.map(|key| (key.to_owned(), String::new()))).collect();
        check_tags(&with_own).permanent().map_err(|error| error.context(format!("the tags of `{}`", self.name)))?;
        Ok(tags)
    }

    fn text(&self, key: &str, text: &Text, values: &Value) -> StepResult<String> {
        template::render(&text.text, values).permanent().map_err(|error| self.placed(error, key, text))
    }

    fn placed(&self, error: StepError, key: &str, text: &Text) -> StepError {
        error.context(format!("{}: `{key}` of the finalizer `{}`", text.origin, self.name))
    }
}

/// Cuts a description that is too long; its end says least.
fn shortened(description: String) -> String {
    match description.char_indices().nth(LONGEST_DESCRIPTION) {
        None => description,
        Some(_) => description.chars().take(LONGEST_DESCRIPTION - 3).chain("...".chars()).collect(),
    }
}

#[cfg(test)]
mod tests;
