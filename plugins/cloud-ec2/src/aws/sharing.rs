//! The right of other accounts to use an AMI, and to copy the snapshots that it is made of.

use aws_sdk_ec2::types::{LaunchPermission, LaunchPermissionModifications, OperationType, SnapshotAttributeName};
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
            settle: &["DescribeImageAttribute"],
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
        let with = read(&self.0.place(&request.region).await?, request.image.as_str()).await?;
        Ok(if request.with.iter().all(|account| with.contains(account)) { Found::Made(()) } else { Found::Absent })
    }

    async fn settle(&self, cx: &StepContext, request: &ShareImage, (): &()) -> StepResult<Shared> {
        let place = self.0.place(&request.region).await?;
        let id = request.image.as_str();
        let mut looks = 0;
        let with = cx.until(self.0.pace(), || {
            looks += 1;
            let place = place.clone();
            async move {
                let with = read(&place, id).await?;
                let missing = request.with.iter().find(|account| !with.contains(account));
                match missing {
                    None => Ok(Some(with)),
                    Some(_) if looks < 10 => Ok(None),
                    Some(account) => {
                        Err(StepError::transient(format!("`{id}` is not shared with account {account} yet")))
                    }
                }
            }
        });
        Ok(Shared { with: with.await? })
    }

    async fn undo(&self, _: &Op, (): &()) -> StepResult<Undone> {
        Ok(Undone::Gone)
    }
}

async fn read(place: &Place, id: &str) -> StepResult<Vec<Account>> {
    let attribute = aws_sdk_ec2::types::ImageAttributeName::LaunchPermission;
    let call = || place.ec2().describe_image_attribute().image_id(id).attribute(attribute.clone()).send();
    let answer = place.calls().read("DescribeImageAttribute", call).await?;
    let permissions = answer.launch_permissions.unwrap_or_default();
    Ok(permissions.into_iter().filter_map(|permission| permission.user_id).map(Account::new).collect())
}
