//! AMIs: registered, copied, described, deregistered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use super::{filter, of_kind, specified, tag_set};
use crate::answer::{Answer, Answered, Refusal, Xml};
use crate::blocks::Blocks;
use crate::params::Params;
use crate::server::Call;
use crate::world::{Disk, Image, Snapshot, Stage, World};

/// Largest sizes in GiB, by type.
const SIZES: [(&str, u32); 7] = [
    ("gp2", 16_384),
    ("gp3", 65_536),
    ("io1", 16_384),
    ("io2", 65_536),
    ("st1", 16_384),
    ("sc1", 16_384),
    ("standard", 1024),
];

pub(super) fn describe(world: &mut World, mut call: Call) -> Answered {
    let params = &mut call.params;
    let (ids, owners, filters) = (params.list("ImageId"), params.list("Owner"), filter::take(params)?);
    let _deprecated_are_seen_by_their_owner = params.parsed::<bool>("IncludeDeprecated")?;
    let _there_are_no_disabled_ones = params.parsed::<bool>("IncludeDisabled")?;
    let now = Instant::now();
    let space = world.space(&call.region)?;
    for id in &ids {
        let hex = id.strip_prefix("ami-").unwrap_or_default();
        if hex.len() != 17 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Refusal::new("InvalidAMIID.Malformed", format!("Invalid id: \"{id}\"")));
        }
        if space.images.get(id).is_none_or(|image| image.visible > now) {
            return Err(Refusal::new("InvalidAMIID.NotFound", format!("The image id '[{id}]' does not exist")));
        }
    }
    let mut found = Vec::new();
    for image in space.images.values() {
        let may = image.is_for(&call.account);
        let by_id =
            if ids.is_empty() { image.owner == call.account || !owners.is_empty() } else { ids.contains(&image.id) };
        let owner = |owner: &String| *owner == image.owner || (owner == "self" && image.owner == call.account);
        let by_owner = owners.is_empty() || owners.iter().any(owner);
        let there = !image.deregistered && image.visible <= now;
        if there && may && by_id && by_owner && filter::meets(&filters, |name| field(image, name))? {
            found.push(xml(image, &call.account));
        }
    }
    let (found, next) = super::page(&mut call.params, found, !ids.is_empty())?;
    call.params.done()?;
    Ok(Answer::Xml(Xml::new().list("imagesSet", found).maybe("nextToken", next)))
}

fn field(image: &Image, name: &str) -> Option<Vec<String>> {
    Some(match name {
        "name" => vec![image.name.clone()],
        "state" => vec![image.state().to_owned()],
        "architecture" => vec![image.architecture.clone()],
        "root-device-type" => vec!["ebs".to_owned()],
        "image-id" => vec![image.id.clone()],
        "tag-key" => image.tags.keys().cloned().collect(),
        name => image.tags.get(name.strip_prefix("tag:")?).iter().map(|value| (*value).clone()).collect(),
    })
}

fn xml(image: &Image, viewer: &str) -> Xml {
    let disks = image.disks.iter().map(|disk| {
        let ebs = Xml::new()
            .text("snapshotId", &disk.snapshot)
            .text("volumeSize", disk.size)
            .text("deleteOnTermination", disk.delete_on_termination)
            .text("volumeType", &disk.kind)
            .maybe("iops", disk.iops)
            .maybe("throughput", disk.throughput)
            .text("encrypted", disk.encrypted);
        Xml::new().text("deviceName", &disk.device).element("ebs", ebs)
    });
    let failure = image.failed.as_ref().filter(|_| image.state() == "failed");
    let failure = failure.map(|reason| Xml::new().text("code", "Client.UserInitiated").text("message", reason));
    let xml = Xml::new()
        .text("imageId", &image.id)
        .text("imageLocation", format!("{}/{}", image.owner, image.name))
        .text("imageState", image.state())
        .text("imageOwnerId", &image.owner)
        .text("creationDate", image.created.strftime("%Y-%m-%dT%H:%M:%S.000Z"))
        .text("isPublic", false)
        .text("architecture", &image.architecture)
        .text("imageType", "machine")
        .text("name", &image.name)
        .maybe("description", image.description.as_ref())
        .text("rootDeviceType", "ebs")
        .text("rootDeviceName", &image.root_device)
        .list("blockDeviceMapping", disks)
        .text("virtualizationType", &image.virtualization)
        .text("hypervisor", "xen")
        .text("platformDetails", "Linux/UNIX")
        .text("enaSupport", image.ena)
        .maybe("sriovNetSupport", image.sriov.as_ref())
        .maybe("bootMode", image.boot_mode.as_ref())
        .maybe("tpmSupport", image.tpm.as_ref())
        .maybe("imdsSupport", image.imds.as_ref())
        .maybe("deprecationTime", image.deprecated.as_ref())
        .text("deregistrationProtection", &image.protection)
        // Tags are seen by the owner alone.
        .list("tagSet", if viewer == image.owner { tag_set(&image.tags) } else { Vec::new() });
    match failure {
        Some(failure) => xml.element("stateReason", failure),
        None => xml,
    }
}

