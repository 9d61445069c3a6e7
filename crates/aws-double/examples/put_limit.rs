//! How fast blocks can be hashed and sent to a double at all: what `scripts/bench ebs` measures uploads against.
//!
//! `put_limit ENDPOINT DISK SNAPSHOT-SIZE-GIB` reads the data of a file, hashes each block, and puts it, 64 at a time, with a plain
//! HTTP client: no list of what is done, no retries, no signatures, nothing is read back.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const BLOCK: usize = 512 * 1024;
const AT_ONCE: usize = 64;
const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20261201/us-east-1/ebs/aws4_request, SignedHeaders=host, Signature=0";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, disk, size] = &words[..] else { return Err("usage: put_limit ENDPOINT DISK SIZE-GIB".into()) };
    // Without it even a client for plain HTTP cannot be made.
    let _only_once = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build()?;
    let begin = client.post(format!("{endpoint}/snapshots")).header("authorization", SIGNED);
    let begun = begin.body(format!("{{\"VolumeSize\":{size},\"Timeout\":60}}")).send().await?.error_for_status()?;
    let begun: serde_json::Value = serde_json::from_slice(&begun.bytes().await?)?;
    let snapshot = begun["SnapshotId"].as_str().ok_or("no snapshot")?.to_owned();
    let file = Arc::new(File::open(disk)?);
    let (slots, mut puts) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for index in 0..file.metadata()?.len().div_ceil(BLOCK as u64) {
        let (client, file, slot) = (client.clone(), Arc::clone(&file), Arc::clone(&slots).acquire_owned().await?);
        let url = format!("{endpoint}/snapshots/{snapshot}/blocks/{index}");
        puts.spawn(async move {
            let _slot = slot;
            let mut data = vec![0; BLOCK];
            file.read_exact_at(&mut data, index * BLOCK as u64)?;
            if data.iter().all(|byte| *byte == 0) {
                return Ok(0);
            }
            let digest = STANDARD.encode(Sha256::digest(&data));
            let put = client.put(url).header("authorization", SIGNED).header("x-amz-Data-Length", BLOCK);
            let put = put.header("x-amz-Checksum", digest).header("x-amz-Checksum-Algorithm", "SHA256").body(data);
            put.send().await?.error_for_status()?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(1)
        });
    }
    let mut written = 0;
    while let Some(put) = puts.join_next().await {
        written += put?.map_err(|error| error.to_string())?;
    }
    println!("{written} blocks");
    Ok(())
}
