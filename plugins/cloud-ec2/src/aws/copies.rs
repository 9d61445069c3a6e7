//! Copies of AMIs, in other regions and in other accounts.
//!
//! A copy is asked for where it is to be. Its snapshots are EC2's work; they carry the same tags from the start, so that they
//! are found when the copy is taken back, even if the AMI itself is gone by then.

use aws_sdk_ec2::types::{Image as Ami, ResourceType};
use bake_core::{CopyImage, Encryption, Image};
use bake_engine::{Calls, Found, Keep, Mutation, Op, Patience, Resend, StepContext, StepError, StepResult, Undone};

use crate::aws::context::Ec2;
use crate::aws::images::{self, Made};
use crate::aws::snapshots;
use crate::aws::tagging::{all_tags, specification};

/// Copies AMIs.
pub(crate) struct Copies(pub(crate) Ec2);

impl Mutation for Copies {
    type Request = CopyImage;
    type Made = Made;
    type Result = Image;

    fn name(&self) -> &'static str {
        "ec2.copy"
    }

    fn calls(&self) -> Calls {
        Calls {
            send: &["CopyImage"],
            settle: &["DescribeImages"],
            undo: &["DescribeImages", "DeregisterImage", "DescribeSnapshots", "DeleteSnapshot"],
        }
    }

    fn keep(&self) -> Keep {
        Keep::Artifact
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    fn patience(&self) -> Patience {
        self.0.patience()
    }

    async fn send(&self, op: &Op, request: &CopyImage) -> StepResult<Made> {
        let place = self.0.place_for(&request.region, request.account.as_ref()).await?;
        if request.encryption == Encryption::Plain {
            self.check_plain(request).await?;
        }
        let tags = all_tags(&request.tags, op);
        let (encrypted, key) = match &request.encryption {
            Encryption::Inherit | Encryption::Plain => (None, None),
            Encryption::DefaultKey => (Some(true), None),
            Encryption::Key(key) => (Some(true), Some(key.clone())),
        };
        let call = || {
            let call =
                place.ec2().copy_image().source_region(request.from.as_str()).source_image_id(request.image.as_str());
            call.name(&request.name)
                .client_token(op.token())
                .set_encrypted(encrypted)
                .set_kms_key_id(key.clone())
                .tag_specifications(specification(ResourceType::Image, &tags))
                .tag_specifications(specification(ResourceType::Snapshot, &tags))
                .send()
        };
        let answer = place.calls().once("CopyImage", call).await?;
        let id = answer.image_id.ok_or_else(|| StepError::unknown("CopyImage answered without an id"))?;
        Ok(Made::new(&place, id))
    }

    async fn find(&self, op: &Op, request: &CopyImage) -> StepResult<Found<Made>> {
        let place = self.0.place_for(&request.region, request.account.as_ref()).await?;
        let named = images::named(&place, &request.name).await?;
        Ok(images::found(&place, op, named))
    }

    async fn settle(&self, cx: &StepContext, request: &CopyImage, made: &Made) -> StepResult<Image> {
        let place = self.0.place_of(&made.address).await?;
        let ami = self.0.wait_for_copy(cx, &place, &made.id).await?;
        check(&ami, request)?;
        Ok(images::image(&place, &ami, &made.id))
    }

    async fn undo(&self, op: &Op, made: &Made) -> StepResult<Undone> {
        let place = self.0.place_of(&made.address).await?;
        if images::deregister(&self.0, &place, op, &made.id).await? == Undone::InUse {
            return Ok(Undone::InUse);
        }
        let mut undone = Undone::Gone;
        for snapshot in snapshots::of_operation(&place, op).await? {
            let id = snapshot.snapshot_id.as_deref().unwrap_or_default();
            if snapshots::delete(&self.0, &place, op, id).await? == Undone::InUse {
                undone = Undone::InUse;
            }
        }
        Ok(undone)
    }
}

impl Copies {
    /// Refuses a copy without encryption of what is encrypted: the service would keep the encryption and say nothing.
    async fn check_plain(&self, request: &CopyImage) -> StepResult<()> {
        let (source, id) = (self.0.place(&request.from).await?, request.image.as_str());
        let ami = images::read(&source, id).await?;
        let ami =
            ami.ok_or_else(|| StepError::transient(format!("`{id}` is not there in region `{}`", request.from)))?;
        let mut disks = ami.block_device_mappings.iter().flatten().filter_map(|mapping| mapping.ebs.as_ref());
        match disks.any(|disk| disk.encrypted == Some(true)) {
            true => {
                Err(StepError::permanent(format!("`{id}` is encrypted, and no copy of it can be without encryption"))
                    .hint("leave `encryption` at `inherit`, or bake without encryption by default"))
            }
            false => Ok(()),
        }
    }
}

/// A copy without its tags is worse than none: nobody would find it.
fn check(ami: &Ami, request: &CopyImage) -> StepResult<()> {
    let there = crate::aws::base::tags(ami.tags.as_deref());
    let missing = |(key, value): &(&String, &String)| there.get(*key) != Some(*value);
    let lost: Vec<_> = request.tags.iter().filter(missing).map(|(key, _)| format!("`{key}`")).collect();
    match lost.is_empty() {
        true => Ok(()),
        false => Err(StepError::permanent(format!("the copy lost its tags {}", lost.join(", ")))),
    }
}
