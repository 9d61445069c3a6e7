//! Tags and their limits.

use super::filter;
use crate::answer::{Answer, Answered, Refusal, Xml};
use crate::params::Params;
use crate::server::{Call, done};
use crate::world::{Tags, World};

/// Most tags of a resource.
const MOST: usize = 50;

/// Takes and checks the tags of a request: `Tag.1.Key`, `Tag.1.Value`.
pub(super) fn take(params: &mut Params) -> Result<Tags, Refusal> {
    let mut tags = Tags::new();
    for mut tag in params.structures("Tag") {
        let (key, value) = (tag.need("Key")?, tag.take("Value").unwrap_or_default());
        tag.done()?;
        if key.to_lowercase().starts_with("aws:") {
            let message = "Tag keys starting with 'aws:' are reserved for internal use";
            return Err(Refusal::new("InvalidParameterValue", message));
        }
        if key.is_empty() || key.chars().count() > 127 {
            let message = format!("Tag key '{key}' exceeds the maximum length of 127 characters or is empty");
            return Err(Refusal::new("InvalidParameterValue", message));
        }
        if value.chars().count() > 255 {
            let message = "Tag value exceeds the maximum length of 255 characters";
            return Err(Refusal::new("InvalidParameterValue", message));
        }
        if tags.insert(key.clone(), value).is_some() {
            return Err(Refusal::new("InvalidParameterValue", format!("Duplicate tag key '{key}' specified.")));
        }
    }
    match tags.len() {
        0..=MOST => Ok(tags),
        count => Err(Refusal::new("TagLimitExceeded", format!("{count} tags are more than {MOST}"))),
    }
}

pub(super) fn create(world: &mut World, mut call: Call) -> Answered {
    let (ids, tags) = (call.params.list("ResourceId"), take(&mut call.params)?);
    call.params.done()?;
    if ids.is_empty() || tags.is_empty() {
        return Err(Refusal::new("MissingParameter", "The request must contain resources and tags"));
    }
    let visible = std::time::Instant::now();
    let space = world.space(&call.region)?;
    for id in &ids {
        let there = match id.split('-').next() {
            Some("ami") => space
                .images
                .get_mut(id)
                .filter(|image| image.owner == call.account && !image.deregistered && image.visible <= visible)
                .map(|image| &mut image.tags)
                .ok_or("InvalidAMIID.NotFound"),
            Some("snap") => space
                .snapshots
                .get_mut(id)
                .filter(|snapshot| snapshot.owner == call.account && snapshot.visible <= visible)
                .map(|snapshot| &mut snapshot.tags)
                .ok_or("InvalidSnapshot.NotFound"),
            Some("vol") => space
                .volumes
                .get_mut(id)
                .filter(|volume| volume.owner == call.account && volume.visible <= visible)
                .map(|volume| &mut volume.tags)
                .ok_or("InvalidVolume.NotFound"),
            _ => Err("InvalidID"),
        };
        let there = there.map_err(|code| Refusal::new(code, format!("The resource '{id}' does not exist")))?;
        there.extend(tags.clone());
        if there.len() > MOST {
            return Err(Refusal::new("TagLimitExceeded", format!("The resource '{id}' has more than {MOST} tags")));
        }
    }
    done()
}

pub(super) fn describe(world: &mut World, mut call: Call) -> Answered {
    let filters = filter::take(&mut call.params)?;
    let space = world.space(&call.region)?;
    let images = space.images.values().filter(|image| image.owner == call.account && !image.deregistered);
    let images = images.map(|image| (&image.id, "image", &image.tags));
    let snapshots = space.snapshots.values().filter(|snapshot| snapshot.owner == call.account);
    let snapshots = snapshots.map(|snapshot| (&snapshot.id, "snapshot", &snapshot.tags));
    let volumes = space.volumes.values().filter(|volume| volume.owner == call.account);
    let volumes = volumes.map(|volume| (&volume.id, "volume", &volume.tags));
    let mut found = Vec::new();
    for (id, kind, tags) in images.chain(snapshots).chain(volumes) {
        for (key, value) in tags {
            let field = |name: &str| match name {
                "resource-id" => Some(vec![id.clone()]),
                "resource-type" => Some(vec![kind.to_owned()]),
                "key" => Some(vec![key.clone()]),
                "value" => Some(vec![value.clone()]),
                _ => None,
            };
            if filter::meets(&filters, field)? {
                found.push(
                    Xml::new().text("resourceId", id).text("resourceType", kind).text("key", key).text("value", value),
                );
            }
        }
    }
    let (found, next) = super::page(&mut call.params, found, false)?;
    call.params.done()?;
    Ok(Answer::Xml(Xml::new().list("tagSet", found).maybe("nextToken", next)))
}
