//! How long an AMI is good, and that it cannot be deregistered by mistake.

use aws_sdk_ec2::primitives::DateTime;
use bake_core::GuardImage;
use bake_engine::{Calls, Found, Keep, Mutation, Op, Resend, StepContext, StepError, StepResult, Undone};

use crate::aws::context::Ec2;
use crate::aws::images::{self, Made};

/// The nearest time that the service takes, in seconds: it rounds to the minute, and wants the future.
const NEAREST: u64 = 120;

/// Sets dates and locks.
pub(crate) struct Guarding(pub(crate) Ec2);

impl Mutation for Guarding {
    type Request = GuardImage;
    type Made = Made;
    type Result = ();

    fn name(&self) -> &'static str {
        "ec2.guard"
    }

    fn calls(&self) -> Calls {
        Calls {
            send: &["EnableImageDeprecation", "EnableImageDeregistrationProtection"],
            settle: &["DescribeImages"],
            undo: &["DisableImageDeregistrationProtection"],
        }
    }

    fn keep(&self) -> Keep {
        Keep::Artifact
    }

    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }

    async fn send(&self, op: &Op, request: &GuardImage) -> StepResult<Made> {
        let place = self.0.place_for(&request.region, request.account.as_ref()).await?;
        let id = request.image.as_str();
        if let Some(after) = request.deprecate_after {
            // From the intent, so that a call that is repeated says the same.
            let at = op.time().as_second().saturating_add_unsigned(after.max(NEAREST));
            let call =
                || place.ec2().enable_image_deprecation().image_id(id).deprecate_at(DateTime::from_secs(at)).send();
            place.calls().new_id("EnableImageDeprecation", call).await?;
        }
        if request.protect {
            let call = || place.ec2().enable_image_deregistration_protection().image_id(id).with_cooldown(false).send();
            place.calls().new_id("EnableImageDeregistrationProtection", call).await?;
        }
        Ok(Made::new(&place, id))
    }

    async fn find(&self, _: &Op, request: &GuardImage) -> StepResult<Found<Made>> {
        let place = self.0.place_for(&request.region, request.account.as_ref()).await?;
        // Both calls may be repeated, so it does not matter whether one of them was made.
        Ok(match images::read(&place, request.image.as_str()).await? {
            Some(_) => Found::Made(Made::new(&place, request.image.as_str())),
            None => Found::Absent,
        })
    }

    async fn settle(&self, _: &StepContext, request: &GuardImage, made: &Made) -> StepResult<()> {
        let place = self.0.place_of(&made.address).await?;
        let ami = images::read(&place, &made.id).await?;
        let ami = ami.ok_or_else(|| StepError::transient(format!("`{}` is not there", made.id)))?;
        let protected = ami.deregistration_protection.as_deref().is_some_and(|state| state != "disabled");
        if request.protect && !protected {
            return Err(StepError::transient(format!("`{}` is not protected yet", made.id)));
        }
        if request.deprecate_after.is_some() && ami.deprecation_time.is_none() {
            return Err(StepError::transient(format!("`{}` has no date of deprecation yet", made.id)));
        }
        Ok(())
    }

    /// Lets the AMI be deregistered. Its date goes with it.
    async fn undo(&self, _: &Op, made: &Made) -> StepResult<Undone> {
        let place = self.0.place_of(&made.address).await?;
        let protected = images::read(&place, &made.id).await?.and_then(|ami| ami.deregistration_protection);
        if protected.is_some_and(|state| state != "disabled") {
            let call = || place.ec2().disable_image_deregistration_protection().image_id(&made.id).send();
            place.calls().repeatable("DisableImageDeregistrationProtection", call).await?;
        }
        Ok(Undone::Gone)
    }
}
