//! `distribute_images`: brings every image of the set to regions and accounts, with the tags that the set gives to copies.
//!
//! Start with [`DistributeImages`]. Each image and target is a step of its own, so that each has its own result, its own
//! tries, and its own place in the journal. Copies come first, then whoever may use them, then what keeps them: nobody is told of
//! an image before it is everywhere.

mod settings;

use std::collections::BTreeSet;
use std::sync::Arc;

use bake_config::Stage;
use bake_core::{
    Account, BakeHandles, Cloud, CloudKinds, CopyImage, CopyTarget, Finalizer, GuardImage, Image, Images, Needs,
    PlanError, Region, ShareImage, Shared, Tags, Wishes,
};
use bake_engine::{Handle, MutationKind, Slot, Steps};

pub use settings::{DistributeSettings, INFO, Success};

/// Brings all images that the set has made so far to each of its targets.
pub struct DistributeImages {
    copies: MutationKind<CopyImage, Image>,
    regions: BTreeSet<Region>,
    settings: DistributeSettings,
    share: Option<Share>,
    guard: Option<MutationKind<GuardImage, ()>>,
}

/// Who gets what, and how.
struct Share {
    kind: MutationKind<ShareImage, Shared>,
    /// May use the images.
    with: Vec<Account>,
    /// Get images of their own.
    copies_for: BTreeSet<Account>,
}

impl DistributeImages {
    /// Makes the finalizer for a cloud; refused where the cloud cannot do what the settings ask for.
    pub fn new(cloud: &dyn Cloud, settings: DistributeSettings) -> Result<Self, PlanError> {
        let CloudKinds { copy, share, guard, .. } = cloud.kinds().clone();
        let missing = |kind| PlanError::MissingKind { finalizer: INFO.name.into(), cloud: cloud.name().into(), kind };
        let unsupported =
            |reason| PlanError::Unsupported { finalizer: INFO.name.into(), cloud: cloud.name().into(), reason };
        let mut regions = BTreeSet::new();
        for region in &settings.regions {
            let name = Region::new(&region.text);
            cloud.check_region(&name).map_err(|reason| unsupported(format!("{}: {reason}", region.origin)))?;
            regions.insert(name);
        }
        settings.check().map_err(unsupported)?;
        let share = match (settings.accounts.iter().chain(&settings.copy_to).next(), share) {
            (None, _) => None,
            (Some(account), None) => {
                let reason = format!("{}: it has no accounts, and `{}` is one", account.origin, account.text);
                return Err(unsupported(reason));
            }
            (Some(_), Some(kind)) => Some(Share {
                kind,
                with: settings.accounts.iter().map(|account| Account::new(&account.text)).collect(),
                copies_for: settings.copy_to.iter().map(|account| Account::new(&account.text)).collect(),
            }),
        };
        let guard = match settings.deprecate_after.is_some() || settings.protect {
            true => Some(guard.ok_or_else(|| missing("dates and protection of images"))?),
            false => None,
        };
        Ok(Self { copies: copy.ok_or_else(|| missing("copies"))?, regions, settings, share, guard })
    }

    /// Copies to every region, in the bake's own account.
    fn copy(&self, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        let mut copies = Images::new();
        for region in &self.regions {
            let tags = bake.copy_tags(region)?;
            let mut steps = steps.under(region.as_str());
            for (name, &image) in &bake.images {
                let elsewhere = region.clone();
                let step = steps.step(name).needs((image, tags)).slot(Slot::LocalIo).when(
                    &format!("the image is not in `{region}` already"),
                    image,
                    move |image: Image| Ok(image.region != elsewhere),
                );
                let step = if self.settings.success == Success::BestEffort { step.optional() } else { step };
                let request = self.request(region, None);
                copies.insert(
                    format!("{region}/{name}"),
                    step.mutate(&self.copies, move |(image, tags)| request(image, tags)),
                );
            }
        }
        Ok(copies)
    }

