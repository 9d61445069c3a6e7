//! The EBS direct API: snapshots as blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bytes::Bytes;
use hyper::Method;
use hyper::http::request;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::answer::{Answer, Answered, Refusal};
use crate::blocks::{BLOCK, Blocks};
use crate::params::Params;
use crate::server::{Call, Shared};
use crate::world::{Snapshot, Stage, Tags, World};

/// Seconds for which a block's token is good.
const TOKEN_LIFE: f64 = 585_000.0;

/// Finds out the operation from method and path, and the parameters from path and query.
pub(crate) fn understand(parts: &request::Parts) -> (String, Params) {
    let path: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
    let query = parts.uri.query().unwrap_or_default();
    let (operation, from_path): (&str, &[(&str, &str)]) = match (&parts.method, &path[..]) {
        (&Method::POST, ["snapshots"]) => ("StartSnapshot", &[]),
        (&Method::PUT, ["snapshots", id, "blocks", index]) => {
            ("PutSnapshotBlock", &[("snapshot", id), ("index", index)])
        }
        (&Method::POST, ["snapshots", "completion", id]) => ("CompleteSnapshot", &[("snapshot", id)]),
        (&Method::GET, ["snapshots", id, "blocks"]) => ("ListSnapshotBlocks", &[("snapshot", id)]),
        (&Method::GET, ["snapshots", id, "changedblocks"]) => ("ListChangedBlocks", &[("snapshot", id)]),
        (&Method::GET, ["snapshots", id, "blocks", index]) => {
            ("GetSnapshotBlock", &[("snapshot", id), ("index", index)])
        }
        _ => ("", &[]),
    };
    let mut form = form_urlencoded::Serializer::new(query.to_owned());
    form.extend_pairs(from_path);
    (operation.to_owned(), Params::of_form(form.finish().as_bytes()))
}

/// Answers a request.
pub(crate) async fn answer(shared: &Arc<Shared>, call: Call) -> Answered {
    match call.operation.as_str() {
        "StartSnapshot" => start(&mut shared.world(), &call),
        "PutSnapshotBlock" => put(shared, call).await,
        "CompleteSnapshot" => complete(&mut shared.world(), call),
        "ListSnapshotBlocks" => list(&mut shared.world(), call),
        "ListChangedBlocks" => list_changed(&mut shared.world(), call),
        "GetSnapshotBlock" => get(&mut shared.world(), call),
        _ => Err(Refusal::new("UnknownOperationException", format!("{} {}", call.method, call.path)).status(404)),
    }
}

fn invalid(reason: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::new("ValidationException", message).reason(reason)
}

fn not_there() -> Refusal {
    Refusal::new("ResourceNotFoundException", "The snapshot does not exist.").status(404).reason("SNAPSHOT_NOT_FOUND")
}

/// What a snapshot is begun with.
struct Start {
    size: u32,
    parent: Option<String>,
    tags: Tags,
    description: Option<String>,
    token: Option<String>,
    encrypted: Option<bool>,
    key: Option<String>,
    timeout: u64,
}

