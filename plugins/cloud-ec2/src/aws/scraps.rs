//! What runs have made and no image needs: disks of this machine, and volumes and snapshots in the region that bakes are in.

use std::collections::BTreeSet;

use aws_sdk_ec2::types::{Filter, Snapshot, Tag, Volume};
use bake_core::{Scrap, ScrapKind};
use bake_engine::{StepError, StepResult, Undone};

use crate::aws::base::tags;
use crate::aws::calls::{GIB, all_pages};
use crate::aws::connection::Place;
use crate::aws::context::Ec2;
use crate::aws::disks::{DiskFolder, blocking, local};
use crate::aws::snapshots;
use crate::aws::tagging::RUN_TAG;
use crate::aws::volumes;

/// Lists what nobody needs.
pub(crate) async fn list(ec2: &Ec2) -> StepResult<Vec<Scrap>> {
    let mut scraps = disks(ec2).await?;
    let place = ec2.home(None).await?;
    let tagged = Filter::builder().name("tag-key").values(RUN_TAG).build();
    let volumes = volumes::list(&place, std::slice::from_ref(&tagged)).await?;
    scraps.extend(volumes.iter().filter_map(|volume| volume_scrap(&place, volume)));
    let snapshots = snapshots::list(&place, &[tagged]).await?;
    if !snapshots.is_empty() {
        let used = used(&place).await?;
        let unused = snapshots.into_iter().filter(|one| one.snapshot_id.as_ref().is_some_and(|id| !used.contains(id)));
        scraps.extend(unused.filter_map(|snapshot| scrap(&place, &snapshot)));
    }
    Ok(scraps)
}

async fn disks(ec2: &Ec2) -> StepResult<Vec<Scrap>> {
    let folder = ec2.disks().clone();
    blocking(move || {
        let disks = folder.list().map_err(|error| local(error, &folder.file("")))?;
        let scrap = |(id, record): (String, crate::aws::disks::DiskRecord)| Scrap {
            kind: ScrapKind::Volume,
            size: std::fs::metadata(folder.file(&id)).map(|file| file.len()).unwrap_or_default(),
            region: record.address.region.clone(),
            run: record.run.to_string(),
            created: record.created,
            id,
        };
        Ok(disks.into_iter().map(scrap).collect())
    })
    .await
}

/// The snapshots that AMIs of this account are made of.
async fn used(place: &Place) -> StepResult<BTreeSet<String>> {
    let page = |page: Option<String>| async move {
        let call = || {
            let request = place.ec2().describe_images().owners("self").include_disabled(true).include_deprecated(true);
            request.max_results(1000).set_next_token(page.clone()).send()
        };
        let answer = place.calls().read("DescribeImages", call).await?;
        Ok((answer.images.unwrap_or_default(), answer.next_token))
    };
    Ok(all_pages(page).await?.iter().flat_map(snapshots::of_image).collect())
}

fn scrap(place: &Place, snapshot: &Snapshot) -> Option<Scrap> {
    let begun = snapshot.start_time.as_ref()?;
    Some(Scrap {
        kind: ScrapKind::Snapshot,
        id: snapshot.snapshot_id.clone()?,
        region: place.region().clone(),
        run: tags(snapshot.tags.as_deref()).remove(RUN_TAG)?,
        created: jiff::Timestamp::from_second(begun.secs()).ok()?,
        size: snapshot.volume_size.and_then(|gib| u64::try_from(gib).ok())? * GIB,
    })
}

fn volume_scrap(place: &Place, volume: &Volume) -> Option<Scrap> {
    Some(Scrap {
        kind: ScrapKind::Volume,
        id: volume.volume_id.clone()?,
        region: place.region().clone(),
        run: tags(volume.tags.as_deref()).remove(RUN_TAG)?,
        created: jiff::Timestamp::from_second(volume.create_time.as_ref()?.secs()).ok()?,
        size: volume.size.and_then(|gib| u64::try_from(gib).ok())? * GIB,
    })
}

/// Removes one of them.
pub(crate) async fn remove(ec2: &Ec2, scrap: &Scrap) -> StepResult<Undone> {
    match scrap.kind {
        ScrapKind::Volume if !DiskFolder::is_id(&scrap.id) => {
            let place = ec2.place(&scrap.region).await?;
            let Some(volume) = volumes::read(&place, &scrap.id).await? else { return Ok(Undone::Gone) };
            check_tag(&scrap.id, volume.tags.as_deref())?;
            volumes::remove(&place, &scrap.id).await
        }
        ScrapKind::Volume => {
            let (folder, id) = (ec2.disks().clone(), scrap.id.clone());
            blocking(move || folder.remove(&id).map_err(|error| local(error, &folder.file(&id)))).await
        }
        ScrapKind::Snapshot => {
            let place = ec2.place(&scrap.region).await?;
            let Some(snapshot) = snapshots::read(&place, &scrap.id).await? else { return Ok(Undone::Gone) };
            check_tag(&scrap.id, snapshot.tags.as_deref())?;
            snapshots::remove(&place, &scrap.id).await
        }
    }
}

fn check_tag(id: &str, there: Option<&[Tag]>) -> StepResult<()> {
    match tags(there).contains_key(RUN_TAG) {
        true => Ok(()),
        false => Err(StepError::permanent(format!("`{id}` carries no tag `{RUN_TAG}` any more"))),
    }
}
