//! Volumes as disks of the instance that bakes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api_manners::Verdict;
use aws_sdk_ec2::types::{Volume, VolumeAttachment, VolumeAttachmentState};
use bake_core::{AttachVolume, Attachment};
use bake_engine::{
    Calls, Class, Found, Keep, Mutation, Op, Patience, Resend, StepContext, StepError, StepResult, Undone,
};
use host_disks::{DeviceName, DeviceNames, HeldName};
use serde::{Deserialize, Serialize};

use crate::aws::base::tags;
use crate::aws::calls::CallError;
use crate::aws::connection::{Address, Place};
use crate::aws::context::Ec2;
use crate::aws::images::check_run;
use crate::aws::instance::Instance;
use crate::aws::volumes;
use crate::aws::waiting::wait;

/// How long a volume may take to be attached. One that hangs longer mostly hangs for ever.
const ATTACHING: Duration = Duration::from_secs(5 * 60);

/// How many names are tried that look free and are not.
const TRIES: usize = 5;

/// A volume that was attached: enough to detach it from another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeAttachment {
    /// Where the volume is.
    pub address: Address,
    /// The volume.
    pub volume: String,
    /// The instance.
    pub instance: String,
    /// The device name that it was attached by.
    pub device: String,
    /// The disks that were there before, where that is known.
    #[serde(default)]
    pub before: BTreeSet<String>,
}

/// Attaches volumes to the instance that bakes.
pub(crate) struct Attachments {
    ec2: Ec2,
    /// The names of what is being attached, by operation, until the service shows that they are taken.
    held: Mutex<BTreeMap<String, HeldName>>,
}