impl Start {
    fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let wrong = |message: String| Refusal::new("ValidationException", message);
        let value: Value = serde_json::from_slice(body).map_err(|error| wrong(error.to_string()))?;
        let mut fields = value.as_object().cloned().ok_or_else(|| wrong("The body is no object".into()))?;
        let mut text = |name: &str| match fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(format!("{name} is {other}"))),
        };
        let (parent, description, token, key) =
            (text("ParentSnapshotId")?, text("Description")?, text("ClientToken")?, text("KmsKeyArn")?);
        let mut number = |name: &str| match fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(other) => other.as_u64().map(Some).ok_or_else(|| wrong(format!("{name} is {other}"))),
        };
        let (size, timeout) = (number("VolumeSize")?, number("Timeout")?.unwrap_or(60));
        let encrypted = fields.remove("Encrypted").and_then(|value| value.as_bool());
        let mut tags = Tags::new();
        for tag in fields.remove("Tags").and_then(|tags| tags.as_array().cloned()).unwrap_or_default() {
            let text = |name: &str| tag.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            tags.insert(text("Key"), text("Value"));
        }
        if let Some(name) = fields.keys().next() {
            return Err(wrong(format!("The field {name} is not known")));
        }
        let size = size.and_then(|size| u32::try_from(size).ok()).filter(|size| (1..=65_536).contains(size));
        let size = size.ok_or_else(|| invalid("INVALID_VOLUME_SIZE", "VolumeSize has to be between 1 and 65536"))?;
        let characters = |text: &Option<String>| text.as_ref().map_or(1, |text| text.chars().count());
        if !(1..=255).contains(&characters(&description)) || !(1..=255).contains(&characters(&token)) {
            return Err(wrong("A text is too long or empty".into()));
        }
        if !(10..=4320).contains(&timeout) {
            return Err(wrong(format!("Timeout is {timeout}, and has to be between 10 and 4320")));
        }
        let short =
            |(key, value): (&String, &String)| (1..=127).contains(&key.chars().count()) && value.chars().count() <= 255;
        if tags.len() > 50 || !tags.iter().all(short) || tags.keys().any(|key| key.to_lowercase().starts_with("aws:")) {
            return Err(invalid("INVALID_TAG", "A tag is too long or its key is reserved, or there are too many"));
        }
        if parent.is_some() && (encrypted.is_some() || key.is_some()) {
            return Err(wrong("Encryption is the parent's".into()));
        }
        if key.is_some() && encrypted != Some(true) {
            return Err(invalid("INVALID_CUSTOMER_KEY", "A key needs Encrypted"));
        }
        Ok(Self { size, parent, tags, description, token, encrypted, key, timeout })
    }
}

fn start(world: &mut World, call: &Call) -> Answered {
    let start = Start::parse(&call.body)?;
    let canonical = String::from_utf8_lossy(&call.body).into_owned();
    let known = world.space(&call.region)?.snapshots.values();
    let mut known = known.filter(|snapshot| snapshot.owner == call.account);
    let same = |snapshot: &&Snapshot| snapshot.token.as_ref().map(|(token, _)| token) == start.token.as_ref();
    if let Some(before) = known.find(|snapshot| start.token.is_some() && same(snapshot)) {
        return match before.token.as_ref().is_some_and(|(_, parameters)| *parameters == canonical) {
            true => Ok(started(before, start.parent.as_deref())),
            false => Err(Refusal::new("ConflictException", "The token was used with another request").status(409)),
        };
    }
    let parent = match &start.parent {
        None => None,
        Some(id) => {
            let now = Instant::now();
            let parent = world.space(&call.region)?.snapshots.get(id).filter(|parent| parent.owner == call.account);
            let parent = parent.ok_or_else(not_there)?;
            match parent.state().0 {
                "completed" if parent.visible <= now => {}
                "pending" => return Err(invalid("INVALID_SNAPSHOT_ID", "The parent snapshot is not complete")),
                _ => return Err(not_there()),
            }
            if start.size < parent.size {
                return Err(invalid("INVALID_VOLUME_SIZE", "The volume is smaller than the parent's"));
            }
            Some(parent.clone())
        }
    };
    let blocks = Blocks::new(parent.as_ref().map(|parent| Arc::clone(&parent.blocks)));
    let blocks = blocks.map_err(|error| Refusal::new("InternalServerException", error.to_string()).status(500))?;
    let (delays, encrypting) = (world.delays, world.encrypting.contains(&call.region));
    let like_parent = || encrypting || parent.as_ref().is_some_and(|parent| parent.encrypted);
    let id = world.id("snap");
    let snapshot = Snapshot {
        description: start.description,
        tags: start.tags,
        encrypted: start.encrypted.unwrap_or_else(like_parent),
        key: start.key.or_else(|| parent.as_ref().and_then(|parent| parent.key.clone())),
        token: start.token.map(|token| (token, canonical)),
        doomed: call.doom.clone(),
        ..Snapshot::new(id, &call.account, start.size, blocks, &delays)
    };
    let _no_test_waits_that_long = start.timeout;
    let answer = started(&snapshot, start.parent.as_deref());
    world.space(&call.region)?.snapshots.insert(snapshot.id.clone(), snapshot);
    Ok(answer)
}

