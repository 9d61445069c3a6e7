//! Volumes: made, attached, snapshotted, detached and deleted.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use rustix::fs::SeekFrom;
use sha2::{Digest as _, Sha256};

use super::{filter, instances, of_kind, specified, tag_set};
use crate::answer::{Answer, Answered, Refusal, Xml};
use crate::blocks::{BLOCK, Blocks};
use crate::machine::slot;
use crate::server::{Call, done};
use crate::world::{Attachment, Snapshot, Stage, Volume, World};

/// The types that bakes use.
const TYPES: [&str; 7] = ["gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"];

pub(super) fn create(world: &mut World, mut call: Call) -> Answered {
    let params = &mut call.params;
    let canonical = format!("{:?}", params.all());
    let (zone, kind) = (params.need("AvailabilityZone")?, params.take("VolumeType").unwrap_or("gp2".into()));
    let (from, size) = (params.take("SnapshotId"), params.parsed::<u32>("Size")?);
    let (encrypted, token) = (params.parsed::<bool>("Encrypted")?, params.take("ClientToken"));
    let _speed = (params.parsed::<u32>("Iops")?, params.parsed::<u32>("Throughput")?, params.take("KmsKeyId"));
    let tags = of_kind(&specified(params, &["volume"])?, "volume");
    call.params.done()?;
    if !instances::is_zone(&call.region, &zone) {
        return Err(Refusal::new("InvalidZone.NotFound", format!("The zone '{zone}' does not exist.")));
    }
    if !TYPES.contains(&kind.as_str()) {
        return Err(Refusal::new("UnknownVolumeType", format!("Unsupported volume type '{kind}'")));
    }
    let (id, delays, encrypting) = (world.id("vol"), world.delays, world.encrypting.contains(&call.region));
    let space = world.space(&call.region)?;
    if let Some(token) = &token {
        let mut before = space.volumes.values().filter(|volume| volume.owner == call.account);
        if let Some((volume, (_, parameters))) =
            before.find_map(|one| Some((one, one.token.as_ref().filter(|(before, _)| before == token)?)))
        {
            return match *parameters == canonical {
                true => Ok(Answer::Xml(xml(volume))),
                false => Err(Refusal::new("IdempotentParameterMismatch", "The token was used with other parameters")),
            };
        }
    }
    let source = match &from {
        Some(id) => Some(readable(space.snapshots.get(id), id, &call.account)?),
        None => None,
    };
    let smallest = source.map(|snapshot| snapshot.size);
    let size = size
        .or(smallest)
        .ok_or_else(|| Refusal::new("MissingParameter", "The request must contain the parameter size or snapshotId"))?;
    if smallest.is_some_and(|smallest| size < smallest) || size == 0 {
        let message = format!("The volume size is invalid for {kind} volumes: {size} GiB is smaller than the snapshot");
        return Err(Refusal::new("InvalidParameterValue", message));
    }
    let now = Instant::now();
    let volume = Volume {
        id: id.clone(),
        owner: call.account.clone(),
        zone,
        size,
        kind,
        encrypted: encrypted.unwrap_or_else(|| encrypting || source.is_some_and(|snapshot| snapshot.encrypted)),
        origin: source.map(|snapshot| Arc::clone(&snapshot.blocks)),
        snapshot: from,
        tags,
        attachment: None,
        created: Timestamp::now(),
        ready: now + delays.volume,
        visible: now + delays.visibility,
        failed: call.doom.is_some(),
        token: token.map(|token| (token, canonical)),
        file: None,
    };
    let answer = xml(&volume);
    space.volumes.insert(id, volume);
    Ok(Answer::Xml(answer))
}

/// The snapshot that a volume begins with: complete, and readable by whoever asks.
fn readable<'a>(snapshot: Option<&'a Snapshot>, id: &str, account: &str) -> Result<&'a Snapshot, Refusal> {
    let may = |snapshot: &&Snapshot| snapshot.owner == account || snapshot.volumes.contains(account);
    let absent = || Refusal::new("InvalidSnapshot.NotFound", format!("The snapshot '{id}' does not exist."));
    let snapshot = snapshot.filter(may).ok_or_else(absent)?;
    match snapshot.is_complete() {
        true => Ok(snapshot),
        false => Err(Refusal::new("IncorrectState", format!("Snapshot is in invalid state - {}", snapshot.state().0))),
    }
}