impl Attachments {
    pub(crate) fn new(ec2: Ec2) -> Self {
        Self { ec2, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, HeldName>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches by the first free name. The service may refuse one that looked free, and then the next is tried.
    async fn attach(
        &self,
        place: &Place,
        instance: &Instance,
        volume: &str,
    ) -> StepResult<(HeldName, BTreeSet<String>)> {
        let (names, mut refused) = (DeviceNames::new(self.ec2.host().clone()), BTreeSet::new());
        loop {
            let name = names.take(|| mapped(place, &instance.id), &refused).await?;
            let before = self.ec2.host().disk_names();
            let before = before.map_err(|error| StepError::wrap(Class::Permanent, error))?;
            let call = || {
                let call = place.ec2().attach_volume().volume_id(volume).instance_id(&instance.id);
                call.device(name.name().to_string()).send()
            };
            match place.calls().once("AttachVolume", call).await {
                Ok(_) => return Ok((name, before)),
                Err(error) if is_name_taken(&error, name.name()) && refused.len() < TRIES => {
                    refused.insert(name.name().clone());
                }
                // It may be attached already, by a call whose answer was lost: whoever asked looks.
                Err(error) if matches!(error.code(), Some("VolumeInUse" | "IncorrectState")) => {
                    return Err(StepError::wrap(Class::Unknown, error));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Tells whether the service refused a call because of the device name in it.
fn is_name_taken(error: &CallError, name: &DeviceName) -> bool {
    error.code() == Some("InvalidParameterValue") && error.to_string().contains(&name.to_string())
}

/// The names by which volumes are attached to an instance, in whichever state.
async fn mapped(place: &Place, instance: &str) -> StepResult<Vec<String>> {
    let call = || place.ec2().describe_instances().instance_ids(instance).send();
    let answer = place.calls().read("DescribeInstances", call).await?;
    let instances = answer.reservations.into_iter().flatten().flat_map(|one| one.instances.unwrap_or_default());
    let mappings = instances.flat_map(|one| one.block_device_mappings.unwrap_or_default());
    Ok(mappings.filter_map(|mapping| mapping.device_name).collect())
}

impl Mutation for Attachments {
    type Request = AttachVolume;
    type Made = MadeAttachment;
    type Result = Attachment;

    fn name(&self) -> &'static str {
        "ec2.attachment"
    }

    fn calls(&self) -> Calls {
        Calls {
            send: &["DescribeInstances", "AttachVolume"],
            settle: &["DescribeVolumes"],
            undo: &["DescribeVolumes", "DetachVolume"],
        }
    }

    fn keep(&self) -> Keep {
        Keep::Scaffold
    }

    fn resend(&self) -> Resend {
        Resend::OnlyIfAbsent
    }

    fn patience(&self) -> Patience {
        self.ec2.patience()
    }

    async fn send(&self, op: &Op, request: &AttachVolume) -> StepResult<MadeAttachment> {
        let instance = self.ec2.instance().await?;
        instance.check_region(&request.region)?;
        let place = self.ec2.place(&request.region).await?;
        let (name, before) = self.attach(&place, instance, request.volume.as_str()).await?;
        let made = MadeAttachment {
            address: place.address(),
            volume: request.volume.to_string(),
            instance: instance.id.clone(),
            device: name.name().to_string(),
            before,
        };
        self.held().insert(op.id().to_owned(), name);
        Ok(made)
    }

    async fn find(&self, _: &Op, request: &AttachVolume) -> StepResult<Found<MadeAttachment>> {
        let place = self.ec2.place(&request.region).await?;
        let instance = self.ec2.instance().await?;
        let volume = volumes::read(&place, request.volume.as_str()).await?;
        let Some(there) = volume.as_ref().and_then(current) else { return Ok(Found::Absent) };
        let machine = there.instance_id.clone().unwrap_or_default();
        match (machine == instance.id, there.device.clone()) {
            (true, Some(device)) => Ok(Found::Made(MadeAttachment {
                address: place.address(),
                volume: request.volume.to_string(),
                instance: machine,
                device,
                before: BTreeSet::new(),
            })),
            _ => Ok(Found::Ambiguous(vec![format!("an attachment to instance {machine}")])),
        }
    }

    async fn settle(&self, cx: &StepContext, request: &AttachVolume, made: &MadeAttachment) -> StepResult<Attachment> {
        let instance = self.ec2.instance().await?;
        if made.instance != instance.id {
            return Err(StepError::permanent(format!(
                "`{}` is attached to instance {}, and this is {}",
                made.volume, made.instance, instance.id
            ))
            .hint("go on with `bake resume` on that instance, or take the run back with `bake teardown`"));
        }
        let place = self.ec2.place_of(&made.address).await?;
        let look = |volume: &Volume| match current(volume).and_then(|there| there.state.as_ref()) {
            Some(VolumeAttachmentState::Attached) => Verdict::Done(()),
            Some(VolumeAttachmentState::Detaching) => Verdict::Failed("somebody detaches it".into()),
            Some(_) => Verdict::NotYet("it is `attaching`".into()),
            None => Verdict::NotYet("it is not attached yet".into()),
        };
        let waited = wait(cx, &place.pollers().volumes, &made.volume, ATTACHING, look).await;
        // The service shows that the name is taken, or nobody waits for it any more.
        self.held().retain(|_, name| name.name().to_string() != made.device);
        waited?;
        Ok(Attachment {
            volume: request.volume.clone(),
            machine: made.instance.clone(),
            device: made.device.clone(),
            before: made.before.clone(),
        })
    }

    /// Asks for it to be detached, and says that it is in use until it is: the kernel lets go when the last user closes it.
    async fn undo(&self, op: &Op, made: &MadeAttachment) -> StepResult<Undone> {
        let place = self.ec2.place_of(&made.address).await?;
        let Some(volume) = volumes::read(&place, &made.volume).await? else { return Ok(self.ec2.absent(op)) };
        let there = volume.attachments.iter().flatten().find(|one| one.instance_id.as_ref() == Some(&made.instance));
        match there.and_then(|there| there.state.as_ref()) {
            None | Some(VolumeAttachmentState::Detached) => return Ok(Undone::Gone),
            Some(VolumeAttachmentState::Detaching | VolumeAttachmentState::Busy) => return Ok(Undone::InUse),
            Some(_) => check_run(&made.volume, &tags(volume.tags.as_deref()), op)?,
        }
        let call = || place.ec2().detach_volume().volume_id(&made.volume).instance_id(&made.instance).send();
        match place.calls().repeatable("DetachVolume", call).await {
            Ok(_) => Ok(Undone::InUse),
            // It was there just now, or is being detached already: the next look tells.
            Err(error) if error.is_absent() || error.is_in_use() => Ok(Undone::InUse),
            Err(error) => Err(error.into()),
        }
    }
}

/// How a volume is attached; `None` if it is not.
fn current(volume: &Volume) -> Option<&VolumeAttachment> {
    volume.attachments.iter().flatten().find(|one| one.state != Some(VolumeAttachmentState::Detached))
}
