//! Snapshots: uploaded block by block on top of the base's, read back, and deleted.

use aws_sdk_ec2::types::{Filter, Image as Ami, Snapshot as ApiSnapshot};
use bake_core::{CreateSnapshot, Snapshot, SnapshotId};
use bake_engine::{Calls, Found, Keep, Mutation, Op, Patience, Resend, StepContext, StepError, StepResult, Undone};
use ebs_transfer::StartSnapshot;

use crate::aws::base::tags;
use crate::aws::blocks::Blocks;
use crate::aws::cache::Sending;
use crate::aws::calls::{GIB, all_pages};
use crate::aws::connection::Place;
use crate::aws::context::Ec2;
use crate::aws::disks::{DiskFolder, blocking, local};
use crate::aws::images::{Made, check_run};
use crate::aws::tagging::{OP_TAG, all_tags};

/// How long, in minutes, the service keeps an upload that nothing is written to: long enough to go on after a night.
pub(crate) const UNTOUCHED: i32 = 720;

/// Most characters that the services take as a description.
const LONGEST_DESCRIPTION: usize = 255;

/// Uploads what a bake changed of its base.
pub(crate) struct Uploads(pub(crate) Ec2);

impl Mutation for Uploads {
    type Request = CreateSnapshot;
    type Made = Made;
    type Result = Snapshot;

    fn name(&self) -> &'static str {
        "ec2.upload"
    }

    fn calls(&self) -> Calls {
        Calls {
            send: &["StartSnapshot"],
            settle: &["PutSnapshotBlock", "CompleteSnapshot", "DescribeSnapshots"],
            undo: &["DescribeSnapshots", "DeleteSnapshot"],
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

    async fn send(&self, op: &Op, request: &CreateSnapshot) -> StepResult<Made> {
        let place = self.0.place(&request.region).await?;
        let (_, parent, size) = self.source(request).await?;
        let start = StartSnapshot {
            volume_size_gib: gib(size)?,
            parent: Some(parent.to_string()),
            token: op.token().to_owned(),
            description: description(&request.description),
            tags: all_tags(&request.tags, op),
            timeout_minutes: UNTOUCHED,
        };
        let started = Blocks::new(&place).begin(&start).await?;
        Ok(Made::new(&place, started))
    }

    async fn find(&self, op: &Op, request: &CreateSnapshot) -> StepResult<Found<Made>> {
        find(&self.0.place(&request.region).await?, op).await
    }

    async fn settle(&self, cx: &StepContext, request: &CreateSnapshot, made: &Made) -> StepResult<Snapshot> {
        let place = self.0.place_of(&made.address).await?;
        let (disk, parent, size) = self.source(request).await?;
        let sending = Sending {
            snapshot: &made.id,
            parent: Some((parent.to_string(), self.0.cache().digests(cx, &place, &parent).await?)),
            journal: disk.with_file_name(format!("{}.journal", made.id)),
            disk,
        };
        let uploaded = self.0.upload(cx, &place, sending, |done, all| cx.progress(done, Some(all), "bytes")).await?;
        cx.log(&format!("{} blocks of {} are new in `{}`", uploaded.written, uploaded.digests.len(), made.id));
        let id = SnapshotId::new(&made.id);
        Ok(Snapshot { id, region: place.region().clone(), size: u64::from(gib(size)?) * GIB })
    }

    async fn undo(&self, op: &Op, made: &Made) -> StepResult<Undone> {
        let place = self.0.place_of(&made.address).await?;
        delete(&self.0, &place, op, &made.id).await
    }
}

impl Uploads {
    /// The sealed disk, the snapshot that it began with, and its size in bytes.
    async fn source(&self, request: &CreateSnapshot) -> StepResult<(std::path::PathBuf, SnapshotId, u64)> {
        let (folder, id): (DiskFolder, _) = (self.0.disks().clone(), request.volume.as_str().to_owned());
        blocking(move || {
            let file = folder.file(&id);
            let record = folder.read(&id).map_err(|error| local(error, &file))?;
            let record = record.ok_or_else(|| StepError::permanent(format!("the disk `{id}` is gone")))?;
            let size = std::fs::metadata(&file).map_err(|error| local(error, &file))?.len();
            Ok((file, record.snapshot, size))
        })
        .await
    }
}

/// A description as the services take it: not too long, and not empty.
pub(crate) fn description(text: &str) -> Option<String> {
    Some(text.chars().take(LONGEST_DESCRIPTION).collect()).filter(|text: &String| !text.is_empty())
}

/// Looks for the snapshot that an operation made.
pub(crate) async fn find(place: &Place, op: &Op) -> StepResult<Found<Made>> {
    let ids = of_operation(place, op).await?.into_iter().filter_map(|one| one.snapshot_id);
    Ok(Made::only(place, ids.collect()))
}

/// Lists the snapshots that carry an operation's tag.
pub(crate) async fn of_operation(place: &Place, op: &Op) -> StepResult<Vec<ApiSnapshot>> {
    let filter = Filter::builder().name(format!("tag:{OP_TAG}")).values(op.id()).build();
    list(place, &[filter]).await
}

/// The size of the volume that holds so many bytes.
pub(crate) fn gib(size: u64) -> StepResult<u32> {
    u32::try_from(size.div_ceil(GIB).max(1))
        .map_err(|_| StepError::permanent(format!("{size} bytes are too many for a volume")))
}

/// The snapshots that an AMI is made of.
pub(crate) fn of_image(ami: &Ami) -> Vec<String> {
    let mappings = ami.block_device_mappings.iter().flatten();
    mappings.filter_map(|mapping| mapping.ebs.as_ref()?.snapshot_id.clone()).collect()
}

/// Lists snapshots of our own.
pub(crate) async fn list(place: &Place, filters: &[Filter]) -> StepResult<Vec<ApiSnapshot>> {
    let page = |page: Option<String>| async move {
        let call = || {
            let request = place.ec2().describe_snapshots().owner_ids("self").set_filters(Some(filters.to_vec()));
            request.max_results(1000).set_next_token(page.clone()).send()
        };
        let answer = place.calls().read("DescribeSnapshots", call).await?;
        Ok((answer.snapshots.unwrap_or_default(), answer.next_token))
    };
    Ok(all_pages(page).await?)
}

/// Reads one snapshot; `None` if it is not there.
pub(crate) async fn read(place: &Place, id: &str) -> StepResult<Option<ApiSnapshot>> {
    match place.calls().read("DescribeSnapshots", || place.ec2().describe_snapshots().snapshot_ids(id).send()).await {
        Ok(answer) => Ok(answer.snapshots.unwrap_or_default().into_iter().next()),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Deletes a snapshot of this run.
pub(crate) async fn delete(ec2: &Ec2, place: &Place, op: &Op, id: &str) -> StepResult<Undone> {
    let Some(snapshot) = read(place, id).await? else { return Ok(ec2.absent(op)) };
    check_run(id, &tags(snapshot.tags.as_deref()), op)?;
    remove(place, id).await
}

/// Deletes a snapshot, whoever made it.
pub(crate) async fn remove(place: &Place, id: &str) -> StepResult<Undone> {
    match place.calls().repeatable("DeleteSnapshot", || place.ec2().delete_snapshot().snapshot_id(id).send()).await {
        Ok(_) => Ok(Undone::Gone),
        // One that is not known was just looked at: the next look tells.
        Err(error) if error.is_in_use() || error.is_absent() => Ok(Undone::InUse),
        Err(error) => Err(error.into()),
    }
}
