//! Instances: the machines that bakes run on.

use super::filter;
use crate::answer::{Answer, Answered, Refusal, Xml};
use crate::machine::{Kernel, Machine};
use crate::server::Call;
use crate::world::{Space, World};

/// The zones of each region.
const ZONES: [char; 3] = ['a', 'b', 'c'];

pub(super) fn describe(world: &mut World, mut call: Call) -> Answered {
    let (ids, filters) = (call.params.list("InstanceId"), filter::take(&mut call.params)?);
    let machines = world.machines.clone();
    let ours = machines.iter().filter(|machine| machine.account == call.account && machine.region == call.region);
    let ours: Vec<&Machine> = ours.collect();
    if let Some(id) = ids.iter().find(|id| !ours.iter().any(|machine| machine.id == **id)) {
        return Err(Refusal::new("InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist")));
    }
    let space = world.space(&call.region)?;
    let mut found = Vec::new();
    for machine in ours {
        let field = |name: &str| match name {
            "instance-id" => Some(vec![machine.id.clone()]),
            "instance-state-name" => Some(vec!["running".to_owned()]),
            "availability-zone" => Some(vec![machine.zone.clone()]),
            _ => None,
        };
        if (ids.is_empty() || ids.contains(&machine.id)) && filter::meets(&filters, field)? {
            let reservation = Xml::new().text("reservationId", "r-0123456789abcdef0").text("ownerId", &machine.account);
            found.push(reservation.list("instancesSet", [xml(machine, space)]));
        }
    }
    let (found, next) = super::page(&mut call.params, found, !ids.is_empty())?;
    call.params.done()?;
    Ok(Answer::Xml(Xml::new().list("reservationSet", found).maybe("nextToken", next)))
}

fn xml(machine: &Machine, space: &Space) -> Xml {
    let mapping = |device: &str, volume: &str, status: &str| {
        Xml::new().text("deviceName", device).element("ebs", Xml::new().text("volumeId", volume).text("status", status))
    };
    let attached = space.volumes.values().filter_map(|volume| {
        let attachment = volume.attachment.as_ref().filter(|attachment| attachment.machine == machine.id)?;
        Some(mapping(&attachment.device, &volume.id, attachment.state()))
    });
    let root = mapping(machine.root_device(), "vol-0aaaaaaaaaaaaaaaa", "attached");
    let state = Xml::new().text("code", 16).text("name", "running");
    let kind = if machine.kernel == Kernel::Nvme { "m7i.large" } else { "m4.large" };
    Xml::new()
        .text("instanceId", &machine.id)
        .element("instanceState", state)
        .text("instanceType", kind)
        .element("placement", Xml::new().text("availabilityZone", &machine.zone))
        .text("architecture", "x86_64")
        .text("rootDeviceName", machine.root_device())
        .text("rootDeviceType", "ebs")
        .list("blockDeviceMapping", std::iter::once(root).chain(attached))
}

pub(super) fn zones(call: Call) -> Answered {
    call.params.done()?;
    let zone = |letter| {
        let name = format!("{}{letter}", call.region);
        Xml::new().text("zoneName", name).text("zoneState", "available").text("regionName", &call.region)
    };
    Ok(Answer::Xml(Xml::new().list("availabilityZoneInfo", ZONES.into_iter().map(zone))))
}

/// Tells whether a region has a zone.
pub(super) fn is_zone(region: &str, zone: &str) -> bool {
    zone.strip_prefix(region).is_some_and(|letter| ZONES.iter().any(|one| one.to_string() == letter))
}
