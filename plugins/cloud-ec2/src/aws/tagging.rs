//! Tags: given at creation where the API can, set afterwards where it cannot, and read back.

use aws_sdk_ec2::types::{Filter, ResourceType, Tag, TagSpecification};
use bake_core::{TagResource, Taggable, Tagged, Tags};
use bake_engine::{Calls, Found, Keep, Mutation, Op, Resend, StepContext, StepResult, Undone};

use crate::aws::calls::all_pages;
use crate::aws::connection::Place;
use crate::aws::context::Ec2;

/// The tag that names the run that made something.
pub(crate) const RUN_TAG: &str = "bake:run";

/// The tag that names the operation that made something.
pub(crate) const OP_TAG: &str = "bake:op";

/// The user's tags and those that find what the journal lost, which nobody can replace.
pub(crate) fn all_tags(tags: &Tags, op: &Op) -> Tags {
    tags.clone().into_iter().chain(op.tags()).collect()
}

/// Tags for a call that makes something.
pub(crate) fn specification(kind: ResourceType, tags: &Tags) -> TagSpecification {
    TagSpecification::builder().resource_type(kind).set_tags(Some(api_tags(tags))).build()
}

fn api_tags(tags: &Tags) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect()
}

/// Sets tags of what was made before.
pub(crate) struct Tagging(pub(crate) Ec2);

impl Mutation for Tagging {
    type Request = TagResource;
    type Made = ();
    type Result = Tagged;

    fn name(&self) -> &'static str {
        "ec2.tags"
    }

    fn calls(&self) -> Calls {
        Calls { send: &["CreateTags"], settle: &["DescribeTags"], undo: &[] }
    }

    fn keep(&self) -> Keep {
        Keep::NothingToUndo
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    async fn send(&self, _: &Op, request: &TagResource) -> StepResult<()> {
        if request.tags.is_empty() {
            return Ok(());
        }
        let place = self.0.place(&request.region).await?;
        let tags = api_tags(&request.tags);
        let call = || place.ec2().create_tags().resources(id(request)).set_tags(Some(tags.clone())).send();
        // The id is known to one part of the service before it is to another.
        place.calls().new_id("CreateTags", call).await?;
        Ok(())
    }

    async fn find(&self, _: &Op, request: &TagResource) -> StepResult<Found<()>> {
        let there = read(&self.0.place(&request.region).await?, id(request)).await?;
        Ok(if carries(&there, &request.tags) { Found::Made(()) } else { Found::Absent })
    }

    async fn settle(&self, cx: &StepContext, request: &TagResource, (): &()) -> StepResult<Tagged> {
        let place = self.0.place(&request.region).await?;
        let look = || async {
            let there = read(&place, id(request)).await?;
            Ok(match carries(&there, &request.tags) {
                true => Ok(there),
                false => Err(format!("`{}` does not show the tags that were set", id(request))),
            })
        };
        Ok(Tagged { tags: self.0.read_back(cx, look).await? })
    }

    async fn undo(&self, _: &Op, (): &()) -> StepResult<Undone> {
        Ok(Undone::Gone)
    }
}

fn id(request: &TagResource) -> &str {
    match &request.resource {
        Taggable::Snapshot(id) => id.as_str(),
        Taggable::Image(id) => id.as_str(),
    }
}

fn carries(there: &Tags, wanted: &Tags) -> bool {
    wanted.iter().all(|(key, value)| there.get(key) == Some(value))
}

/// Reads the tags of anything. What is not there has none.
pub(crate) async fn read(place: &Place, id: &str) -> StepResult<Tags> {
    let filter = &Filter::builder().name("resource-id").values(id).build();
    let page = |page: Option<String>| async move {
        let call = || place.ec2().describe_tags().filters(filter.clone()).set_next_token(page.clone()).send();
        let answer = place.calls().read("DescribeTags", call).await?;
        Ok((answer.tags.unwrap_or_default(), answer.next_token))
    };
    let all = all_pages(page).await?;
    Ok(all.into_iter().filter_map(|tag| Some((tag.key?, tag.value.unwrap_or_default()))).collect())
}
