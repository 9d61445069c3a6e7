//! EC2: the Query API.

mod attributes;
mod filter;
mod images;
mod instances;
mod snapshots;
mod tags;
pub(crate) mod volumes;

use crate::answer::{Answer, Answered, Refusal, Xml};
use crate::params::Params;
use crate::server::Call;
use crate::world::{Tags, World};

/// Answers a request.
pub(crate) fn answer(world: &mut World, mut call: Call) -> Answered {
    let dry_run = call.params.parsed::<bool>("DryRun")? == Some(true);
    if dry_run {
        return Err(Refusal::new("DryRunOperation", "Request would have succeeded, but DryRun flag is set."));
    }
    world.space(&call.region)?;
    volumes::advance(world)?;
    match call.operation.as_str() {
        "DescribeImages" => images::describe(world, call),
        "RegisterImage" => images::register(world, call),
        "CopyImage" => images::copy(world, call),
        "DeregisterImage" => images::deregister(world, call),
        "ModifyImageAttribute" => attributes::modify_image(world, call),
        "DescribeImageAttribute" => attributes::describe_image(world, call),
        "ModifySnapshotAttribute" => attributes::modify_snapshot(world, call),
        "DescribeSnapshotAttribute" => attributes::describe_snapshot(world, call),
        "EnableImageDeprecation" => attributes::deprecate(world, call),
        "EnableImageDeregistrationProtection" => attributes::protect(world, call, true),
        "DisableImageDeregistrationProtection" => attributes::protect(world, call, false),
        "GetEbsEncryptionByDefault" => {
            call.params.done()?;
            let encrypts = world.encrypting.contains(&call.region);
            Ok(Answer::Xml(Xml::new().text("ebsEncryptionByDefault", encrypts)))
        }
        "DescribeSnapshots" => snapshots::describe(world, call),
        "DeleteSnapshot" => snapshots::delete(world, call),
        "CreateVolume" => volumes::create(world, call),
        "DescribeVolumes" => volumes::describe(world, call),
        "AttachVolume" => volumes::attach(world, call),
        "DetachVolume" => volumes::detach(world, call),
        "DeleteVolume" => volumes::delete(world, call),
        "CreateSnapshot" => volumes::snapshot(world, call),
        "DescribeInstances" => instances::describe(world, call),
        "DescribeAvailabilityZones" => instances::zones(call),
        "CreateTags" => tags::create(world, call),
        "DescribeTags" => tags::describe(world, call),
        "DescribeRegions" => {
            call.params.done()?;
            let names = world.regions.keys();
            let region =
                |name: &String| Xml::new().text("regionName", name).text("regionEndpoint", format!("ec2.{name}"));
            Ok(Answer::Xml(Xml::new().list("regionInfo", names.map(region))))
        }
        other => Err(Refusal::new("InvalidAction", format!("The action {other} is not valid for this web service."))),
    }
}

/// Takes the tags that something gets with the call that makes it, for these types of resource.
fn specified(params: &mut Params, allowed: &[&str]) -> Result<Vec<(String, Tags)>, Refusal> {
    let mut all = Vec::new();
    for mut specification in params.structures("TagSpecification") {
        let kind = specification.need("ResourceType")?;
        if !allowed.contains(&kind.as_str()) {
            let message = format!("'{kind}' is not a valid taggable resource type for this operation.");
            return Err(Refusal::new("InvalidParameterValue", message));
        }
        let tags = tags::take(&mut specification)?;
        specification.done()?;
        all.push((kind, tags));
    }
    Ok(all)
}

/// The tags of one type of resource.
fn of_kind(specified: &[(String, Tags)], kind: &str) -> Tags {
    specified.iter().filter(|(one, _)| one == kind).flat_map(|(_, tags)| tags.clone()).collect()
}

fn tag_set(tags: &Tags) -> Vec<Xml> {
    tags.iter().map(|(key, value)| Xml::new().text("key", key).text("value", value)).collect()
}

/// A page of a list: what is on it, and what the next one is asked for with.
fn page<T>(params: &mut Params, all: Vec<T>, ids_given: bool) -> Result<(Vec<T>, Option<String>), Refusal> {
    let most = params.parsed::<usize>("MaxResults")?;
    let from = params.parsed::<usize>("NextToken")?.unwrap_or(0);
    match most {
        Some(_) if ids_given => {
            let message = "The parameter MaxResults cannot be used with the parameter for ids";
            Err(Refusal::new("InvalidParameterCombination", message))
        }
        Some(most) if !(5..=1000).contains(&most) => {
            let message =
                format!("Value ( {most} ) for parameter maxResults is invalid. Expecting a value greater than 5.");
            Err(Refusal::new("InvalidParameterValue", message))
        }
        most => {
            let (most, count) = (most.unwrap_or(usize::MAX), all.len());
            let next = from.checked_add(most).filter(|next| *next < count).map(|next| next.to_string());
            Ok((all.into_iter().skip(from).take(most).collect(), next))
        }
    }
}
