//! The small services, and how requests of each are understood.

use std::collections::BTreeMap;

use hyper::http::request;

use crate::answer::{Answer, Answered, Protocol, Refusal, Xml};
use crate::ebs;
use crate::fault::FaultKind;
use crate::params::Params;
use crate::server::Call;
use crate::signature::Scope;
use crate::world::World;

/// Finds out what is asked for: how the service writes, the operation and its parameters.
pub(crate) fn understand(service: &str, parts: &request::Parts, body: &[u8]) -> (Protocol, String, Params) {
    match service {
        "ebs" => {
            let (operation, params) = ebs::understand(parts);
            (Protocol::Rest, operation, params)
        }
        Scope::METADATA => {
            let path = parts.uri.path().trim_start_matches("/latest/").trim_end_matches('/');
            (Protocol::Rest, path.to_owned(), Params::default())
        }
        "ssm" | "kms" => {
            let target = parts.headers.get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
            (Protocol::Json, target.rsplit('.').next().unwrap_or_default().to_owned(), Params::default())
        }
        _ => {
            let mut params = Params::of_form(body);
            let operation = params.take("Action").unwrap_or_default();
            let _version = params.take("Version");
            (if service == "ec2" { Protocol::Ec2 } else { Protocol::Query }, operation, params)
        }
    }
}

/// The refusal of an access key that nobody has.
pub(crate) fn unknown_key(service: &str) -> Refusal {
    match service {
        "ec2" => Refusal::new("AuthFailure", "AWS was not able to validate the provided access credentials"),
        "sts" => {
            Refusal::new("InvalidClientTokenId", "The security token included in the request is invalid").status(403)
        }
        _ => Refusal::new("UnrecognizedClientException", "The security token included in the request is invalid."),
    }
}

/// The refusal that a fault is, in the words of the service; `None` if the fault is no refusal.
pub(crate) fn refusal(protocol: Protocol, operation: &str, kind: &FaultKind) -> Option<Refusal> {
    let ec2 = protocol == Protocol::Ec2;
    Some(match kind {
        FaultKind::Throttle if ec2 => Refusal::new("RequestLimitExceeded", "Request limit exceeded."),
        FaultKind::Throttle if protocol == Protocol::Rest => {
            Refusal::new("RequestThrottledException", "Request throttled").reason("ACCOUNT_THROTTLED")
        }
        FaultKind::Throttle => Refusal::new("Throttling", "Rate exceeded"),
        FaultKind::Internal if ec2 => Refusal::new("InternalError", "An internal error has occurred").status(500),
        FaultKind::Internal => Refusal::new("InternalServerException", "An internal error has occurred").status(500),
        FaultKind::NotFound if protocol == Protocol::Rest => {
            Refusal::new("ResourceNotFoundException", "The snapshot does not exist.")
                .status(404)
                .reason("SNAPSHOT_NOT_FOUND")
        }
        FaultKind::NotFound if operation.contains("Snapshot") => {
            Refusal::new("InvalidSnapshot.NotFound", "The snapshot does not exist.")
        }
        FaultKind::NotFound if operation.contains("Volume") => {
            Refusal::new("InvalidVolume.NotFound", "The volume does not exist.")
        }
        FaultKind::NotFound => Refusal::new("InvalidAMIID.NotFound", "The image id does not exist"),
        FaultKind::Denied if ec2 => {
            Refusal::new("UnauthorizedOperation", "You are not authorized to perform this operation.")
        }
        FaultKind::Denied => {
            Refusal::new("AccessDeniedException", "You are not authorized to perform this operation.").status(403)
        }
        FaultKind::Expired if ec2 => Refusal::new("RequestExpired", "Request has expired."),
        FaultKind::Expired => {
            Refusal::new("ExpiredTokenException", "The security token included in the request is expired").status(403)
        }
        FaultKind::Delay(_) | FaultKind::DropBefore | FaultKind::DropAfter | FaultKind::Fails(_) => return None,
    })
}

/// Who somebody is, and who they may become.
pub(crate) fn sts(world: &mut World, call: Call) -> Answered {
    let mut params = call.params;
    match call.operation.as_str() {
        "GetCallerIdentity" => {
            params.done()?;
            let arn = format!("arn:aws:iam::{}:user/baker", call.account);
            Ok(Answer::Xml(Xml::new().text("Arn", arn).text("UserId", "AIDAEXAMPLE").text("Account", &call.account)))
        }
        "AssumeRole" => {
            let (arn, session) = (params.need("RoleArn")?, params.need("RoleSessionName")?);
            let _for_how_long = params.take("DurationSeconds");
            params.done()?;
            let denied = || {
                let message = format!("User is not authorized to perform: sts:AssumeRole on resource: {arn}");
                Refusal::new("AccessDenied", message).status(403)
            };
            let account = world.roles.get(&arn).cloned().ok_or_else(denied)?;
            let key = world.id("ASIA").to_uppercase().replace('-', "");
            world.keys.insert(key.clone(), account);
            let end = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
            let credentials = Xml::new()
                .text("AccessKeyId", key)
                .text("SecretAccessKey", "secret")
                .text("SessionToken", "token")
                .text("Expiration", end.strftime("%Y-%m-%dT%H:%M:%SZ"));
            let user = Xml::new().text("AssumedRoleId", format!("AROAEXAMPLE:{session}")).text("Arn", &arn);
            Ok(Answer::Xml(Xml::new().element("Credentials", credentials).element("AssumedRoleUser", user)))
        }
        other => Err(Refusal::new("InvalidAction", format!("The action {other} is not valid for this web service."))),
    }
}

/// Public parameters.
pub(crate) fn ssm(world: &World, call: &Call) -> Answered {
    if call.operation != "GetParameter" {
        return Err(Refusal::new("UnknownOperationException", ""));
    }
    let body: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&call.body).unwrap_or_default();
    let name = body.get("Name").and_then(|name| name.as_str()).unwrap_or_default();
    let value = world.parameters.get(&(call.region.clone(), name.to_owned()));
    let value = value.ok_or_else(|| Refusal::new("ParameterNotFound", ""))?;
    let parameter = serde_json::json!({ "Name": name, "Type": "String", "Value": value, "Version": 1 });
    Ok(Answer::Json(200, serde_json::json!({ "Parameter": parameter })))
}