fn started(snapshot: &Snapshot, parent: Option<&str>) -> Answer {
    let tags: Vec<Value> = snapshot.tags.iter().map(|(key, value)| json!({ "Key": key, "Value": value })).collect();
    let value = json!({
        "SnapshotId": snapshot.id, "OwnerId": snapshot.owner, "Status": "pending", "BlockSize": BLOCK,
        "StartTime": snapshot.created.as_second() as f64, "VolumeSize": snapshot.size, "ParentSnapshotId": parent,
        "Description": snapshot.description, "Tags": tags, "KmsKeyArn": snapshot.key,
    });
    Answer::Json(201, value)
}

/// Takes the snapshot that a path names, and its index, and whatever else there is.
fn named(params: &mut Params) -> Result<(String, u32), Refusal> {
    let id = params.need("snapshot")?;
    let index = params.take("index").unwrap_or_else(|| "0".into());
    let index = index.parse().map_err(|_| invalid("INVALID_BLOCK", format!("`{index}` is no index")))?;
    Ok((id, index))
}

fn header(call: &Call, name: &str) -> Option<String> {
    call.headers.get(name)?.to_str().ok().map(str::to_owned)
}

async fn put(shared: &Arc<Shared>, mut call: Call) -> Answered {
    let (id, index) = named(&mut call.params)?;
    std::mem::take(&mut call.params).done()?;
    let claimed =
        header(&call, "x-amz-checksum").ok_or_else(|| invalid("INVALID_PARAMETER_VALUE", "The checksum is missing"))?;
    if header(&call, "x-amz-checksum-algorithm").as_deref() != Some("SHA256") {
        return Err(invalid("INVALID_PARAMETER_VALUE", "The checksum algorithm is not SHA256"));
    }
    if header(&call, "x-amz-data-length").as_deref() != Some("524288") {
        return Err(invalid("INVALID_BLOCK", "The data length is not that of a block"));
    }
    if call.body.len() != BLOCK {
        return Err(Refusal::new("ValidationException", "Failed to read block data"));
    }
    let (blocks, delay) = {
        let mut world = shared.world();
        let delays = world.delays;
        let snapshot = world.space(&call.region)?.snapshots.get(&id);
        let snapshot = snapshot.filter(|one| one.owner == call.account && one.begun.elapsed() >= delays.blocks);
        let snapshot = snapshot.ok_or_else(not_there)?;
        if !matches!(snapshot.stage, Stage::Writing) {
            return Err(invalid("INVALID_SNAPSHOT_ID", "Snapshot is already completed"));
        }
        if u64::from(index) >= u64::from(snapshot.size) * 2048 {
            return Err(invalid("INVALID_BLOCK", "The index is behind the end of the volume"));
        }
        (Arc::clone(&snapshot.blocks), delays.put)
    };
    if delay > Duration::ZERO {
        tokio::time::sleep(delay).await;
    }
    let digest: [u8; 32] = Sha256::digest(&call.body).into();
    let told = STANDARD.encode(digest);
    if told != claimed {
        let message = "The checksum of the block does not match the signed checksum";
        return Err(Refusal::new("InvalidSignatureException", message).status(403));
    }
    let written = blocks.put(index, &call.body, digest);
    written.map_err(|error| Refusal::new("InternalServerException", error.to_string()).status(500))?;
    let headers = vec![("x-amz-Checksum", told), ("x-amz-Checksum-Algorithm", "SHA256".to_owned())];
    Ok(Answer::Headers(201, headers))
}

