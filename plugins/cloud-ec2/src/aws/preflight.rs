//! What can be known of a bake's end before it begins: regions, accounts, permissions, and what cannot be shared.
//!
//! Permissions are tried by dry runs (`DryRun=true`), which change nothing: a service says that the call would have gone well, or
//! that it is not allowed. What else it may say depends on things that are not made yet, and is no finding.

use std::collections::BTreeSet;

use api_manners::ErrorClass;
use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::types::VolumeType;
use bake_core::{Account, Ahead, CopyTarget, Encryption, Medium, Region};
use bake_engine::{Class, StepError, StepResult};
use futures_util::future::try_join_all;

use crate::aws::calls::CallError;
use crate::aws::connection::Place;
use crate::aws::context::Ec2;

/// A name for dry runs, which nobody gets.
const NAME: &str = "bake dry run";

/// Looks for everything that will keep a bake from ending well.
pub(crate) async fn look(ec2: &Ec2, ahead: &Ahead) -> StepResult<Vec<String>> {
    let home = ec2.place(&ahead.base.region).await?;
    let (regions, mut findings) = regions(&home, ahead).await?;
    let copies = ahead.wishes.copies.iter().filter(|copy| regions.contains(&copy.region)).collect::<BTreeSet<_>>();
    let copies = copies.into_iter().filter(|copy| copy.account.is_some() || copy.region != *home.region());
    let copies = try_join_all(copies.map(|copy| check_copy(ec2, &home, ahead, copy)));
    let shared = sharing(ec2, &home, ahead, &regions);
    let (own, copies, shared) = tokio::try_join!(check_home(ec2, &home, ahead), copies, shared)?;
    findings.extend(own.into_iter().chain(copies.into_iter().flatten()).chain(shared));
    Ok(findings)
}

/// The regions that images will be in and that the account can use, with a finding for each that it cannot.
async fn regions(home: &Place, ahead: &Ahead) -> StepResult<(BTreeSet<Region>, Vec<String>)> {
    let wanted: BTreeSet<_> = ahead.wishes.copies.iter().map(|copy| copy.region.clone()).collect();
    if wanted.is_empty() {
        return Ok((wanted, Vec::new()));
    }
    let answer = home.calls().read("DescribeRegions", || home.ec2().describe_regions().send()).await?;
    let there: BTreeSet<_> = answer.regions.into_iter().flatten().filter_map(|one| one.region_name).collect();
    let (usable, others): (BTreeSet<_>, BTreeSet<_>) =
        wanted.into_iter().partition(|region| there.contains(region.as_str()));
    let finding = |region: &Region| {
        format!("`{region}` is no region that account {} can use: it is misspelt, or has to be enabled", home.account())
    };
    let findings = others.iter().map(finding).collect();
    Ok((usable, findings))
}

/// What the bake will do in its own region.
async fn check_home(ec2: &Ec2, home: &Place, ahead: &Ahead) -> StepResult<Vec<String>> {
    let mut findings = Vec::new();
    if ahead.medium == Medium::Attached {
        let instance = ec2.instance().await?;
        match instance.check_region(home.region()) {
            Err(error) => findings.push(error.to_string()),
            Ok(()) => {
                let kind = VolumeType::from(ec2.settings().volume_type.as_str());
                let call = || {
                    let call = home.ec2().create_volume().dry_run(true).availability_zone(&instance.zone);
                    let snapshot = ahead.base.snapshot.as_ref().map(ToString::to_string);
                    call.volume_type(kind.clone()).set_snapshot_id(snapshot).send()
                };
                findings.extend(allowed(home, "CreateVolume", call).await?);
            }
        }
    }
    if ahead.base.borrowed && ahead.medium == Medium::File {
        let call = || {
            let call = home.ec2().copy_image().dry_run(true).name(NAME).source_region(home.region().as_str());
            call.source_image_id(ahead.base.id.as_str()).send()
        };
        findings.extend(allowed(home, "CopyImage", call).await?);
    }
    let call = || home.ec2().register_image().dry_run(true).name(NAME).root_device_name("/dev/xvda").send();
    findings.extend(allowed(home, "RegisterImage", call).await?);
    Ok(findings)
}

