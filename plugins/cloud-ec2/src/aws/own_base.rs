//! Base images of other accounts, as AMIs of our own.
//!
//! The EBS direct API reads no public snapshots, and a new snapshot can only begin on top of one that the account owns. So a public
//! base is copied once, within its region. The copy is found by its name and stays: all later bakes from that base use it.

use aws_sdk_ec2::types::{Image as Ami, ResourceType};
use bake_core::{OwnBase, OwnedBase, SnapshotId};
use bake_engine::{
    Calls, Class, Found, Keep, Mutation, Op, Patience, Resend, StepContext, StepError, StepResult, Undone,
};

use crate::aws::base::tags;
use crate::aws::connection::Place;
use crate::aws::context::Ec2;
use crate::aws::images::{self, Made};
use crate::aws::snapshots;
use crate::aws::tagging::{all_tags, specification};

/// The tag that says which base image something is a copy of.
const BASE_TAG: &str = "bake:base";

/// Copies base images into the own account.
pub(crate) struct OwnBases(pub(crate) Ec2);

impl Mutation for OwnBases {
    type Request = OwnBase;
    type Made = Made;
    type Result = OwnedBase;

    fn name(&self) -> &'static str {
        "ec2.own_base"
    }

    fn calls(&self) -> Calls {
        Calls { send: &["DescribeImages", "CopyImage"], settle: &["DescribeImages"], undo: &[] }
    }

    /// It is for all bakes from that base.
    fn keep(&self) -> Keep {
        Keep::NothingToUndo
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    fn patience(&self) -> Patience {
        self.0.patience()
    }

    async fn send(&self, op: &Op, request: &OwnBase) -> StepResult<Made> {
        let place = self.0.place(&request.region).await?;
        if let Some(made) = there(&place, request).await? {
            return Ok(made);
        }
        let tags = [(BASE_TAG.to_owned(), request.base.to_string())].into();
        let tags = all_tags(&tags, op);
        let call = || {
            let call = place.ec2().copy_image().source_region(request.region.as_str());
            call.source_image_id(request.base.as_str())
                .name(name(request))
                .description("A copy that bake reads its base image from")
                .client_token(op.token())
                .tag_specifications(specification(ResourceType::Image, &tags))
                .tag_specifications(specification(ResourceType::Snapshot, &tags))
                .send()
        };
        match place.calls().once("CopyImage", call).await {
            Ok(answer) => {
                let id = answer.image_id.ok_or_else(|| StepError::unknown("CopyImage answered without an id"))?;
                Ok(Made::new(&place, id))
            }
            // Another bake was quicker: whoever asked looks.
            Err(error) if error.code() == Some("InvalidAMIName.Duplicate") => {
                Err(StepError::wrap(Class::Unknown, error))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn find(&self, _: &Op, request: &OwnBase) -> StepResult<Found<Made>> {
        let place = self.0.place(&request.region).await?;
        Ok(there(&place, request).await?.map_or(Found::Absent, Found::Made))
    }

    async fn settle(&self, cx: &StepContext, request: &OwnBase, made: &Made) -> StepResult<OwnedBase> {
        cx.log(&format!("`{}` is another account's; it is copied into ours once", request.base));
        let place = self.0.place_of(&made.address).await?;
        let ami = self.0.wait_for_copy(cx, &place, &made.id).await?;
        let snapshot = root_snapshot(&ami);
        let snapshot = snapshot.ok_or_else(|| StepError::permanent(format!("`{}` has no root snapshot", made.id)))?;
        Ok(OwnedBase { snapshot: SnapshotId::new(snapshot) })
    }

    async fn undo(&self, _: &Op, _: &Made) -> StepResult<Undone> {
        Ok(Undone::Gone)
    }
}

/// What such a copy is called.
fn name(request: &OwnBase) -> String {
    format!("bake base {}", request.base)
}

/// The copy that an earlier bake has made.
async fn there(place: &Place, request: &OwnBase) -> StepResult<Option<Made>> {
    let named = images::named(place, &name(request)).await?;
    let ours = |ami: &&Ami| tags(ami.tags.as_deref()).get(BASE_TAG).map(String::as_str) == Some(request.base.as_str());
    match (named.iter().find(ours), named.first()) {
        (Some(ami), _) => Ok(ami.image_id.as_ref().map(|id| Made::new(place, id))),
        (None, None) => Ok(None),
        (None, Some(other)) => Err(StepError::permanent(format!(
            "the name `{}` is taken in region `{}`, by {}, which does not carry the tag `{BASE_TAG}`",
            name(request),
            place.region(),
            images::told(other)
        ))),
    }
}

fn root_snapshot(ami: &Ami) -> Option<String> {
    let root = ami.root_device_name.as_ref()?;
    let mut mappings = ami.block_device_mappings.iter().flatten();
    let root = mappings.find(|mapping| mapping.device_name.as_ref() == Some(root));
    root.and_then(|mapping| mapping.ebs.as_ref()?.snapshot_id.clone())
        .or_else(|| snapshots::of_image(ami).into_iter().next())
}