    /// Copies to every region of other accounts. They are let at the images first, which they copy themselves.
    fn copy_for_others(&self, share: &Share, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        let mut copies = Images::new();
        for (name, &image) in bake.images.iter().filter(|_| !share.copies_for.is_empty()) {
            let with: Vec<Account> = share.copies_for.iter().cloned().collect();
            let mut lend = steps.under("lend");
            let lent = lend.step(name).needs(image).mutate(&share.kind, move |image| share_request(image, &with));
            for (account, region) in
                share.copies_for.iter().flat_map(|one| self.regions.iter().map(move |two| (one, two)))
            {
                let tags = bake.copy_tags(region)?;
                let mut steps = steps.under(account.as_str());
                let mut steps = steps.under(region.as_str());
                let step = steps.step(name).needs((image, tags, lent)).slot(Slot::LocalIo);
                let step = if self.settings.success == Success::BestEffort { step.optional() } else { step };
                let request = self.request(region, Some(account));
                let copy = step.mutate(&self.copies, move |(image, tags, _)| request(image, tags));
                copies.insert(format!("{account}/{region}/{name}"), copy);
            }
        }
        Ok(copies)
    }

    /// How a copy is asked for.
    fn request(
        &self,
        region: &Region,
        account: Option<&Account>,
    ) -> impl Fn(Image, Tags) -> CopyImage + Send + Sync + use<> {
        let (region, account, encryption) = (region.clone(), account.cloned(), self.settings.encryption_in(region));
        move |image, tags| CopyImage {
            image: image.id,
            from: image.region,
            region: region.clone(),
            name: image.name,
            tags,
            account: account.clone(),
            encryption: encryption.clone(),
        }
    }

    /// Lets accounts use images, once all of these are where they belong.
    fn publish(&self, own: &[(String, Handle<Image>)], all: &[(String, Handle<Image>)], steps: &mut Steps<'_>) {
        if let Some(share) = self.share.as_ref().filter(|share| !share.with.is_empty()) {
            let mark = steps.len();
            let mut under = steps.under("share");
            for (name, image) in own {
                let with = share.with.clone();
                under.step(name).needs(*image).mutate(&share.kind, move |image| share_request(image, &with));
            }
            steps.wait_for_all_since(mark, "shared");
        }
        if let Some(guard) = &self.guard {
            let (deprecate_after, protect) =
                (self.settings.deprecate_after.map(|time| time.as_secs()), self.settings.protect);
            let mut under = steps.under("guard");
            for (name, image) in all {
                under.step(name).needs(*image).mutate(guard, move |image| GuardImage {
                    image: image.id,
                    region: image.region,
                    account: image.account,
                    deprecate_after,
                    protect,
                });
            }
        }
    }
}

fn share_request(image: Image, with: &[Account]) -> ShareImage {
    ShareImage { image: image.id, region: image.region, with: with.to_vec() }
}

impl Finalizer for DistributeImages {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn stage(&self) -> Stage {
        Stage::Distribute
    }

    fn needs(&self) -> Needs {
        Needs { snapshot: false }
    }

    fn wishes(&self) -> Wishes {
        let others = self.share.iter().flat_map(|share| share.copies_for.iter().cloned().map(Some));
        let accounts: Vec<_> = std::iter::once(None).chain(others).collect();
        let in_region = |region: &Region| {
            let (region, encryption) = (region.clone(), self.settings.encryption_in(region));
            let target = move |account: &Option<Account>| {
                let (region, encryption) = (region.clone(), encryption.clone());
                CopyTarget { region, account: account.clone(), encryption }
            };
            accounts.iter().map(target).collect::<Vec<_>>()
        };
        Wishes {
            copies: self.regions.iter().flat_map(in_region).collect(),
            shared_with: self.share.iter().flat_map(|share| share.with.iter().cloned()).collect(),
            ..Wishes::default()
        }
    }

    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        let mark = steps.len();
        let copies = self.copy(bake, steps)?;
        let theirs = match &self.share {
            Some(share) => self.copy_for_others(share, bake, steps)?,
            None => Images::new(),
        };
        if self.share.is_some() || self.guard.is_some() {
            steps.wait_for_all_since(mark, "copied");
        }
        let listed = |images: &Images| images.iter().map(|(name, image)| (name.clone(), *image)).collect::<Vec<_>>();
        let own = [listed(&bake.images), listed(&copies)].concat();
        let all = [own.clone(), listed(&theirs)].concat();
        self.publish(&own, &all, steps);
        Ok(copies.into_iter().chain(theirs).collect())
    }
}
