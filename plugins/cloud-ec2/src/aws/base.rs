//! Finding the base image: by id, by name, or by a parameter that names it.

use aws_sdk_ec2::types::{ArchitectureValues, DeviceType, Filter, Image, ImageState};
use bake_core::{Architecture, BaseId, BaseImage, BaseQuery, Machine, SnapshotId, Tags};
use bake_engine::{StepError, StepResult};

use crate::aws::calls::{CallError, GIB, all_pages};
use crate::aws::connection::Place;
use crate::settings::Ec2Settings;

/// What begins the name of a parameter that holds an AMI id.
const PARAMETER: &str = "ssm:";

/// How many candidates an error lists.
const LISTED: usize = 10;

/// Finds the base image that is meant, and refuses one that cannot be baked from.
pub(crate) async fn resolve(place: &Place, query: &BaseQuery, settings: &Ec2Settings) -> StepResult<BaseImage> {
    let Some(wanted) = query.wanted.as_deref().or(settings.base.as_deref()) else {
        return Err(nothing_wanted(place).await?);
    };
    let found = match wanted.strip_prefix(PARAMETER) {
        Some(parameter) => by_id(place, &parameter_value(place, parameter).await?).await?,
        None if wanted.starts_with("ami-") => by_id(place, wanted).await?,
        None => by_name(place, wanted, settings).await?,
    };
    base_image(place, found)
}

/// Reads the id that a parameter of the parameter store holds, such as those that distributions publish.
async fn parameter_value(place: &Place, name: &str) -> StepResult<String> {
    let asked = place.calls().read("GetParameter", || place.ssm().get_parameter().name(name).send()).await;
    let answer =
        asked.map_err(|error| StepError::from(error).context(format!("cannot read the parameter `{name}`")))?;
    let value = answer.parameter.and_then(|parameter| parameter.value);
    let value = value.ok_or_else(|| CallError::missing("GetParameter", "a value"))?;
    match value.starts_with("ami-") {
        true => Ok(value),
        false => Err(StepError::permanent(format!("the parameter `{name}` holds `{value}`, which is no AMI id"))),
    }
}

