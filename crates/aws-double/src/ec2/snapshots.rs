//! Snapshots, as EC2 sees them.

use std::time::Instant;

use super::{filter, tag_set};
use crate::answer::{Answer, Answered, Refusal, Xml};
use crate::server::{Call, done};
use crate::world::{Snapshot, World};

pub(super) fn describe(world: &mut World, mut call: Call) -> Answered {
    let params = &mut call.params;
    let (ids, owners, filters) = (params.list("SnapshotId"), params.list("Owner"), filter::take(params)?);
    let now = Instant::now();
    let space = world.space(&call.region)?;
    for id in &ids {
        let there = space.snapshots.get(id).is_some_and(|snapshot| may_see(snapshot, &call.account, now));
        if !there {
            return Err(Refusal::new("InvalidSnapshot.NotFound", format!("The snapshot '{id}' does not exist.")));
        }
    }
    let mut found = Vec::new();
    for snapshot in space.snapshots.values().filter(|snapshot| may_see(snapshot, &call.account, now)) {
        let by_id = ids.is_empty() || ids.contains(&snapshot.id);
        let owner = |owner: &String| *owner == snapshot.owner || (owner == "self" && snapshot.owner == call.account);
        let by_owner = owners.is_empty() || owners.iter().any(owner);
        if by_id && by_owner && filter::meets(&filters, |name| field(snapshot, name))? {
            found.push(xml(snapshot));
        }
    }
    let (found, next) = super::page(&mut call.params, found, !ids.is_empty())?;
    call.params.done()?;
    Ok(Answer::Xml(Xml::new().list("snapshotSet", found).maybe("nextToken", next)))
}

fn may_see(snapshot: &Snapshot, account: &str, now: Instant) -> bool {
    (snapshot.owner == account || snapshot.volumes.contains(account)) && snapshot.visible <= now
}

fn field(snapshot: &Snapshot, name: &str) -> Option<Vec<String>> {
    Some(match name {
        "snapshot-id" => vec![snapshot.id.clone()],
        "status" => vec![snapshot.state().0.to_owned()],
        "volume-id" => vec![snapshot.volume.clone()],
        "description" => snapshot.description.iter().cloned().collect(),
        "tag-key" => snapshot.tags.keys().cloned().collect(),
        name => snapshot.tags.get(name.strip_prefix("tag:")?).iter().map(|value| (*value).clone()).collect(),
    })
}

pub(super) fn xml(snapshot: &Snapshot) -> Xml {
    let (state, reason) = snapshot.state();
    Xml::new()
        .text("snapshotId", &snapshot.id)
        .text("volumeId", &snapshot.volume)
        .text("status", state)
        .maybe("statusMessage", reason)
        .text("startTime", snapshot.created)
        .text("progress", if state == "completed" { "100%" } else { "0%" })
        .text("ownerId", &snapshot.owner)
        .text("volumeSize", snapshot.size)
        .maybe("description", snapshot.description.as_ref())
        .text("encrypted", snapshot.encrypted)
        .maybe("kmsKeyId", snapshot.key.as_ref())
        .list("tagSet", tag_set(&snapshot.tags))
}

pub(super) fn delete(world: &mut World, mut call: Call) -> Answered {
    let id = call.params.need("SnapshotId")?;
    call.params.done()?;
    let space = world.space(&call.region)?;
    let ours = space.snapshots.get(&id).is_some_and(|snapshot| snapshot.owner == call.account);
    if !ours {
        return Err(Refusal::new("InvalidSnapshot.NotFound", format!("The snapshot '{id}' does not exist.")));
    }
    let users = space.images.values().filter(|image| !image.deregistered);
    let mut users = users.filter(|image| image.disks.iter().any(|disk| disk.snapshot == id));
    if let Some(image) = users.next() {
        let message = format!("The snapshot {id} is currently in use by {}", image.id);
        return Err(Refusal::new("InvalidSnapshot.InUse", message));
    }
    space.snapshots.remove(&id);
    done()
}
