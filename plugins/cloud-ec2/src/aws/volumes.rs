//! Volumes of the classic way: made of the base's snapshot in the zone of the instance that bakes, snapshotted by EC2 itself, and
//! deleted.

use std::time::Duration;

use api_manners::Verdict;
use aws_sdk_ec2::types::{
    Filter, ResourceType, Snapshot as ApiSnapshot, SnapshotState, Volume as ApiVolume, VolumeState, VolumeType,
};
use bake_core::{CreateSnapshot, CreateVolume, Snapshot, SnapshotId, Volume, VolumeId};
use bake_engine::{Calls, Found, Keep, Mutation, Op, Patience, Resend, StepContext, StepError, StepResult, Undone};

use crate::aws::base::tags;
use crate::aws::calls::{CallError, GIB, all_pages};
use crate::aws::connection::Place;
use crate::aws::context::Ec2;
use crate::aws::images::{Made, check_run};
use crate::aws::snapshots;
use crate::aws::tagging::{OP_TAG, all_tags, specification};
use crate::aws::waiting::wait;

/// How long a volume may take to be there. Its bytes come later, when they are read.
const CREATION: Duration = Duration::from_secs(10 * 60);

/// How long a snapshot may take, and how much longer for each GiB of its volume.
const SNAPSHOT: (Duration, Duration) = (Duration::from_secs(30 * 60), Duration::from_secs(60));

/// Makes volumes.
pub(crate) struct Volumes(pub(crate) Ec2);

impl Mutation for Volumes {
    type Request = CreateVolume;
    type Made = Made;
    type Result = Volume;

    fn name(&self) -> &'static str {
        "ec2.volume"
    }

    fn calls(&self) -> Calls {
        Calls { send: &["CreateVolume"], settle: &["DescribeVolumes"], undo: &["DescribeVolumes", "DeleteVolume"] }
    }

    fn keep(&self) -> Keep {
        Keep::Scaffold
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    fn patience(&self) -> Patience {
        self.0.patience()
    }

    async fn send(&self, op: &Op, request: &CreateVolume) -> StepResult<Made> {
        let snapshot = request.snapshot.as_ref().ok_or_else(|| StepError::bug("the base image has no snapshot"))?;
        let instance = self.0.instance().await?;
        instance.check_region(&request.region)?;
        let place = self.0.place(&request.region).await?;
        let kind = VolumeType::from(self.0.settings().volume_type.as_str());
        let tags = all_tags(&bake_core::Tags::new(), op);
        let call = || {
            let call = place.ec2().create_volume().availability_zone(&instance.zone).snapshot_id(snapshot.as_str());
            call.volume_type(kind.clone())
                .client_token(op.token())
                .tag_specifications(specification(ResourceType::Volume, &tags))
                .send()
        };
        let answer = place.calls().once("CreateVolume", call).await?;
        let id = answer.volume_id.ok_or_else(|| StepError::unknown("CreateVolume answered without an id"))?;
        Ok(Made::new(&place, id))
    }

    async fn find(&self, op: &Op, request: &CreateVolume) -> StepResult<Found<Made>> {
        let place = self.0.place(&request.region).await?;
        let filter = Filter::builder().name(format!("tag:{OP_TAG}")).values(op.id()).build();
        let ids = list(&place, &[filter]).await?.into_iter().filter_map(|one| one.volume_id);
        Ok(Made::only(&place, ids.collect()))
    }

    async fn settle(&self, cx: &StepContext, request: &CreateVolume, made: &Made) -> StepResult<Volume> {
        let place = self.0.place_of(&made.address).await?;
        let volume = wait(cx, &place.pollers().volumes, &made.id, CREATION, look).await?;
        let size = volume.size.and_then(|gib| u64::try_from(gib).ok());
        let size = size.ok_or_else(|| CallError::missing("DescribeVolumes", "the size"))?;
        Ok(Volume { id: VolumeId::new(&made.id), region: request.region.clone(), size: size * GIB })
    }

    async fn undo(&self, op: &Op, made: &Made) -> StepResult<Undone> {
        let place = self.0.place_of(&made.address).await?;
        let Some(volume) = read(&place, &made.id).await? else { return Ok(self.0.absent(op)) };
        check_run(&made.id, &tags(volume.tags.as_deref()), op)?;
        remove(&place, &made.id).await
    }
}

fn look(volume: &ApiVolume) -> Verdict<ApiVolume> {
    match &volume.state {
        Some(VolumeState::Available | VolumeState::InUse) => Verdict::Done(volume.clone()),
        // EC2 gives no reason: a key that may not be used, or a limit of the account.
        Some(VolumeState::Error) => Verdict::Failed("it is `error`".into()),
        state => Verdict::NotYet(format!("it is `{}`", state.as_ref().map_or("unknown", VolumeState::as_str))),
    }
}

