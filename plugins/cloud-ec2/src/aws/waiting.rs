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

/// What a look says to whoever waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It can be used.
    Ready,
    /// It is on its way: what was seen.
    NotYet(String),
    /// It will never be: the reason.
    Failed(String),
}

impl Ec2 {
    /// Waits until an AMI that was registered can be used.
    pub(crate) async fn wait_for_image(&self, cx: &StepContext, place: &Place, id: &str) -> StepResult<Ami> {
        self.wait(cx, place, id, REGISTRATION).await
    }

    /// Waits until a copy of an AMI can be used.
    pub(crate) async fn wait_for_copy(&self, cx: &StepContext, place: &Place, id: &str) -> StepResult<Ami> {
        self.wait(cx, place, id, COPY).await
    }

    async fn wait(&self, cx: &StepContext, place: &Place, id: &str, limit: Duration) -> StepResult<Ami> {
        let (begun, mut pace) = (Instant::now(), self.pace());
        loop {
            let ami = images::read(place, id).await?;
            let seen = match ami.as_ref().map(images::look) {
                Some(Look::Ready) => return Ok(ami.expect("it was just looked at")),
                Some(Look::Failed(why)) => {
                    return Err(StepError::permanent(format!(
                        "`{id}` in region `{}` cannot be used: {why}",
                        place.region()
                    )));
                }
                Some(Look::NotYet(seen)) => seen,
                None if begun.elapsed() > NEW => {
                    return Err(StepError::permanent(format!("`{id}` is not there in region `{}`", place.region())));
                }
                None => "it is not there yet".to_owned(),
            };
            if begun.elapsed() > limit {
                let text = format!("`{id}` in region `{}` was not ready after {limit:?}: {seen}", place.region());
                return Err(StepError::transient(text).hint("`bake resume` goes on waiting"));
            }
            cx.pause(pace).await?;
            pace = (pace + pace / 2).min(self.pace() * SLOWEST);
        }
    }
}