fn complete(world: &mut World, mut call: Call) -> Answered {
    let (id, _) = named(&mut call.params)?;
    std::mem::take(&mut call.params).done()?;
    let count = header(&call, "x-amz-changedblockscount").and_then(|count| count.parse::<usize>().ok());
    let count = count.ok_or_else(|| invalid("INVALID_PARAMETER_VALUE", "The count of changed blocks is missing"))?;
    let checksum = header(&call, "x-amz-checksum");
    let more = ["x-amz-checksum-algorithm", "x-amz-checksum-aggregation-method"].map(|name| header(&call, name));
    match (&checksum, &more) {
        (None, [None, None]) => {}
        (Some(_), [Some(algorithm), Some(method)]) if algorithm == "SHA256" && method == "LINEAR" => {}
        _ => return Err(invalid("INVALID_PARAMETER_VALUE", "The three headers of the checksum go together")),
    }
    let delays = world.delays;
    let snapshot = world.space(&call.region)?.snapshots.get_mut(&id);
    let snapshot = snapshot.filter(|one| one.owner == call.account).ok_or_else(not_there)?;
    if matches!(snapshot.stage, Stage::Writing) {
        let failure = {
            let written = snapshot.blocks.written();
            let mut linear = Sha256::new();
            written.values().for_each(|digest| linear.update(digest));
            let right = checksum.is_none_or(|checksum| checksum == STANDARD.encode(linear.finalize()));
            match snapshot.doomed.clone() {
                Some(reason) => Some(reason),
                None if !right => Some("Checksum mismatch for snapshot".to_owned()),
                None if count != written.len() => Some("Changed blocks count mismatch for snapshot".to_owned()),
                None => None,
            }
        };
        snapshot.stage = Stage::Ended { at: Instant::now() + delays.snapshot, failure };
    }
    // The service says yes first and checks afterwards.
    Ok(Answer::Json(202, json!({ "Status": "pending" })))
}

/// A snapshot that blocks can be read of.
fn readable<'a>(world: &'a mut World, call: &Call, id: &str) -> Result<&'a Snapshot, Refusal> {
    let delays = world.delays;
    let snapshot = world.space(&call.region)?.snapshots.get(id);
    let may = |one: &&Snapshot| one.owner == call.account || one.volumes.contains(&call.account);
    let snapshot = snapshot.filter(may).filter(|one| one.is_complete()).ok_or_else(not_there)?;
    match &snapshot.stage {
        // EC2 says that it is complete before its blocks can be listed.
        Stage::Ended { at, .. } if at.elapsed() < delays.blocks => Err(not_there()),
        _ => Ok(snapshot),
    }
}

fn block_token(id: &str, index: u32) -> String {
    URL_SAFE.encode(format!("block?{id}>{index}"))
}

/// What a page begins with: the index in its token, or the one that was asked for.
fn page_start(params: &mut Params, what: &str) -> Result<(u32, usize), Refusal> {
    let wrong = || invalid("INVALID_PAGE_TOKEN", "The page token is not of this list");
    let from = params.take("startingBlockIndex").and_then(|text| text.parse().ok()).unwrap_or(0);
    let from = match params.take("pageToken") {
        None => from,
        Some(token) => {
            let text = String::from_utf8(URL_SAFE.decode(token).map_err(|_| wrong())?).map_err(|_| wrong())?;
            text.strip_prefix(&format!("page?{what}>")).and_then(|index| index.parse().ok()).ok_or_else(wrong)?
        }
    };
    let most = params.take("maxResults").map_or(Ok(10_000), |text| text.parse());
    match most {
        Ok(most) if (100..=10_000).contains(&most) => Ok((from, most)),
        _ => Err(Refusal::new("ValidationException", "MaxResults has to be between 100 and 10000")),
    }
}

