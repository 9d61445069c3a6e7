//! AMIs: registered from a snapshot, read back, and taken back.
//!
//! Registering knows no token, so a name is what makes it happen once: after a lost answer, and after `Duplicate`, the AMI of
//! that name is looked at, and it is ours if it carries the tag of the operation.

use api_manners::Verdict;
use aws_sdk_ec2::types::{
    ArchitectureValues, BlockDeviceMapping, BootModeValues, EbsBlockDevice, Filter, Image as Ami, ImageState,
    ImdsSupportValues, ResourceType, TpmSupportValues, VolumeType,
};
use bake_core::{Image, ImageId, Machine, RegisterImage};
use bake_engine::{
    Calls, Class, Found, Keep, Mutation, Op, Patience, Resend, StepContext, StepError, StepResult, Undone,
};
use serde::{Deserialize, Serialize};

use crate::aws::base::{machine, tags};
use crate::aws::calls::{CallError, GIB};
use crate::aws::connection::{Address, Place};
use crate::aws::context::Ec2;
use crate::aws::tagging::{OP_TAG, RUN_TAG, all_tags, specification};

/// How an AMI's root disk is kept here.
pub(crate) const EBS: &str = "ebs";

/// What the root disk is called where nothing says otherwise.
const ROOT_DEVICE: &str = "/dev/xvda";

/// The type of the root disk where nothing says otherwise.
const VOLUME_TYPE: &str = "gp3";

/// What a mutation made: enough to find it from another process with other settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Where it is.
    pub address: Address,
    /// Its id.
    pub id: String,
}

impl Made {
    pub(crate) fn new(place: &Place, id: impl Into<String>) -> Self {
        Self { address: place.address(), id: id.into() }
    }

    /// Returns what carries an operation's tag, which is one thing or nothing.
    pub(crate) fn only(place: &Place, mut ids: Vec<String>) -> Found<Self> {
        match ids.len() {
            0 => Found::Absent,
            1 => Found::Made(Self::new(place, ids.remove(0))),
            _ => Found::Ambiguous(ids),
        }
    }
}

/// Registers AMIs.
pub(crate) struct Images(pub(crate) Ec2);

impl Mutation for Images {
    type Request = RegisterImage;
    type Made = Made;
    type Result = Image;

