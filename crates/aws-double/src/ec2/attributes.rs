//! Attributes of images and snapshots: who may use them, and how long.

use std::collections::BTreeSet;

use crate::answer::{Answer, Answered, Refusal, Xml};
use crate::params::Params;
use crate::server::{Call, done};
use crate::world::{Image, Snapshot, World};

fn image<'a>(world: &'a mut World, call: &Call, id: &str) -> Result<&'a mut Image, Refusal> {
    let now = std::time::Instant::now();
    let image = world.space(&call.region)?.images.get_mut(id);
    let image = image.filter(|image| image.owner == call.account && image.visible <= now);
    match image {
        None => Err(Refusal::new("InvalidAMIID.NotFound", format!("The image id '[{id}]' does not exist"))),
        Some(image) if image.deregistered => {
            Err(Refusal::new("InvalidAMIID.Unavailable", format!("The image ID '{id}' is no longer available")))
        }
        Some(image) => Ok(image),
    }
}

fn snapshot<'a>(world: &'a mut World, call: &Call, id: &str) -> Result<&'a mut Snapshot, Refusal> {
    let snapshot = world.space(&call.region)?.snapshots.get_mut(id);
    snapshot
        .filter(|snapshot| snapshot.owner == call.account)
        .ok_or_else(|| Refusal::new("InvalidSnapshot.NotFound", format!("The snapshot '{id}' does not exist.")))
}

fn check_account(account: &str) -> Result<(), Refusal> {
    match account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(()),
        false => {
            Err(Refusal::new("InvalidAMIAttributeItemValue", format!("Invalid attribute item value \"{account}\"")))
        }
    }
}

fn permissions(params: &mut Params, name: &str) -> Result<Vec<String>, Refusal> {
    let mut accounts = Vec::new();
    for mut permission in params.structures(name) {
        let account = permission.need("UserId")?;
        permission.done()?;
        check_account(&account)?;
        accounts.push(account);
    }
    Ok(accounts)
}

pub(super) fn modify_image(world: &mut World, mut call: Call) -> Answered {
    let params = &mut call.params;
    let id = params.need("ImageId")?;
    let (add, remove) = (permissions(params, "LaunchPermission.Add")?, permissions(params, "LaunchPermission.Remove")?);
    let description = params.take("Description.Value");
    let imds = params.take("ImdsSupport.Value");
    std::mem::take(params).done()?;
    let asked = [!add.is_empty() || !remove.is_empty(), description.is_some(), imds.is_some()];
    match asked.into_iter().filter(|asked| *asked).count() {
        1 => {}
        0 => return Err(Refusal::new("InvalidParameterCombination", "No attributes specified.")),
        _ => return Err(Refusal::new("InvalidParameterCombination", "Fields for multiple attribute types specified")),
    }
    if description.as_ref().is_some_and(String::is_empty) {
        return Err(Refusal::new("MissingParameter", "The request must contain the parameter description"));
    }
    let image = image(world, &call, &id)?;
    image.launch.extend(add);
    image.launch.retain(|account| !remove.contains(account));
    image.description = description.or(image.description.take());
    image.imds = imds.or(image.imds.take());
    done()
}

pub(super) fn describe_image(world: &mut World, mut call: Call) -> Answered {
    let (id, attribute) = (call.params.need("ImageId")?, call.params.need("Attribute")?);
    std::mem::take(&mut call.params).done()?;
    let image = image(world, &call, &id)?;
    let xml = Xml::new().text("imageId", &id);
    match attribute.as_str() {
        "launchPermission" => {
            let accounts = image.launch.iter().map(|account| Xml::new().text("userId", account));
            Ok(Answer::Xml(xml.list("launchPermission", accounts)))
        }
        "description" => {
            Ok(Answer::Xml(xml.element("description", Xml::new().maybe("value", image.description.as_ref()))))
        }
        "blockDeviceMapping" => Err(Refusal::new("AuthFailure", "Unauthorized attempt to access restricted resource")),
        other => Err(Refusal::new("InvalidParameterValue", format!("Invalid value '{other}' for attribute"))),
    }
}

pub(super) fn modify_snapshot(world: &mut World, mut call: Call) -> Answered {
    let params = &mut call.params;
    let (id, attribute, way) = (params.need("SnapshotId")?, params.need("Attribute")?, params.need("OperationType")?);
    let accounts = params.list("UserId");
    std::mem::take(params).done()?;
    if attribute != "createVolumePermission" {
        return Err(Refusal::new("InvalidParameterValue", format!("Invalid value '{attribute}' for attribute")));
    }
    if accounts.is_empty() || accounts.len() > 500 {
        return Err(Refusal::new("InvalidParameterValue", "Between 1 and 500 accounts may be given"));
    }
    accounts.iter().try_for_each(|account| check_account(account))?;
    let snapshot = snapshot(world, &call, &id)?;
    if snapshot.encrypted && snapshot.key.is_none() {
        let message = "Encrypted snapshots with EBS default key cannot be shared";
        return Err(Refusal::new("OperationNotPermitted", message));
    }
    match way.as_str() {
        "add" => snapshot.volumes.extend(accounts),
        "remove" => snapshot.volumes.retain(|account| !accounts.contains(account)),
        other => return Err(Refusal::new("InvalidParameterValue", format!("Invalid operation type '{other}'"))),
    }
    done()
}

pub(super) fn describe_snapshot(world: &mut World, mut call: Call) -> Answered {
    let (id, _attribute) = (call.params.need("SnapshotId")?, call.params.need("Attribute")?);
    std::mem::take(&mut call.params).done()?;
    let accounts: BTreeSet<String> = snapshot(world, &call, &id)?.volumes.clone();
    let accounts = accounts.iter().map(|account| Xml::new().text("userId", account));
    Ok(Answer::Xml(Xml::new().text("snapshotId", &id).list("createVolumePermission", accounts)))
}

pub(super) fn deprecate(world: &mut World, mut call: Call) -> Answered {
    let (id, at) = (call.params.need("ImageId")?, call.params.need("DeprecateAt")?);
    std::mem::take(&mut call.params).done()?;
    let time: Result<jiff::Timestamp, _> = at.parse();
    if time.is_err() || time.is_ok_and(|time| time <= jiff::Timestamp::now()) {
        return Err(Refusal::new("InvalidParameterValue", format!("The deprecation time {at} is not in the future")));
    }
    image(world, &call, &id)?.deprecated = Some(at);
    done()
}

pub(super) fn protect(world: &mut World, mut call: Call, on: bool) -> Answered {
    let id = call.params.need("ImageId")?;
    let cooldown = call.params.parsed::<bool>("WithCooldown")?.unwrap_or(false);
    std::mem::take(&mut call.params).done()?;
    let protection = match (on, cooldown) {
        (false, _) => "disabled",
        (true, false) => "enabled-without-cooldown",
        (true, true) => "enabled-with-cooldown",
    };
    image(world, &call, &id)?.protection = protection.into();
    Ok(Answer::Xml(Xml::new().text("return", protection)))
}
