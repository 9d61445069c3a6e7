//! The right of other accounts to use an AMI, and to copy the snapshots that it is made of.

use aws_sdk_ec2::types::{
    ImageAttributeName, LaunchPermission, LaunchPermissionModifications, OperationType, SnapshotAttributeName,
};
use bake_core::{Account, ShareImage, Shared};
use bake_engine::{Calls, Found, Keep, Mutation, Op, Resend, StepContext, StepError, StepResult, Undone};

use crate::aws::connection::Place;
use crate::aws::context::Ec2;
use crate::aws::images;
use crate::aws::snapshots;

/// Most changes of a snapshot's permissions in one call.
const PER_CALL: usize = 500;

/// Shares AMIs. The right goes with the AMI, so there is nothing to take back.
pub(crate) struct Sharing(pub(crate) Ec2);

impl Mutation for Sharing {
    type Request = ShareImage;
    type Made = ();
    type Result = Shared;

    fn name(&self) -> &'static str {
        "ec2.share"
    }

    fn calls(&self) -> Calls {
        Calls {
            send: &["ModifySnapshotAttribute", "ModifyImageAttribute"],
            settle: &["DescribeImageAttribute", "DescribeSnapshotAttribute"],
            undo: &[],
        }
    }

    fn keep(&self) -> Keep {
        Keep::NothingToUndo
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    /// Shares the snapshots first: whoever sees the AMI can copy it at once.
    async fn send(&self, _: &Op, request: &ShareImage) -> StepResult<()> {
        let place = self.0.place(&request.region).await?;
        let id = request.image.as_str();
        let ami = images::read(&place, id).await?;
        let ami =
            ami.ok_or_else(|| StepError::transient(format!("`{id}` is not there in region `{}`", request.region)))?;
        for snapshot in snapshots::of_image(&ami) {
            for accounts in request.with.chunks(PER_CALL) {
                let call = || {
                    let call = place.ec2().modify_snapshot_attribute().snapshot_id(&snapshot);
                    let call = call
                        .attribute(SnapshotAttributeName::CreateVolumePermission)
                        .operation_type(OperationType::Add);
                    call.set_user_ids(Some(accounts.iter().map(|account| account.to_string()).collect())).send()
                };
                place.calls().new_id("ModifySnapshotAttribute", call).await?;
            }
        }
        let add = request.with.iter().map(|account| LaunchPermission::builder().user_id(account.as_str()).build());
        let add = LaunchPermissionModifications::builder().set_add(Some(add.collect())).build();
        let call = || place.ec2().modify_image_attribute().image_id(id).launch_permission(add.clone()).send();
        place.calls().new_id("ModifyImageAttribute", call).await?;
        Ok(())
    }

    async fn find(&self, _: &Op, request: &ShareImage) -> StepResult<Found<()>> {
        let shares = read(&self.0.place(&request.region).await?, request.image.as_str()).await?;
        Ok(if missing(&shares, &request.with).is_none() { Found::Made(()) } else { Found::Absent })
    }

    async fn settle(&self, cx: &StepContext, request: &ShareImage, (): &()) -> StepResult<Shared> {
        let place = self.0.place(&request.region).await?;
        let look = || async {
            let shares = read(&place, request.image.as_str()).await?;
            Ok(match missing(&shares, &request.with) {
                None => Ok(shares),
                Some((id, account)) => Err(format!("`{id}` is not shared with account {account} yet")),
            })
        };
        let shares = self.0.read_back(cx, look).await?;
        let with = shares.into_iter().find(|(id, _)| id == request.image.as_str()).map(|(_, with)| with);
        Ok(Shared { with: with.unwrap_or_default() })
    }

    async fn undo(&self, _: &Op, (): &()) -> StepResult<Undone> {
        Ok(Undone::Gone)
    }
}

/// Who may use what: an AMI, and the snapshots that it is made of.
type Shares = Vec<(String, Vec<Account>)>;

/// The first account that may not use something yet.
fn missing<'a>(shares: &'a Shares, with: &'a [Account]) -> Option<(&'a str, &'a Account)> {
    let mut pairs = shares.iter().flat_map(|(id, there)| with.iter().map(move |account| (id, there, account)));
    pairs.find(|(_, there, account)| !there.contains(account)).map(|(id, _, account)| (id.as_str(), account))
}

async fn read(place: &Place, id: &str) -> StepResult<Shares> {
    let mut shares = vec![(id.to_owned(), of_image(place, id).await?)];
    let ami = images::read(place, id).await?;
    for snapshot in ami.as_ref().map(snapshots::of_image).unwrap_or_default() {
        let with = of_snapshot(place, &snapshot).await?;
        shares.push((snapshot, with));
    }
    Ok(shares)
}

async fn of_image(place: &Place, id: &str) -> StepResult<Vec<Account>> {
    let attribute = ImageAttributeName::LaunchPermission;
    let call = || place.ec2().describe_image_attribute().image_id(id).attribute(attribute.clone()).send();
    let answer = place.calls().read("DescribeImageAttribute", call).await?;
    let permissions = answer.launch_permissions.unwrap_or_default();
    Ok(permissions.into_iter().filter_map(|permission| permission.user_id).map(Account::new).collect())
}

async fn of_snapshot(place: &Place, id: &str) -> StepResult<Vec<Account>> {
    let attribute = SnapshotAttributeName::CreateVolumePermission;
    let call = || place.ec2().describe_snapshot_attribute().snapshot_id(id).attribute(attribute.clone()).send();
    let answer = place.calls().read("DescribeSnapshotAttribute", call).await?;
    let permissions = answer.create_volume_permissions.unwrap_or_default();
    Ok(permissions.into_iter().filter_map(|permission| permission.user_id).map(Account::new).collect())
}
