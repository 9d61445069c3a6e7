//! The instance metadata service, version 2: what an instance may know of itself, for those who fetched a token.

use hyper::Method;

use crate::answer::{Answer, Answered, Refusal};
use crate::machine::Machine;
use crate::server::Call;
use crate::world::World;

/// The only token that there is.
const TOKEN: &str = "AQAAAAexampletoken";

/// The header of how long a token is good.
const LIFE: &str = "x-aws-ec2-metadata-token-ttl-seconds";

/// The longest that a token may be good, in seconds.
const LONGEST_LIFE: u32 = 21_600;

/// The role of every instance.
const ROLE: &str = "baker";

/// Tells whether a request is for this service: it is not signed.
pub(crate) fn is_for_us(path: &str) -> bool {
    path.starts_with("/latest/")
}

/// Answers a request.
pub(crate) fn answer(world: &mut World, call: &Call) -> Answered {
    let not_found = || Refusal::new("NotFound", "").status(404);
    let machine = world.machines.first().cloned().ok_or_else(not_found)?;
    let header = |name: &str| call.headers.get(name).and_then(|value| value.to_str().ok());
    if call.method == Method::PUT && call.path == "/latest/api/token" {
        let legal = |life: &&str| life.parse::<u32>().is_ok_and(|seconds| (1..=LONGEST_LIFE).contains(&seconds));
        let life = header(LIFE).filter(legal).ok_or_else(|| Refusal::new("BadRequest", ""))?;
        return Ok(Answer::Bytes(vec![(LIFE, life.to_owned())], TOKEN.into()));
    }
    if header("x-aws-ec2-metadata-token") != Some(TOKEN) {
        return Err(Refusal::new("Unauthorized", "").status(401));
    }
    let text = match call.path.strip_prefix("/latest/").unwrap_or_default().trim_end_matches('/') {
        "meta-data/instance-id" => machine.id,
        "meta-data/placement/region" => machine.region,
        "meta-data/placement/availability-zone" => machine.zone,
        "meta-data/iam/security-credentials" => ROLE.into(),
        "meta-data/iam/security-credentials/baker" => credentials(world, &machine),
        "dynamic/instance-identity/document" => serde_json::json!({
            "accountId": machine.account, "region": machine.region, "availabilityZone": machine.zone,
            "instanceId": machine.id, "architecture": "x86_64",
        })
        .to_string(),
        _ => return Err(not_found()),
    };
    Ok(Answer::Bytes(Vec::new(), text.into()))
}

fn credentials(world: &mut World, machine: &Machine) -> String {
    let key = format!("ASIA{}", machine.id.to_uppercase().replace('-', ""));
    world.keys.insert(key.clone(), machine.account.clone());
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(6);
    serde_json::json!({
        "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "AccessKeyId": key, "SecretAccessKey": "secret", "Token": "token",
        "Expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    })
    .to_string()
}