async fn by_id(place: &Place, id: &str) -> StepResult<Image> {
    let call = || place.ec2().describe_images().image_ids(id).include_deprecated(true).send();
    let images = match place.calls().read("DescribeImages", call).await {
        Ok(answer) => answer.images.unwrap_or_default(),
        Err(error) if error.is_absent() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    images.into_iter().next().ok_or_else(|| absent(place, id).hint("look for it with `aws ec2 describe-images`"))
}

fn absent(place: &Place, wanted: &str) -> StepError {
    StepError::permanent(format!(
        "there is no base image `{wanted}` in region `{}` that account {} may use",
        place.region(),
        place.account()
    ))
}

/// Looks among the AMIs of the configured owners only: a name alone could be anybody's.
async fn by_name(place: &Place, name: &str, settings: &Ec2Settings) -> StepResult<Image> {
    let mut found = available(place, Some(name), &settings.owners).await?;
    let owners = settings.owners.join("`, `");
    match found.len() {
        0 => Err(absent(place, name)
            .hint(format!("the owners `{owners}` have none; `plugins.cloud.ec2.owners` says whose count"))),
        1 => Ok(found.remove(0)),
        _ if settings.newest => Ok(found.remove(0)),
        count => Err(StepError::permanent(format!("`{name}` may be one of {count} AMIs"))
            .details(lines(&found))
            .hint("give the id of one, or take the newest with `plugins.cloud.ec2.newest: true`")),
    }
}

/// The error of a bake that names no base image. It lists some, and never takes one by a guess.
async fn nothing_wanted(place: &Place) -> StepResult<StepError> {
    let own = available(place, None, &["self".to_owned()]).await?;
    Ok(StepError::permanent("nobody said which base image to bake from")
        .details(lines(&own))
        .hint("choose one with `--base`, or with `plugins.cloud.ec2.base`"))
}

/// Lists what can be baked from, the newest first.
async fn available(place: &Place, name: Option<&str>, owners: &[String]) -> Result<Vec<Image>, CallError> {
    let filter = |name: &str, value: &str| Filter::builder().name(name).values(value).build();
    let mut filters = vec![filter("state", "available"), filter("root-device-type", "ebs")];
    filters.extend(name.map(|name| filter("name", name)));
    let filters = &filters;
    let page = |page: Option<String>| async move {
        let call = || {
            let request = place.ec2().describe_images().set_owners(Some(owners.to_vec()));
            request.set_filters(Some(filters.clone())).max_results(1000).set_next_token(page.clone()).send()
        };
        let answer = place.calls().read("DescribeImages", call).await?;
        Ok((answer.images.unwrap_or_default(), answer.next_token))
    };
    let mut found = all_pages(page).await?;
    found.sort_by(|one, other| other.creation_date.cmp(&one.creation_date));
    Ok(found)
}

fn lines(images: &[Image]) -> Vec<String> {
    let line = |image: &Image| {
        let [id, owner, date, name] = [&image.image_id, &image.owner_id, &image.creation_date, &image.name];
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        format!("{}  {}  {}  {}", text(id), text(owner), text(date), text(name))
    };
    let mut lines: Vec<_> = images.iter().take(LISTED).map(line).collect();
    if images.len() > LISTED {
        lines.push(format!("and {} more", images.len() - LISTED));
    }
    lines
}

/// Reads what matters of an AMI.
fn base_image(place: &Place, image: Image) -> StepResult<BaseImage> {
    let id = image.image_id.clone().ok_or_else(|| CallError::missing("DescribeImages", "the id"))?;
    let refuse = |why: String| StepError::permanent(format!("`{id}` cannot be baked from: {why}"));
    match &image.state {
        Some(ImageState::Available) => {}
        state => {
            let reason = image.state_reason.as_ref().and_then(|reason| reason.message.clone()).unwrap_or_default();
            let state = state.as_ref().map_or("unknown", ImageState::as_str);
            return Err(refuse(format!("it is `{state}`. {reason}").trim_end().to_owned()));
        }
    }
    if image.root_device_type != Some(DeviceType::Ebs) {
        return Err(refuse("its root disk is in no EBS snapshot".into()));
    }
    let device = image.root_device_name.clone().ok_or_else(|| refuse("it names no root device".into()))?;
    let mappings = image.block_device_mappings.as_deref().unwrap_or_default();
    let root = mappings.iter().find(|mapping| mapping.device_name.as_deref() == Some(&device));
    let root = root.and_then(|mapping| mapping.ebs.as_ref());
    let root = root.ok_or_else(|| refuse(format!("its root device `{device}` is not among its disks")))?;
    let snapshot = root.snapshot_id.clone().ok_or_else(|| refuse("its root disk has no snapshot".into()))?;
    let architecture = match &image.architecture {
        Some(ArchitectureValues::X8664) => "x86_64",
        Some(ArchitectureValues::Arm64) => "aarch64",
        Some(ArchitectureValues::I386) => "i386",
        other => return Err(refuse(format!("its architecture is {other:?}"))),
    };
    let size = root.volume_size.and_then(|gib| u64::try_from(gib).ok());
    Ok(BaseImage {
        name: image.name.clone().unwrap_or_else(|| id.clone()),
        region: place.region().clone(),
        architecture: Architecture::new(architecture),
        size: size.ok_or_else(|| CallError::missing("DescribeImages", "the size of the root disk"))? * GIB,
        tags: tags(image.tags.as_deref()),
        snapshot: Some(SnapshotId::new(snapshot)),
        machine: machine(&image, device),
        borrowed: image.owner_id.as_deref() != Some(place.account().as_str()),
        id: BaseId::new(id),
    })
}

/// What the machines are like that an AMI boots on.
pub(crate) fn machine(image: &Image, root_device: String) -> Machine {
    Machine {
        root_device: Some(root_device),
        boot_mode: image.boot_mode.as_ref().map(|mode| mode.as_str().to_owned()),
        ena: image.ena_support,
        sriov: image.sriov_net_support.clone(),
        tpm: image.tpm_support.as_ref().map(|tpm| tpm.as_str().to_owned()),
        imds: image.imds_support.as_ref().map(|imds| imds.as_str().to_owned()),
    }
}

/// The tags of a resource, as the API gives them.
pub(crate) fn tags(tags: Option<&[aws_sdk_ec2::types::Tag]>) -> Tags {
    let pair = |tag: &aws_sdk_ec2::types::Tag| Some((tag.key.clone()?, tag.value.clone().unwrap_or_default()));
    tags.unwrap_or_default().iter().filter_map(pair).collect()
}