fn page_token(what: &str, index: u32) -> String {
    URL_SAFE.encode(format!("page?{what}>{index}"))
}

fn expiry() -> f64 {
    Timestamp::now().as_second() as f64 + TOKEN_LIFE
}

fn list(world: &mut World, mut call: Call) -> Answered {
    let (id, _) = named(&mut call.params)?;
    let (from, most) = page_start(&mut call.params, &id)?;
    std::mem::take(&mut call.params).done()?;
    let snapshot = readable(world, &call, &id)?;
    let all = snapshot.blocks.all();
    let mut there = all.keys().copied().filter(|index| *index >= from);
    let blocks: Vec<Value> = there
        .by_ref()
        .take(most)
        .map(|index| json!({ "BlockIndex": index, "BlockToken": block_token(&id, index) }))
        .collect();
    let next = there.next().map(|index| page_token(&id, index));
    let value = json!({
        "Blocks": blocks, "ExpiryTime": expiry(), "VolumeSize": snapshot.size, "BlockSize": BLOCK, "NextToken": next,
    });
    Ok(Answer::Json(200, value))
}

fn list_changed(world: &mut World, mut call: Call) -> Answered {
    let (second, _) = named(&mut call.params)?;
    let first = call.params.take("firstSnapshotId");
    let first = first.ok_or_else(|| invalid("INVALID_SNAPSHOT_ID", "The first snapshot is missing"))?;
    let what = format!("{first}:{second}");
    let (from, most) = page_start(&mut call.params, &what)?;
    std::mem::take(&mut call.params).done()?;
    let one = readable(world, &call, &first)?.blocks.all();
    let snapshot = readable(world, &call, &second)?;
    let (other, size) = (snapshot.blocks.all(), snapshot.size);
    let indexes: BTreeSet<u32> = one.keys().chain(other.keys()).copied().collect();
    let differ = |index: &u32| one.get(index) != other.get(index) || snapshot.blocks.written().contains_key(index);
    let mut changed = indexes.into_iter().filter(|index| *index >= from).filter(differ);
    let token =
        |blocks: &BTreeMap<u32, [u8; 32]>, id: &str, index| blocks.contains_key(&index).then(|| block_token(id, index));
    let page: Vec<Value> = changed
        .by_ref()
        .take(most)
        .map(|index| {
            json!({
                "BlockIndex": index,
                "FirstBlockToken": token(&one, &first, index),
                "SecondBlockToken": token(&other, &second, index),
            })
        })
        .collect();
    let next = changed.next().map(|index| page_token(&what, index));
    let value = json!({
        "ChangedBlocks": page, "ExpiryTime": expiry(), "VolumeSize": size, "BlockSize": BLOCK, "NextToken": next,
    });
    Ok(Answer::Json(200, value))
}

fn get(world: &mut World, mut call: Call) -> Answered {
    let (id, index) = named(&mut call.params)?;
    let token = call.params.take("blockToken");
    std::mem::take(&mut call.params).done()?;
    let snapshot = readable(world, &call, &id)?;
    if token != Some(block_token(&id, index)) {
        return Err(invalid("INVALID_BLOCK_TOKEN", "The block token is not of this block"));
    }
    let block = snapshot.blocks.get(index);
    let block = block.map_err(|error| Refusal::new("InternalServerException", error.to_string()).status(500))?;
    let (data, digest) = block.ok_or_else(|| {
        Refusal::new("ResourceNotFoundException", "The block does not exist.").status(404).reason("BLOCK_NOT_FOUND")
    })?;
    let headers = vec![
        ("x-amz-Data-Length", BLOCK.to_string()),
        ("x-amz-Checksum", STANDARD.encode(digest)),
        ("x-amz-Checksum-Algorithm", "SHA256".to_owned()),
    ];
    Ok(Answer::Bytes(headers, Bytes::from(data)))
}