/// What the bake will do where a copy goes.
async fn check_copy(ec2: &Ec2, home: &Place, ahead: &Ahead, copy: &CopyTarget) -> StepResult<Vec<String>> {
    let place = match ec2.place_for(&copy.region, copy.account.as_ref()).await {
        Ok(place) => place,
        Err(error) if passes(&error) => return Err(error),
        Err(error) => {
            let account = copy.account.as_ref().unwrap_or(home.account());
            return Ok(vec![format!("account {account} cannot be reached: {}", error.chain().join(": "))]);
        }
    };
    let key = match &copy.encryption {
        Encryption::Key(key) => Some(key.clone()),
        Encryption::Inherit | Encryption::DefaultKey | Encryption::Plain => None,
    };
    let call = || {
        let call = place.ec2().copy_image().dry_run(true).name(NAME).source_region(home.region().as_str());
        let encrypted = matches!(copy.encryption, Encryption::Key(_) | Encryption::DefaultKey).then_some(true);
        call.source_image_id(ahead.base.id.as_str()).set_encrypted(encrypted).set_kms_key_id(key.clone()).send()
    };
    allowed(&place, "CopyImage", call).await
}

/// What is encrypted with the key that AWS keeps for an account cannot be used by another.
async fn sharing(ec2: &Ec2, home: &Place, ahead: &Ahead, regions: &BTreeSet<Region>) -> StepResult<Vec<String>> {
    let others: BTreeSet<&Account> = ahead
        .wishes
        .shared_with
        .iter()
        .chain(ahead.wishes.copies.iter().filter_map(|copy| copy.account.as_ref()))
        .collect();
    let Some(other) = others.into_iter().next() else { return Ok(Vec::new()) };
    let of_key = |copy: &&CopyTarget| matches!(copy.encryption, Encryption::Key(_)) && copy.account.is_none();
    let with_key: BTreeSet<_> = ahead.wishes.copies.iter().filter(of_key).map(|copy| copy.region.clone()).collect();
    let all =
        regions.iter().chain([home.region()]).filter(|region| !with_key.contains(*region)).collect::<BTreeSet<_>>();
    let found = try_join_all(all.into_iter().map(|region| async move {
        let place = ec2.place(region).await?;
        let call = || place.ec2().get_ebs_encryption_by_default().send();
        let answer = match place.calls().read("GetEbsEncryptionByDefault", call).await {
            Ok(answer) => answer,
            // Whoever may not ask is told by the call itself, if it matters.
            Err(error) if error.kind() == ErrorClass::Denied => return Ok(None),
            Err(error) => return Err(StepError::from(error)),
        };
        let encrypts = answer.ebs_encryption_by_default == Some(true);
        Ok(encrypts.then(|| {
            format!(
                "region `{region}` encrypts by default, so that account {other} could not use the images there: name a key of \
                 your own in `encryption`"
            )
        }))
    }));
    Ok(found.await?.into_iter().flatten().collect())
}

/// Tries a call dry. A finding is that it is not allowed.
async fn allowed<T, E, F>(place: &Place, operation: &'static str, call: impl FnMut() -> F) -> StepResult<Vec<String>>
where
    F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    match place.calls().read(operation, call).await {
        Err(error) if error.kind() == ErrorClass::Denied => {
            let (region, account) = (place.region(), place.account());
            Ok(vec![format!("account {account} may not call {operation} in region `{region}`: {}", reason(&error))])
        }
        Err(error) if matches!(error.kind(), ErrorClass::Refused | ErrorClass::NotYetVisible) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(Vec::new()),
    }
}

fn reason(error: &CallError) -> &str {
    error.code().unwrap_or("no reason was given")
}

/// Tells whether the same may go well a moment later.
fn passes(error: &StepError) -> bool {
    matches!(error.class(), Class::Throttled | Class::Transient | Class::Unknown | Class::Cancelled)
}
