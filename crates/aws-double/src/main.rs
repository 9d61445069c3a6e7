//! `aws-double`: the double as a command, for trying things out by hand.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use aws_double::{Delays, Double, SeedImage};
use clap::Parser;

/// Answers as EC2 (images, snapshots, tags), the EBS direct API, STS and the parameter store do, strictly, from memory.
#[derive(Parser)]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:4599")]
    listen: SocketAddr,
    /// An account and its access key: ACCOUNT=KEY. May be given several times.
    #[arg(long, default_value = "111122223333=AKIAIOSFODNN7EXAMPLE")]
    account: Vec<String>,
    /// A region. May be given several times.
    #[arg(long, default_values = ["us-east-1", "eu-west-1"])]
    region: Vec<String>,
    /// A base image of the first account in the first region: NAME=DISK-FILE. May be given several times.
    #[arg(long)]
    base: Vec<String>,
    /// How long images, snapshots and copies are `pending`, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pending: u64,
    /// How much longer each write of a block takes, in milliseconds.
    #[arg(long, default_value_t = 0)]
    put_delay: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let pending = Duration::from_millis(arguments.pending);
    let put = Duration::from_millis(arguments.put_delay);
    let delays = Delays { image: pending, snapshot: pending, copy: pending, put, ..Delays::default() };
    let mut builder = Double::builder().delays(delays);
    for account in &arguments.account {
        let (account, key) = account.split_once('=').ok_or("--account is ACCOUNT=KEY")?;
        builder = builder.account(account, key);
    }
    for region in &arguments.region {
        builder = builder.region(region);
    }
    let double = builder.start_at(arguments.listen).await?;
    let first = arguments.account[0].split('=').next().unwrap_or_default();
    for base in &arguments.base {
        let (name, disk) = base.split_once('=').ok_or("--base is NAME=DISK-FILE")?;
        let snapshot = double.seed_snapshot(first, &arguments.region[0], &PathBuf::from(disk))?;
        let image = double.seed_image(first, &arguments.region[0], SeedImage::new(name, &snapshot))?;
        println!("{image} {name} (root snapshot {snapshot})");
    }
    println!("listening at {}; export AWS_ENDPOINT_URL={}", double.endpoint(), double.endpoint());
    tokio::signal::ctrl_c().await?;
    Ok(())
}
