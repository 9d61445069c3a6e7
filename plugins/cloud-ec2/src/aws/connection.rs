//! How AWS is reached: credentials, region and endpoints, found as all AWS tools find them.
//!
//! A [`Place`] is one region as one account sees it; the clients in it can reach nothing else, so that an id is never
//! looked for in a region that is not its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_manners::{Caller, Manners, Settings};
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, ConfigLoader, SdkConfig};
use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::config::{Credentials, SharedHttpClient};
use aws_smithy_http_client::tls;
use bake_core::{Account, Region};
use bake_engine::StepResult;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, OnceCell};

use crate::aws::calls::{CallError, Calls};
use crate::aws::waiting::Pollers;
use crate::settings::Way;

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// How long one try of a call may take.
const ATTEMPT: Duration = Duration::from_secs(30);

/// How much sooner a call is repeated than a state is looked at again: a tenth of the pace, 200 ms where nobody says otherwise.
const SOONER: u32 = 10;

/// All connections of this process. Making one asks nobody anything; that begins with the first call.
#[derive(Clone)]
pub(crate) struct Connections {
    keys: Option<Keys>,
    manners: Manners,
    pace: Duration,
    accounts: Arc<Mutex<BTreeMap<Way, Arc<OnceCell<Reached>>>>>,
}

/// Keys that are given, in place of those that AWS tools would find.
#[derive(Clone)]
pub struct Keys {
    /// The access key's id.
    pub access: String,
    /// The secret key.
    pub secret: String,
    /// The URL of the instance metadata service, in place of the usual one.
    pub metadata: Option<String>,
}

/// An account that was reached.
struct Reached {
    config: SdkConfig,
    account: Account,
    manners: Manners,
    places: Mutex<BTreeMap<Region, Place>>,
    pace: Duration,
}

/// One region as one account sees it.
#[derive(Clone)]
pub(crate) struct Place(Arc<Inner>);

struct Inner {
    way: Way,
    account: Account,
    region: Region,
    ec2: aws_sdk_ec2::Client,
    ebs: aws_sdk_ebs::Client,
    ssm: aws_sdk_ssm::Client,
    calls: Calls,
    pollers: Pollers,
}

/// Where something is, and how it is reached: enough to take it back from another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Whose it is.
    pub account: Account,
    /// Where it is.
    pub region: Region,
    /// How that account is reached.
    #[serde(default)]
    pub way: Way,
}

impl Connections {
    pub(crate) fn new(keys: Option<Keys>, pace: Duration) -> Self {
        let manners = Manners::new(Settings { first_wait: pace / SOONER, ..Settings::default() });
        Self { keys, manners, pace, accounts: Arc::default() }
    }

    /// Reaches a region. `None` is the one that AWS tools would use here.
    pub(crate) async fn place(&self, way: &Way, region: Option<&Region>) -> StepResult<Place> {
        let cell = Arc::clone(self.accounts.lock().await.entry(way.clone()).or_default());
        let reached = cell.get_or_try_init(|| self.reach(way, region)).await?;
        let region = match region {
            Some(region) => region.clone(),
            None => reached.default_region()?,
        };
        let mut places = reached.places.lock().await;
        Ok(places.entry(region.clone()).or_insert_with(|| reached.place(way, region)).clone())
    }

    /// Finds credentials and asks whose they are.
    async fn reach(&self, way: &Way, region: Option<&Region>) -> StepResult<Reached> {
        let config = load(way, self.keys.as_ref(), region).await;
        let region = config.region().ok_or(CallError::NoRegion)?;
        let sts = aws_sdk_sts::Client::new(&config);
        let calls = Calls::new(caller(&self.manners, None, region.as_ref()));
        let identity = calls.read("GetCallerIdentity", || sts.get_caller_identity().send()).await?;
        let account = identity.account.ok_or_else(|| CallError::missing("GetCallerIdentity", "the account"))?;
        let (account, manners) = (Account::new(account), self.manners.clone());
        Ok(Reached { config, manners, account, places: Mutex::default(), pace: self.pace })
    }