    fn name(&self) -> &'static str {
        "ec2.image"
    }

    fn calls(&self) -> Calls {
        Calls { send: &["RegisterImage"], settle: &["DescribeImages"], undo: &["DescribeImages", "DeregisterImage"] }
    }

    fn keep(&self) -> Keep {
        Keep::Artifact
    }

    fn resend(&self) -> Resend {
        Resend::OnlyIfAbsent
    }

    fn patience(&self) -> Patience {
        self.0.patience()
    }

    async fn send(&self, op: &Op, request: &RegisterImage) -> StepResult<Made> {
        let place = self.0.place(&request.region).await?;
        let call = || registration(&place, op, request).send();
        match place.calls().once("RegisterImage", call).await {
            Ok(answer) => {
                let id = answer.image_id.ok_or_else(|| StepError::unknown("RegisterImage answered without an id"))?;
                Ok(Made::new(&place, id))
            }
            Err(error) if error.code() == Some("InvalidAMIName.Duplicate") => {
                holder(&place, op, &request.name, error).await
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn find(&self, op: &Op, request: &RegisterImage) -> StepResult<Found<Made>> {
        let place = self.0.place(&request.region).await?;
        let named = named(&place, &request.name).await?;
        Ok(found(&place, op, named))
    }

    async fn settle(&self, cx: &StepContext, request: &RegisterImage, made: &Made) -> StepResult<Image> {
        let place = self.0.place_of(&made.address).await?;
        let ami = self.0.wait_for_image(cx, &place, &made.id).await?;
        check(&ami, request)?;
        Ok(image(&place, &ami, &made.id))
    }

    async fn undo(&self, op: &Op, made: &Made) -> StepResult<Undone> {
        deregister(&self.0, &self.0.place_of(&made.address).await?, op, &made.id).await
    }
}

/// The request, with nothing left to the defaults of the service, which are those of machines of long ago.
fn registration(
    place: &Place,
    op: &Op,
    request: &RegisterImage,
) -> aws_sdk_ec2::operation::register_image::builders::RegisterImageFluentBuilder {
    let Machine { root_device, boot_mode, ena, sriov, tpm, imds } = &request.machine;
    let root_device = root_device.as_deref().unwrap_or(ROOT_DEVICE);
    let disk = &request.disk;
    let ebs = EbsBlockDevice::builder()
        .snapshot_id(request.snapshot.as_str())
        .volume_type(VolumeType::from(disk.kind.as_deref().unwrap_or(VOLUME_TYPE)))
        .delete_on_termination(true)
        .set_volume_size(disk.size.and_then(|size| i32::try_from(size.div_ceil(GIB)).ok()))
        .set_iops(disk.iops.and_then(|iops| i32::try_from(iops).ok()))
        .set_throughput(disk.throughput.and_then(|rate| i32::try_from(rate).ok()))
        .build();
    let call = place.ec2().register_image();
    let call = call.name(&request.name).architecture(architecture(request.architecture.as_str()));
    let call = call.virtualization_type("hvm").ena_support(ena.unwrap_or(true)).root_device_name(root_device);
    call.block_device_mappings(BlockDeviceMapping::builder().device_name(root_device).ebs(ebs).build())
        .set_description(Some(request.description.clone()).filter(|description| !description.is_empty()))
        .set_boot_mode(boot_mode.as_deref().map(BootModeValues::from))
        .set_sriov_net_support(sriov.clone())
        .set_tpm_support(tpm.as_deref().map(TpmSupportValues::from))
        .set_imds_support(imds.as_deref().map(ImdsSupportValues::from))
        .tag_specifications(specification(ResourceType::Image, &all_tags(&request.tags, op)))
}

fn architecture(name: &str) -> ArchitectureValues {
    match name {
        "aarch64" => ArchitectureValues::Arm64,
        "i386" | "i686" => ArchitectureValues::I386,
        other => ArchitectureValues::from(other),
    }
}

/// Whose a name is that is taken: ours, if an answer was lost, or somebody else's.
async fn holder(place: &Place, op: &Op, name: &str, error: CallError) -> StepResult<Made> {
    let named = named(place, name).await?;
    match (found(place, op, named.clone()), named.first()) {
        (Found::Made(made), _) => Ok(made),
        // It cannot be seen yet: the engine looks again, with patience.
        (_, None) => Err(StepError::wrap(Class::Unknown, error)),
        (_, Some(other)) => Err(StepError::permanent(format!(
            "the name `{name}` is taken in region `{}`, by {}",
            place.region(),
            told(other)
        ))
        .because(error)
        .hint("choose another name with `--name`, or another `--suffix`")),
    }
}

/// Says which AMI it is, for people.
pub(crate) fn told(ami: &Ami) -> String {
    let [id, time] = [&ami.image_id, &ami.creation_date].map(|text| text.as_deref().unwrap_or("unknown"));
    format!("{id} of {time}")
}

/// Looks for the AMIs of that exact name, also those that were disabled: they hold their names.
pub(crate) async fn named(place: &Place, name: &str) -> StepResult<Vec<Ami>> {
    let filter = Filter::builder().name("name").values(escaped(name)).build();
    let call = || {
        let request = place.ec2().describe_images().owners("self").filters(filter.clone());
        request.include_disabled(true).include_deprecated(true).send()
    };
    let images = place.calls().read("DescribeImages", call).await?.images.unwrap_or_default();
    Ok(images.into_iter().filter(|image| image.name.as_deref() == Some(name)).collect())
}

/// A text as a filter that means nothing but this text.
fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| ['\\'].into_iter().filter(move |_| "*?\\".contains(c)).chain([c])).collect()
}

/// Takes an AMI for ours if it carries the operation's tag.
pub(crate) fn found(place: &Place, op: &Op, named: Vec<Ami>) -> Found<Made> {
    let (ours, others): (Vec<_>, Vec<_>) = named
        .into_iter()
        .partition(|image| tags(image.tags.as_deref()).get(OP_TAG).map(String::as_str) == Some(op.id()));
    let id = |image: Ami| image.image_id.unwrap_or_default();
    let mut ours: Vec<String> = ours.into_iter().map(id).collect();
    match (ours.len(), others.is_empty()) {
        (1, _) => Found::Made(Made::new(place, ours.remove(0))),
        (0, true) => Found::Absent,
        _ => Found::Ambiguous(ours.into_iter().chain(others.into_iter().map(id)).collect()),
    }
}

/// What others may know of an AMI.
pub(crate) fn image(place: &Place, ami: &Ami, id: &str) -> Image {
    Image {
        id: ImageId::new(id),
        name: ami.name.clone().unwrap_or_default(),
        region: place.region().clone(),
        store: EBS.into(),
        account: Some(place.account().clone()),
    }
}