pub(super) fn describe(world: &mut World, mut call: Call) -> Answered {
    let (ids, filters) = (call.params.list("VolumeId"), filter::take(&mut call.params)?);
    let now = Instant::now();
    let space = world.space(&call.region)?;
    let ours = |volume: &&Volume| volume.owner == call.account && volume.visible <= now;
    if let Some(id) = ids.iter().find(|id| space.volumes.get(*id).filter(ours).is_none()) {
        return Err(absent(id));
    }
    let mut found = Vec::new();
    for volume in space.volumes.values().filter(ours) {
        let by_id = ids.is_empty() || ids.contains(&volume.id);
        if by_id && filter::meets(&filters, |name| field(volume, name))? {
            found.push(xml(volume));
        }
    }
    let (found, next) = super::page(&mut call.params, found, !ids.is_empty())?;
    call.params.done()?;
    Ok(Answer::Xml(Xml::new().list("volumeSet", found).maybe("nextToken", next)))
}

fn absent(id: &str) -> Refusal {
    Refusal::new("InvalidVolume.NotFound", format!("The volume '{id}' does not exist."))
}

fn field(volume: &Volume, name: &str) -> Option<Vec<String>> {
    let attachment = volume.attachment.as_ref();
    Some(match name {
        "volume-id" => vec![volume.id.clone()],
        "status" => vec![volume.state().to_owned()],
        "snapshot-id" => volume.snapshot.iter().cloned().collect(),
        "availability-zone" => vec![volume.zone.clone()],
        "attachment.instance-id" => attachment.iter().map(|one| one.machine.clone()).collect(),
        "attachment.device" => attachment.iter().map(|one| one.device.clone()).collect(),
        "attachment.status" => attachment.iter().map(|one| one.state().to_owned()).collect(),
        "tag-key" => volume.tags.keys().cloned().collect(),
        name => volume.tags.get(name.strip_prefix("tag:")?).into_iter().cloned().collect(),
    })
}

fn xml(volume: &Volume) -> Xml {
    Xml::new()
        .text("volumeId", &volume.id)
        .text("size", volume.size)
        .maybe("snapshotId", volume.snapshot.as_ref())
        .text("availabilityZone", &volume.zone)
        .text("status", volume.state())
        .text("createTime", volume.created)
        .text("volumeType", &volume.kind)
        .text("encrypted", volume.encrypted)
        .list("attachmentSet", volume.attachment.iter().map(|one| attachment_xml(&volume.id, one)))
        .list("tagSet", tag_set(&volume.tags))
}

fn attachment_xml(volume: &str, attachment: &Attachment) -> Xml {
    Xml::new()
        .text("volumeId", volume)
        .text("instanceId", &attachment.machine)
        .text("device", &attachment.device)
        .text("status", attachment.state())
        .text("deleteOnTermination", false)
}

pub(super) fn attach(world: &mut World, mut call: Call) -> Answered {
    let params = &mut call.params;
    let (id, machine, device) = (params.need("VolumeId")?, params.need("InstanceId")?, params.need("Device")?);
    call.params.done()?;
    let now = Instant::now();
    let (delays, machines) = (world.delays, world.machines.clone());
    let unknown = || Refusal::new("InvalidInstanceID.NotFound", format!("The instance ID '{machine}' does not exist"));
    let ours = machines.iter().filter(|one| one.account == call.account && one.region == call.region);
    let machine = ours.into_iter().find(|one| one.id == machine).ok_or_else(unknown)?;
    let space = world.space(&call.region)?;
    let here = |one: &&Attachment| one.machine == machine.id;
    let attached = space.volumes.values().filter_map(|one| one.attachment.as_ref()).filter(here);
    let mut names: Vec<&str> = attached.map(|one| one.device.as_str()).collect();
    names.push(machine.root_device());
    if !is_device_name(&device) {
        let message =
            format!("Value ({device}) for parameter device is invalid. {device} is not a valid EBS device name.");
        return Err(Refusal::new("InvalidParameterValue", message));
    }
    if names.iter().any(|name| slot(name) == slot(&device)) {
        let message = format!("Invalid value '{device}' for unixDevice. Attachment point {device} is already in use");
        return Err(Refusal::new("InvalidParameterValue", message));
    }
    let volume = space.volumes.get_mut(&id).filter(|one| one.owner == call.account && one.visible <= now);
    let volume = volume.ok_or_else(|| absent(&id))?;
    match volume.state() {
        "available" => {}
        "in-use" => {
            return Err(Refusal::new("VolumeInUse", format!("{id} is already attached to an instance")));
        }
        state => return Err(Refusal::new("IncorrectState", format!("{id} is not 'available' but '{state}'."))),
    }
    if volume.zone != machine.zone {
        let message = format!("The volume '{id}' is not in the same availability zone as instance '{}'", machine.id);
        return Err(Refusal::new("InvalidVolume.ZoneMismatch", message));
    }
    let path = machine.file(&id);
    materialize(volume, &path).map_err(stumbled)?;
    volume.file = Some(path);
    let attachment = Attachment {
        machine: machine.id.clone(),
        device,
        ready: call.doom.is_none().then_some(now + delays.attach),
        detached: None,
        shown: None,
    };
    let answer = attachment_xml(&id, &attachment);
    volume.attachment = Some(attachment);
    advance(world)?;
    Ok(Answer::Xml(answer))
}