/// Lists volumes.
pub(crate) async fn list(place: &Place, filters: &[Filter]) -> StepResult<Vec<ApiVolume>> {
    let page = |page: Option<String>| async move {
        let call = || {
            let call = place.ec2().describe_volumes().set_filters(Some(filters.to_vec()));
            call.max_results(500).set_next_token(page.clone()).send()
        };
        let answer = place.calls().read("DescribeVolumes", call).await?;
        Ok((answer.volumes.unwrap_or_default(), answer.next_token))
    };
    Ok(all_pages(page).await?)
}

/// Reads one volume; `None` if it is not there, or is on its way out.
pub(crate) async fn read(place: &Place, id: &str) -> StepResult<Option<ApiVolume>> {
    match place.calls().read("DescribeVolumes", || place.ec2().describe_volumes().volume_ids(id).send()).await {
        Ok(answer) => {
            let volume = answer.volumes.unwrap_or_default().into_iter().next();
            Ok(volume.filter(|volume| !matches!(volume.state, Some(VolumeState::Deleting | VolumeState::Deleted))))
        }
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Deletes a volume, whoever made it.
pub(crate) async fn remove(place: &Place, id: &str) -> StepResult<Undone> {
    match place.calls().repeatable("DeleteVolume", || place.ec2().delete_volume().volume_id(id).send()).await {
        Ok(_) => Ok(Undone::Gone),
        // One that is not known was just looked at: the next look tells.
        Err(error) if error.is_in_use() || error.is_absent() => Ok(Undone::InUse),
        Err(error) => Err(error.into()),
    }
}

/// Snapshots volumes.
pub(crate) struct VolumeSnapshots(pub(crate) Ec2);

impl Mutation for VolumeSnapshots {
    type Request = CreateSnapshot;
    type Made = Made;
    type Result = Snapshot;

    fn name(&self) -> &'static str {
        "ec2.volume_snapshot"
    }

    fn calls(&self) -> Calls {
        Calls {
            send: &["CreateSnapshot"],
            settle: &["DescribeSnapshots"],
            undo: &["DescribeSnapshots", "DeleteSnapshot"],
        }
    }

    fn keep(&self) -> Keep {
        Keep::Artifact
    }

    /// The call knows no token.
    fn resend(&self) -> Resend {
        Resend::OnlyIfAbsent
    }

    fn patience(&self) -> Patience {
        self.0.patience()
    }

    async fn send(&self, op: &Op, request: &CreateSnapshot) -> StepResult<Made> {
        let place = self.0.place(&request.region).await?;
        let tags = all_tags(&request.tags, op);
        let description = snapshots::description(&request.description);
        let call = || {
            let call = place.ec2().create_snapshot().volume_id(request.volume.as_str());
            call.set_description(description.clone())
                .tag_specifications(specification(ResourceType::Snapshot, &tags))
                .send()
        };
        let answer = place.calls().once("CreateSnapshot", call).await?;
        let id = answer.snapshot_id.ok_or_else(|| StepError::unknown("CreateSnapshot answered without an id"))?;
        Ok(Made::new(&place, id))
    }

    async fn find(&self, op: &Op, request: &CreateSnapshot) -> StepResult<Found<Made>> {
        snapshots::find(&self.0.place(&request.region).await?, op).await
    }

    async fn settle(&self, cx: &StepContext, _: &CreateSnapshot, made: &Made) -> StepResult<Snapshot> {
        let place = self.0.place_of(&made.address).await?;
        let first = snapshots::read(&place, &made.id).await?;
        let gib = first.and_then(|snapshot| u32::try_from(snapshot.volume_size?).ok()).unwrap_or_default();
        let look = |snapshot: &ApiSnapshot| look_at_snapshot(cx, snapshot);
        let limit = SNAPSHOT.0 + SNAPSHOT.1 * gib;
        let snapshot = wait(cx, &place.pollers().snapshots, &made.id, limit, look).await?;
        let size = snapshot.volume_size.and_then(|gib| u64::try_from(gib).ok());
        let size = size.ok_or_else(|| CallError::missing("DescribeSnapshots", "the size"))?;
        Ok(Snapshot { id: SnapshotId::new(&made.id), region: place.region().clone(), size: size * GIB })
    }

    async fn undo(&self, op: &Op, made: &Made) -> StepResult<Undone> {
        snapshots::delete(&self.0, &self.0.place_of(&made.address).await?, op, &made.id).await
    }
}

fn look_at_snapshot(cx: &StepContext, snapshot: &ApiSnapshot) -> Verdict<ApiSnapshot> {
    let percent = snapshot.progress.as_deref().and_then(|text| text.trim_end_matches('%').parse().ok());
    if let Some(percent) = percent {
        cx.progress(percent, Some(100), "%");
    }
    match &snapshot.state {
        Some(SnapshotState::Completed) => Verdict::Done(snapshot.clone()),
        Some(state @ (SnapshotState::Error | SnapshotState::Recoverable | SnapshotState::Recovering)) => {
            let reason = snapshot.state_message.as_deref().unwrap_or("no reason was given");
            Verdict::Failed(format!("it is `{}`: {reason}", state.as_str()))
        }
        _ => Verdict::NotYet(format!("{} % of it are saved", percent.unwrap_or_default())),
    }
}