/// Checks a name, and that no other image of the account has it.
fn free_name(world: &mut World, call: &Call, name: &str) -> Result<(), Refusal> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "()[] ./-'@_".contains(c);
    if !(3..=128).contains(&name.len()) || !name.chars().all(legal) {
        let message = "AMI names must be between 3 and 128 characters long, and may contain letters, numbers, '(', ')', '.', '-', '/' and '_'";
        return Err(Refusal::new("InvalidAMIName.Malformed", message));
    }
    let holders = world.space(&call.region)?.images.values();
    let mut holders = holders.filter(|image| image.owner == call.account && !image.deregistered);
    match holders.find(|image| image.name == name) {
        None => Ok(()),
        Some(image) => {
            let message = format!("AMI name {name} is already in use by AMI {}", image.id);
            Err(Refusal::new("InvalidAMIName.Duplicate", message))
        }
    }
}

pub(super) fn register(world: &mut World, mut call: Call) -> Answered {
    let params = &mut call.params;
    let (name, description) = (params.need("Name")?, params.take("Description"));
    let architecture = params.take("Architecture").unwrap_or_else(|| "i386".into());
    let virtualization = params.take("VirtualizationType").unwrap_or_else(|| "paravirtual".into());
    let ena = params.parsed::<bool>("EnaSupport")?.unwrap_or(false);
    let root_device = params.need("RootDeviceName")?;
    let (boot_mode, imds, tpm) = (params.take("BootMode"), params.take("ImdsSupport"), params.take("TpmSupport"));
    let sriov = params.take("SriovNetSupport");
    let mappings = params.structures("BlockDeviceMapping");
    let tags = of_kind(&specified(params, &["image"])?, "image");
    std::mem::take(params).done()?;

    one_of("Architecture", &architecture, &["i386", "x86_64", "arm64", "x86_64_mac", "arm64_mac"])?;
    one_of("VirtualizationType", &virtualization, &["hvm", "paravirtual"])?;
    for (name, value, values) in [
        ("BootMode", &boot_mode, &["uefi", "uefi-preferred", "legacy-bios"][..]),
        ("ImdsSupport", &imds, &["v2.0"]),
        ("TpmSupport", &tpm, &["v2.0"]),
        ("SriovNetSupport", &sriov, &["simple"]),
    ] {
        value.as_ref().map_or(Ok(()), |value| one_of(name, value, values))?;
    }
    if virtualization == "paravirtual" {
        return Err(Refusal::new("MissingParameter", "Paravirtual images need a kernel id"));
    }
    if description.as_ref().is_some_and(|text| text.is_empty() || text.chars().count() > 255) {
        return Err(Refusal::new("InvalidParameterValue", "The description has to have between 1 and 255 characters"));
    }
    free_name(world, &call, &name)?;
    let mut disks = Vec::new();
    for mapping in mappings {
        disks.push(disk(world, &call, mapping)?);
    }
    let devices: BTreeSet<&String> = disks.iter().map(|disk| &disk.device).collect();
    if devices.len() != disks.len() {
        return Err(Refusal::new("InvalidBlockDeviceMapping", "A device name occurs twice."));
    }
    if !devices.contains(&root_device) {
        return Err(Refusal::new("InvalidBlockDeviceMapping", "No root snapshot specified in device mapping."));
    }
    let (now, delays) = (Instant::now(), world.delays);
    let image = Image {
        id: world.id("ami"),
        owner: call.account.clone(),
        name,
        description,
        architecture,
        root_device,
        disks,
        virtualization,
        ena,
        sriov,
        boot_mode,
        tpm,
        imds,
        tags,
        launch: BTreeSet::new(),
        public: false,
        source: None,
        deprecated: None,
        protection: "disabled".into(),
        created: Timestamp::now(),
        ready: now + delays.image,
        visible: now + delays.visibility,
        failed: call.doom.clone(),
        deregistered: false,
        token: None,
    };
    add(world, &call.region, image)
}