fn stumbled(error: io::Error) -> Refusal {
    Refusal::new("InternalError", error.to_string()).status(500)
}

fn is_device_name(name: &str) -> bool {
    let rest = name.strip_prefix("/dev/sd").or_else(|| name.strip_prefix("/dev/xvd"));
    let letters = rest.map(|rest| rest.trim_end_matches(|c: char| c.is_ascii_digit()));
    letters.is_some_and(|letters| !letters.is_empty() && letters.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// Writes the bytes that a volume began with into its file.
fn materialize(volume: &Volume, path: &Path) -> io::Result<()> {
    if volume.file.is_some() {
        return Ok(());
    }
    let file = File::create(path)?;
    file.set_len(u64::from(volume.size) << 30)?;
    let Some(origin) = &volume.origin else { return Ok(()) };
    for index in origin.all().into_keys() {
        let (data, _) = origin.get(index)?.expect("it is listed");
        file.write_all_at(&data, u64::from(index) * BLOCK as u64)?;
    }
    Ok(())
}

pub(super) fn detach(world: &mut World, mut call: Call) -> Answered {
    let params = &mut call.params;
    let (id, machine) = (params.need("VolumeId")?, params.take("InstanceId"));
    let (_device, _force) = (params.take("Device"), params.parsed::<bool>("Force")?);
    call.params.done()?;
    let (now, delays) = (Instant::now(), world.delays);
    let space = world.space(&call.region)?;
    let volume = space.volumes.get_mut(&id).filter(|one| one.owner == call.account && one.visible <= now);
    let volume = volume.ok_or_else(|| absent(&id))?;
    let state = volume.state();
    let Some(attachment) = &mut volume.attachment else {
        return Err(Refusal::new("IncorrectState", format!("Volume '{id}' is in the '{state}' state.")));
    };
    if machine.is_some_and(|machine| machine != attachment.machine) {
        let message = format!("Volume '{id}' is not attached to that instance");
        return Err(Refusal::new("InvalidAttachment.NotFound", message));
    }
    if attachment.detached.is_some() {
        return Err(Refusal::new("IncorrectState", format!("Volume '{id}' is in the 'detaching' state.")));
    }
    attachment.detached = Some(now + delays.detach);
    Ok(Answer::Xml(attachment_xml(&id, attachment)))
}

/// Shows the disks of volumes that are attached by now, and takes away those of which it was asked and that nobody has open any more.
pub(crate) fn advance(world: &mut World) -> Result<(), Refusal> {
    let (now, machines) = (Instant::now(), world.machines.clone());
    for volume in world.regions.values_mut().flat_map(|space| space.volumes.values_mut()) {
        let due = |one: &mut Attachment| one.detached.is_some_and(|at| at <= now);
        let gone = volume.attachment.take_if(|one| due(one) && one.shown.as_ref().is_none_or(|shown| shown.unplug()));
        drop(gone);
        let Some(attachment) = &mut volume.attachment else { continue };
        if attachment.shown.is_none() && attachment.state() == "attached" {
            let machine = machines.iter().find(|machine| machine.id == attachment.machine);
            let machine = machine.expect("it was attached to one of them");
            attachment.shown = Some(Arc::new(machine.plug(&volume.id, &attachment.device).map_err(stumbled)?));
        }
    }
    Ok(())
}

pub(super) fn delete(world: &mut World, mut call: Call) -> Answered {
    let id = call.params.need("VolumeId")?;
    call.params.done()?;
    let space = world.space(&call.region)?;
    let now = Instant::now();
    let volume = space.volumes.get(&id).filter(|one| one.owner == call.account && one.visible <= now);
    let volume = volume.ok_or_else(|| absent(&id))?;
    if volume.state() == "creating" {
        return Err(Refusal::new("IncorrectState", format!("Volume '{id}' is in the 'creating' state.")));
    }
    if let Some(attachment) = &volume.attachment {
        let message = format!("Volume {id} is currently attached to {}", attachment.machine);
        return Err(Refusal::new("VolumeInUse", message));
    }
    if let Some(file) = &volume.file {
        std::fs::remove_file(file).map_err(stumbled)?;
    }
    space.volumes.remove(&id);
    done()
}

pub(super) fn snapshot(world: &mut World, mut call: Call) -> Answered {
    let params = &mut call.params;
    let (id, description) = (params.need("VolumeId")?, params.take("Description"));
    let tags = of_kind(&specified(params, &["snapshot"])?, "snapshot");
    call.params.done()?;
    if description.as_ref().is_some_and(|text| text.chars().count() > 255) {
        return Err(Refusal::new("InvalidParameterValue", "The description is longer than 255 characters"));
    }
    let (now, delays, snapshot) = (Instant::now(), world.delays, world.id("snap"));
    let space = world.space(&call.region)?;
    let volume = space.volumes.get(&id).filter(|one| one.owner == call.account && one.visible <= now);
    let volume = volume.ok_or_else(|| absent(&id))?;
    if !matches!(volume.state(), "available" | "in-use") {
        return Err(Refusal::new("IncorrectState", format!("Volume '{id}' is in the '{}' state.", volume.state())));
    }
    let blocks = bytes(volume).map_err(stumbled)?;
    let snapshot = Snapshot {
        volume: id,
        description,
        tags,
        encrypted: volume.encrypted,
        stage: Stage::Ended { at: now + delays.snapshot, failure: call.doom.clone() },
        ..Snapshot::new(snapshot, &call.account, volume.size, blocks, &delays)
    };
    let answer = super::snapshots::xml(&snapshot);
    space.snapshots.insert(snapshot.id.clone(), snapshot);
    Ok(Answer::Xml(answer))
}

/// The bytes of a volume as they are now, over those that it began with.
fn bytes(volume: &Volume) -> io::Result<Blocks> {
    let blocks = Blocks::new(volume.origin.clone())?;
    let Some(path) = &volume.file else { return Ok(blocks) };
    if let Some(shown) = volume.attachment.as_ref().and_then(|attachment| attachment.shown.as_ref()) {
        shown.sync()?;
    }
    let (file, before) = (File::open(path)?, volume.origin.as_ref().map(|origin| origin.all()).unwrap_or_default());
    let mut indexes: BTreeSet<u32> = before.keys().copied().collect();
    indexes.extend(data_blocks(&file)?);
    let mut data = vec![0; BLOCK];
    for index in indexes {
        file.read_exact_at(&mut data, u64::from(index) * BLOCK as u64)?;
        let digest = Sha256::digest(&data).into();
        let nothing = || data.iter().all(|byte| *byte == 0);
        match before.get(&index) {
            Some(earlier) if *earlier == digest => {}
            None if nothing() => {}
            _ => blocks.put(index, &data, digest)?,
        }
    }
    Ok(blocks)
}

/// The blocks in which a sparse file has anything.
fn data_blocks(file: &File) -> io::Result<BTreeSet<u32>> {
    let (mut found, mut at) = (BTreeSet::new(), 0);
    loop {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(found),
            Err(error) => return Err(error.into()),
        };
        at = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        let number = |offset: u64| u32::try_from(offset / BLOCK as u64).expect("a disk of a test is small");
        found.extend(number(start)..=number(at - 1));
    }
}
