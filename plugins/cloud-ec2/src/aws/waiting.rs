//! Waiting for something that EC2 makes: until it is there, or will never be.
//!
//! All that is waited for in one place is looked at together: one call for each kind, however many steps wait.

use std::time::Duration;

use api_manners::{ErrorClass, Pace, Poller, Verdict, Wait, WaitError};
use aws_sdk_ec2::types::{Filter, Image as Ami, Snapshot, Volume};
use bake_engine::{Class, StepContext, StepError, StepResult};
use tokio::time::Instant;

use crate::aws::calls::{Calls, class};
use crate::aws::connection::Place;
use crate::aws::context::Ec2;
use crate::aws::images;

/// How long a registration may take.
const REGISTRATION: Duration = Duration::from_secs(10 * 60);

/// How long a copy may take; a large image to a far region takes most of an hour.
const COPY: Duration = Duration::from_secs(2 * 60 * 60);

/// How much slower the looks become.
const SLOWEST: u32 = 8;

/// How often something that was set is looked for before it counts as not set.
const READ_BACKS: u32 = 10;

/// What is looked at in one place.
pub(crate) struct Pollers {
    /// AMIs of our own.
    pub(crate) images: Poller<String, Ami>,
    /// Snapshots of our own.
    pub(crate) snapshots: Poller<String, Snapshot>,
    /// Volumes.
    pub(crate) volumes: Poller<String, Volume>,
}

impl Pollers {
    /// Makes the pollers of a place. They look at first every `pace`.
    pub(crate) fn new(ec2: &aws_sdk_ec2::Client, calls: &Calls, place: &api_manners::Place, pace: Duration) -> Self {
        let usual = Pace::default();
        let pace = Pace {
            shortest: pace,
            longest: pace * SLOWEST,
            soonest: pace / 2,
            gather: usual.gather.min(pace / 2),
            batch: usual.batch,
        };
        let filter = |name: &str, ids: Vec<String>| Filter::builder().name(name).set_values(Some(ids)).build();
        let (client, own) = (ec2.clone(), calls.clone());
        let images = Poller::new("image", place.clone(), pace, move |ids| {
            let (client, calls, filter) = (client.clone(), own.clone(), filter("image-id", ids));
            async move {
                let call = || {
                    let call = client.describe_images().owners("self").filters(filter.clone());
                    call.include_disabled(true).include_deprecated(true).send()
                };
                let found = calls.look("DescribeImages", call).await?.images.unwrap_or_default();
                Ok(found.into_iter().filter_map(|one| Some((one.image_id.clone()?, one))).collect())
            }
        });
        let (client, own) = (ec2.clone(), calls.clone());
        let snapshots = Poller::new("snapshot", place.clone(), pace, move |ids| {
            let (client, calls, filter) = (client.clone(), own.clone(), filter("snapshot-id", ids));
            async move {
                let call = || client.describe_snapshots().owner_ids("self").filters(filter.clone()).send();
                let found = calls.look("DescribeSnapshots", call).await?.snapshots.unwrap_or_default();
                Ok(found.into_iter().filter_map(|one| Some((one.snapshot_id.clone()?, one))).collect())
            }
        });
        let (client, own) = (ec2.clone(), calls.clone());
        let volumes = Poller::new("volume", place.clone(), pace, move |ids| {
            let (client, calls, filter) = (client.clone(), own.clone(), filter("volume-id", ids));
            async move {
                let call = || client.describe_volumes().filters(filter.clone()).send();
                let found = calls.look("DescribeVolumes", call).await?.volumes.unwrap_or_default();
                Ok(found.into_iter().filter_map(|one| Some((one.volume_id.clone()?, one))).collect())
            }
        });
        Self { images, snapshots, volumes }
    }
}

impl Ec2 {
    /// Waits until an AMI that was registered can be used.
    pub(crate) async fn wait_for_image(&self, cx: &StepContext, place: &Place, id: &str) -> StepResult<Ami> {
        wait(cx, &place.pollers().images, id, REGISTRATION, images::look).await
    }

    /// Waits until a copy of an AMI can be used.
    pub(crate) async fn wait_for_copy(&self, cx: &StepContext, place: &Place, id: &str) -> StepResult<Ami> {
        wait(cx, &place.pollers().images, id, COPY, images::look).await
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

/// Waits until something is as `look` wants it. What was just made may not be there yet.
pub(crate) async fn wait<S: Send + Sync + 'static, T>(
    cx: &StepContext,
    poller: &Poller<String, S>,
    id: &str,
    limit: Duration,
    mut look: impl FnMut(&S) -> Verdict<T>,
) -> StepResult<T> {
    let until = |there: Option<&S>| there.map_or_else(|| Verdict::NotYet("it is not there yet".into()), &mut look);
    let (stop, id) = (cx.cancel().stop(), id.to_owned());
    let waiting = poller.wait(&id, Wait::until(Instant::now() + limit), &stop, until);
    cx.without_slot(waiting).await?.map_err(failed)
}

fn failed(error: WaitError) -> StepError {
    match &error {
        WaitError::Cancelled { .. } => StepError::cancelled(),
        WaitError::OutOfTime { .. } => StepError::wrap(Class::Transient, error).hint("`bake resume` goes on waiting"),
        WaitError::Blind { source, .. } => {
            let (class, hint) =
                (class(source.class().unwrap_or(ErrorClass::Refused)), source.hint().map(str::to_owned));
            let error = StepError::wrap(class, error);
            hint.into_iter().fold(error, StepError::hint)
        }
        WaitError::Failed { .. } | WaitError::NeverThere { .. } => StepError::wrap(Class::Permanent, error),
        _ => StepError::wrap(Class::Transient, error),
    }
}