/// What a look at an AMI says to whoever waits until it can be used.
pub(crate) fn look(ami: &Ami) -> Verdict<Ami> {
    match &ami.state {
        Some(ImageState::Available) => Verdict::Done(ami.clone()),
        Some(
            state @ (ImageState::Failed
            | ImageState::Error
            | ImageState::Invalid
            | ImageState::Deregistered
            | ImageState::Disabled),
        ) => {
            let reason = ami.state_reason.as_ref().and_then(|reason| reason.message.as_deref());
            Verdict::Failed(format!("it is `{}`: {}", state.as_str(), reason.unwrap_or("no reason was given")))
        }
        state => Verdict::NotYet(format!("it is `{}`", state.as_ref().map_or("unknown", ImageState::as_str))),
    }
}

/// Compares what there is with what was asked for: an AMI that lost an attribute boots badly, or not at all.
fn check(ami: &Ami, request: &RegisterImage) -> StepResult<()> {
    let device = ami.root_device_name.clone().unwrap_or_default();
    let there = machine(ami, device.clone());
    let asked = &request.machine;
    let mapping = ami.block_device_mappings.iter().flatten().find(|one| one.device_name.as_deref() == Some(&device));
    let snapshot = mapping.and_then(|mapping| mapping.ebs.as_ref()).and_then(|ebs| ebs.snapshot_id.clone());
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
    let flag = |value: bool| value.to_string();
    let pairs = [
        ("name", Some(request.name.clone()), ami.name.clone().unwrap_or_default()),
        ("root snapshot", Some(request.snapshot.to_string()), text(&snapshot)),
        ("root device", asked.root_device.clone(), device),
        ("ENA support", asked.ena.map(flag), flag(there.ena.unwrap_or_default())),
        ("boot mode", asked.boot_mode.clone(), text(&there.boot_mode)),
        ("TPM support", asked.tpm.clone(), text(&there.tpm)),
        ("IMDS support", asked.imds.clone(), text(&there.imds)),
    ];
    let wrong = pairs.into_iter().filter_map(|(what, asked, there)| {
        let asked = asked.filter(|asked| *asked != there)?;
        Some(format!("{what}: `{asked}` was asked for, and it is `{there}`"))
    });
    let wrong: Vec<_> = wrong.collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(StepError::permanent("the AMI is not what was asked for").details(wrong)),
    }
}

/// Reads one AMI of our own; `None` if it is not there.
pub(crate) async fn read(place: &Place, id: &str) -> StepResult<Option<Ami>> {
    Ok(read_any(place, id).await?.filter(|image| image.state != Some(ImageState::Deregistered)))
}

/// Reads one AMI; for a while, those that were deregistered are shown as well.
async fn read_any(place: &Place, id: &str) -> StepResult<Option<Ami>> {
    let call = || place.ec2().describe_images().image_ids(id).include_disabled(true).include_deprecated(true).send();
    match place.calls().read("DescribeImages", call).await {
        Ok(answer) => Ok(answer.images.unwrap_or_default().into_iter().next()),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Deregisters an AMI of this run.
pub(crate) async fn deregister(ec2: &Ec2, place: &Place, op: &Op, id: &str) -> StepResult<Undone> {
    let Some(ami) = read_any(place, id).await? else { return Ok(ec2.absent(op)) };
    if ami.state == Some(ImageState::Deregistered) {
        return Ok(Undone::Gone);
    }
    check_run(id, &tags(ami.tags.as_deref()), op)?;
    match place.calls().repeatable("DeregisterImage", || place.ec2().deregister_image().image_id(id).send()).await {
        Ok(_) => Ok(Undone::Gone),
        // One that is not known was just looked at: the next look tells.
        Err(error) if error.is_in_use() || error.is_absent() => Ok(Undone::InUse),
        Err(error) => Err(error.into()),
    }
}

/// Refuses to take back what this run did not make.
pub(crate) fn check_run(id: &str, tags: &bake_core::Tags, op: &Op) -> StepResult<()> {
    match tags.get(RUN_TAG) {
        Some(run) if run == op.run().as_str() => Ok(()),
        Some(run) => Err(StepError::permanent(format!("`{id}` was made by run `{run}`, not by `{}`", op.run()))),
        None => Err(StepError::permanent(format!("`{id}` does not carry the tag `{RUN_TAG}` of run `{}`", op.run()))
            .hint("if it is yours, put the tag back or remove it by hand")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_means_the_name_and_nothing_else() {
        assert_eq!(escaped(r"a*b?c\d"), r"a\*b\?c\\d");
    }

    #[test]
    fn architectures_have_the_names_of_ec2() {
        assert_eq!(architecture("aarch64"), ArchitectureValues::Arm64);
        assert_eq!(architecture("x86_64"), ArchitectureValues::X8664);
    }
}