fn add(world: &mut World, region: &str, image: Image) -> Answered {
    let id = image.id.clone();
    world.space(region)?.images.insert(id.clone(), image);
    Ok(Answer::Xml(Xml::new().text("imageId", id)))
}

fn one_of(name: &str, value: &str, values: &[&str]) -> Result<(), Refusal> {
    match values.contains(&value) {
        true => Ok(()),
        false => Err(Refusal::new("InvalidParameterValue", format!("Invalid value '{value}' for {name}."))),
    }
}

fn disk(world: &mut World, call: &Call, mut mapping: Params) -> Result<Disk, Refusal> {
    let device = mapping.need("DeviceName")?;
    let Some(mut ebs) = mapping.structure("Ebs") else {
        return Err(Refusal::new("InvalidBlockDeviceMapping", "No root snapshot specified in device mapping."));
    };
    mapping.done()?;
    let Some(snapshot) = ebs.take("SnapshotId") else {
        return Err(Refusal::new("InvalidBlockDeviceMapping", "No root snapshot specified in device mapping."));
    };
    if ebs.take("Encrypted").is_some() || ebs.take("KmsKeyId").is_some() {
        let message = "The parameter encrypted cannot be used with a snapshot id";
        return Err(Refusal::new("InvalidParameter", message));
    }
    let kind = ebs.take("VolumeType").unwrap_or_else(|| "gp2".into());
    let (iops, throughput) = (ebs.parsed::<u32>("Iops")?, ebs.parsed::<u32>("Throughput")?);
    let size = ebs.parsed::<u32>("VolumeSize")?;
    let delete_on_termination = ebs.parsed::<bool>("DeleteOnTermination")?.unwrap_or(true);
    ebs.done()?;
    let there = world.space(&call.region)?.snapshots.get(&snapshot);
    let there = there.ok_or_else(|| {
        Refusal::new("InvalidSnapshotID.NotFound", format!("The snapshot '{snapshot}' does not exist."))
    })?;
    if there.owner != call.account {
        let message = format!("Snapshot {snapshot} does not belong to {}", call.account);
        return Err(Refusal::new("InvalidParameterValue", message));
    }
    if !there.is_complete() {
        let message = format!("Snapshot '{snapshot}' is not in a valid state: {}", there.state().0);
        return Err(Refusal::new("InvalidSnapshot.NotFound", message));
    }
    let most = SIZES.iter().find(|(name, _)| *name == kind).map(|(_, most)| *most);
    let Some(most) = most else {
        return Err(Refusal::new("InvalidParameterValue", format!("Invalid value '{kind}' for VolumeType.")));
    };
    let size = size.unwrap_or(there.size);
    if size < there.size || size > most {
        let message = format!("Volume of {size} GiB is too small or too large for snapshot {snapshot}");
        return Err(Refusal::new("InvalidBlockDeviceMapping", message));
    }
    if throughput.is_some() && kind != "gp3" || iops.is_some() && !["gp3", "io1", "io2"].contains(&kind.as_str()) {
        let message = format!("The volume type {kind} takes no iops or throughput");
        return Err(Refusal::new("InvalidParameterCombination", message));
    }
    let encrypted = there.encrypted;
    Ok(Disk { device, snapshot, size, kind, iops, throughput, delete_on_termination, encrypted })
}