    /// Reaches the place of something that was made, and makes sure that it is the same account.
    pub(crate) async fn place_of(&self, address: &Address) -> StepResult<Place> {
        let place = self.place(&address.way, Some(&address.region)).await?;
        if *place.account() != address.account {
            return Err(
                CallError::OtherAccount { ours: place.account().clone(), theirs: address.account.clone() }.into()
            );
        }
        Ok(place)
    }
}

/// Returns what makes the calls to a region, which the service counts by account.
fn caller(manners: &Manners, account: Option<&Account>, region: &str) -> Caller {
    manners
        .caller(api_manners::Place { account: account.map(|account| account.as_str().into()), region: region.into() })
}

async fn load(way: &Way, keys: Option<&Keys>, region: Option<&Region>) -> SdkConfig {
    let mut loader = loader(way);
    if let Some(region) = region {
        loader = loader.region(aws_config::Region::new(region.as_str().to_owned()));
    }
    if let Some(Keys { access, secret, .. }) = keys {
        loader = loader.credentials_provider(Credentials::new(access, secret, None, None, "given"));
    }
    let config = loader.load().await;
    let Some(role) = &way.role else { return config };
    let provider =
        aws_config::sts::AssumeRoleProvider::builder(role).session_name("bake").configure(&config).build().await;
    config.into_builder().credentials_provider(aws_sdk_sts::config::SharedCredentialsProvider::new(provider)).build()
}

/// Returns what speaks HTTP for all clients.
pub(crate) fn http() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https()
}

fn loader(way: &Way) -> ConfigLoader {
    let time_outs = TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(ATTEMPT).build();
    // Retries are of one layer, and that is ours: it knows which calls may be repeated.
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http())
        .retry_config(RetryConfig::disabled())
        .timeout_config(time_outs);
    if let Some(profile) = &way.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(endpoint) = &way.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    loader
}

impl Reached {
    fn default_region(&self) -> Result<Region, CallError> {
        let region = self.config.region().ok_or(CallError::NoRegion)?;
        Ok(Region::new(region.as_ref()))
    }

    fn place(&self, way: &Way, region: Region) -> Place {
        let there = self.config.to_builder().region(aws_config::Region::new(region.as_str().to_owned())).build();
        let ec2 = aws_sdk_ec2::Client::new(&there);
        let calls = Calls::new(caller(&self.manners, Some(&self.account), region.as_str()));
        let told = api_manners::Place { account: Some(self.account.as_str().into()), region: region.as_str().into() };
        Place(Arc::new(Inner {
            way: way.clone(),
            account: self.account.clone(),
            pollers: Pollers::new(&ec2, &calls, &told, self.pace),
            ec2,
            ebs: aws_sdk_ebs::Client::new(&there),
            ssm: aws_sdk_ssm::Client::new(&there),
            calls,
            region,
        }))
    }
}

impl Place {
    /// Returns whose it is.
    pub(crate) fn account(&self) -> &Account {
        &self.0.account
    }

    /// Returns the region.
    pub(crate) fn region(&self) -> &Region {
        &self.0.region
    }

    /// Returns what to write down of it.
    pub(crate) fn address(&self) -> Address {
        Address { account: self.0.account.clone(), region: self.0.region.clone(), way: self.0.way.clone() }
    }

    /// Returns the client of EC2.
    pub(crate) fn ec2(&self) -> &aws_sdk_ec2::Client {
        &self.0.ec2
    }

    /// Returns the client of the EBS direct API.
    pub(crate) fn ebs(&self) -> &aws_sdk_ebs::Client {
        &self.0.ebs
    }

    /// Returns the client of the parameter store.
    pub(crate) fn ssm(&self) -> &aws_sdk_ssm::Client {
        &self.0.ssm
    }

    /// Returns what looks at all that is waited for there.
    pub(crate) fn pollers(&self) -> &Pollers {
        &self.0.pollers
    }

    /// Returns how calls are made there.
    pub(crate) fn calls(&self) -> &Calls {
        &self.0.calls
    }
}
