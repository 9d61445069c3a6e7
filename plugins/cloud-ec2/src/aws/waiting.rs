//! Waiting for something that EC2 makes: until it is there, or will never be.

use std::time::Duration;

use aws_sdk_ec2::types::Image as Ami;
use bake_engine::{StepContext, StepError, StepResult};
use tokio::time::Instant;

use crate::aws::connection::Place;
use crate::aws::context::Ec2;
use crate::aws::images;

/// How long a registration may take.
const REGISTRATION: Duration = Duration::from_secs(10 * 60);

/// How long a copy may take; a large image to a far region takes most of an hour.
const COPY: Duration = Duration::from_secs(2 * 60 * 60);

/// How long something that was just made may not be there yet.
const NEW: Duration = Duration::from_secs(180);

/// How much slower the looks become.
const SLOWEST: u32 = 8;

/// How often something that was set is looked for before it counts as not set.
const READ_BACKS: u32 = 10;

/// What a look says to whoever waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look<T> {
    /// It can be used: what was seen.
    Ready(T),
    /// It is on its way: what was seen.
    NotYet(String),
    /// It is not there, which may be because it is new.
    Absent,
    /// It will never be: the reason.
    Failed(String),
}

impl Ec2 {
    /// Waits until an AMI that was registered can be used.
    pub(crate) async fn wait_for_image(&self, cx: &StepContext, place: &Place, id: &str) -> StepResult<Ami> {
        self.wait(cx, place, id, REGISTRATION, || image(place, id)).await
    }

    /// Waits until a copy of an AMI can be used.
    pub(crate) async fn wait_for_copy(&self, cx: &StepContext, place: &Place, id: &str) -> StepResult<Ami> {
        self.wait(cx, place, id, COPY, || image(place, id)).await
    }

    /// Looks again and again, more and more slowly.
    pub(crate) async fn wait<T, F>(
        &self,
        cx: &StepContext,
        place: &Place,
        id: &str,
        limit: Duration,
        look: impl Fn() -> F,
    ) -> StepResult<T>
    where
        F: Future<Output = StepResult<Look<T>>>,
    {
        let (begun, mut pace) = (Instant::now(), self.pace());
        let region = place.region();
        loop {
            let seen = match look().await? {
                Look::Ready(seen) => return Ok(seen),
                Look::Failed(why) => {
                    return Err(StepError::permanent(format!("`{id}` in region `{region}` cannot be used: {why}")));
                }
                Look::NotYet(seen) => seen,
                Look::Absent if begun.elapsed() > NEW => {
                    return Err(StepError::permanent(format!("`{id}` is not there in region `{region}`")));
                }
                Look::Absent => "it is not there yet".to_owned(),
            };
            if begun.elapsed() > limit {
                let text = format!("`{id}` in region `{region}` was not ready after {limit:?}: {seen}");
                return Err(StepError::transient(text).hint("`bake resume` goes on waiting"));
            }
            cx.pause(pace).await?;
            pace = (pace + pace / 2).min(self.pace() * SLOWEST);
        }
    }

    /// Reads back what was set, a few times, as another part of the service may not have heard of it yet. A look says what it
    /// misses.
    pub(crate) async fn read_back<T, F>(&self, cx: &StepContext, look: impl Fn() -> F) -> StepResult<T>
    where
        F: Future<Output = StepResult<Result<T, String>>>,
    {
        let mut looks = 1;
        loop {
            match look().await? {
                Ok(there) => return Ok(there),
                Err(missing) if looks == READ_BACKS => return Err(StepError::transient(missing)),
                Err(_) => cx.pause(self.pace()).await?,
            }
            looks += 1;
        }
    }
}

async fn image(place: &Place, id: &str) -> StepResult<Look<Ami>> {
    Ok(images::read(place, id).await?.map_or(Look::Absent, images::look))
}