pub(super) fn copy(world: &mut World, mut call: Call) -> Answered {
    let canonical = format!("{:?}", call.params.all());
    let params = &mut call.params;
    let (name, from, source) = (params.need("Name")?, params.need("SourceRegion")?, params.need("SourceImageId")?);
    let (token, description) = (params.take("ClientToken"), params.take("Description"));
    let (encrypted, key) = (params.parsed::<bool>("Encrypted")?, params.take("KmsKeyId"));
    let copy_tags = params.parsed::<bool>("CopyImageTags")?.unwrap_or(false);
    let specified = specified(params, &["image", "snapshot"])?;
    std::mem::take(params).done()?;
    if let Some(token) = &token {
        let before = world.space(&call.region)?.images.values();
        let mut before = before.filter(|image| image.owner == call.account);
        if let Some(image) = before.find(|image| image.token.as_ref().is_some_and(|(one, _)| one == token)) {
            return match image.token.as_ref().is_some_and(|(_, parameters)| *parameters == canonical) {
                true => Ok(Answer::Xml(Xml::new().text("imageId", &image.id))),
                false => Err(Refusal::new("IdempotentParameterMismatch", "The token was used with other parameters")),
            };
        }
    }
    if key.is_some() && encrypted != Some(true) {
        let message = "The parameter KmsKeyId requires the parameter Encrypted to be set.";
        return Err(Refusal::new("InvalidParameterCombination", message));
    }
    free_name(world, &call, &name)?;
    let account = call.account.clone();
    let original = world.space(&from)?.images.get(&source).cloned();
    let original = original.filter(|image| image.is_for(&account));
    let original = original
        .filter(|image| !image.deregistered)
        .ok_or_else(|| Refusal::new("InvalidAMIID.NotFound", format!("The image id '[{source}]' does not exist")))?;
    if original.state() != "available" {
        let message = format!("Image {source} is not available for copying: {}", original.state());
        return Err(Refusal::new("InvalidRequest", message));
    }
    let (now, delays) = (Instant::now(), world.delays);
    let mut disks = Vec::new();
    let mut snapshots = Vec::new();
    for disk in &original.disks {
        let bytes = world.space(&from)?.snapshots.get(&disk.snapshot).cloned();
        let bytes = bytes.ok_or_else(|| Refusal::new("InvalidSnapshot.NotFound", "A snapshot of the image is gone"))?;
        if bytes.owner != account && !bytes.volumes.contains(&account) && !original.public {
            let message = "You do not have permission to access the storage of this ami";
            return Err(Refusal::new("InvalidRequest", message));
        }
        let id = world.id("snap");
        disks.push(Disk {
            snapshot: id.clone(),
            encrypted: bytes.encrypted || encrypted == Some(true),
            ..disk.clone()
        });
        let blocks = Blocks::new(Some(Arc::clone(&bytes.blocks)));
        let blocks = blocks.map_err(|error| Refusal::new("InternalError", error.to_string()).status(500))?;
        snapshots.push(Snapshot {
            description: Some(format!("Copied for {source} from {}", bytes.id)),
            tags: of_kind(&specified, "snapshot"),
            encrypted: bytes.encrypted || encrypted == Some(true),
            key: key.clone().or(bytes.key),
            stage: Stage::Ended { at: now + delays.copy, failure: call.doom.clone() },
            ..Snapshot::new(id, &account, bytes.size, blocks, &delays)
        });
    }
    let mut tags = if copy_tags && original.owner == account { original.tags.clone() } else { BTreeMap::new() };
    tags.extend(of_kind(&specified, "image"));
    let image = Image {
        id: world.id("ami"),
        owner: account,
        name,
        description: description.or(original.description.clone()),
        disks,
        tags,
        launch: BTreeSet::new(),
        public: false,
        source: Some((from, source)),
        deprecated: None,
        protection: "disabled".into(),
        created: Timestamp::now(),
        ready: now + delays.copy,
        visible: now + delays.visibility,
        failed: call.doom.clone(),
        deregistered: false,
        token: token.map(|token| (token, canonical)),
        ..original
    };
    let space = world.space(&call.region)?;
    space.snapshots.extend(snapshots.into_iter().map(|snapshot| (snapshot.id.clone(), snapshot)));
    add(world, &call.region, image)
}

pub(super) fn deregister(world: &mut World, mut call: Call) -> Answered {
    let id = call.params.need("ImageId")?;
    let with_snapshots = call.params.parsed::<bool>("DeleteAssociatedSnapshots")?.unwrap_or(false);
    call.params.done()?;
    let space = world.space(&call.region)?;
    let image = space.images.get_mut(&id).filter(|image| image.owner == call.account);
    let image =
        image.ok_or_else(|| Refusal::new("InvalidAMIID.NotFound", format!("The image id '[{id}]' does not exist")))?;
    if image.deregistered {
        return Err(Refusal::new("InvalidAMIID.Unavailable", format!("The image ID '{id}' is no longer available")));
    }
    if image.protection != "disabled" {
        return Err(Refusal::new(
            "OperationNotPermitted",
            format!("The image {id} is protected against deregistration"),
        ));
    }
    image.deregistered = true;
    let disks = image.disks.clone();
    let mut results = Vec::new();
    for disk in disks.iter().filter(|_| with_snapshots) {
        let mut users = space.images.values().filter(|image| !image.deregistered);
        let used = users.any(|image| image.disks.iter().any(|other| other.snapshot == disk.snapshot));
        if !used {
            space.snapshots.remove(&disk.snapshot);
        }
        let code = if used { "skipped" } else { "success" };
        results.push(Xml::new().text("snapshotId", &disk.snapshot).text("returnCode", code));
    }
    Ok(Answer::Xml(Xml::new().text("return", true).list("deleteSnapshotResultSet", results)))
}
