//! The instance that `bake` runs on, as the instance metadata service tells (version 2: with a token).

use std::time::Duration;

use aws_config::imds::Client;
use aws_config::provider_config::ProviderConfig;
use bake_core::Region;
use bake_engine::{StepError, StepResult};

use crate::aws::connection::http;

/// How long an answer may take: the service is on this machine, or nowhere.
const ANSWER: Duration = Duration::from_secs(2);

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    /// Its id.
    pub(crate) id: String,
    /// The region that it is in.
    pub(crate) region: Region,
    /// The availability zone: only volumes of the same one can be attached.
    pub(crate) zone: String,
}

impl Instance {
    /// Asks the metadata service. `endpoint` is its URL, in place of the usual one.
    pub(crate) async fn read(endpoint: Option<&str>) -> StepResult<Self> {
        let config = ProviderConfig::without_region().with_http_client(http());
        let client = Client::builder().configure(&config).connect_timeout(ANSWER).read_timeout(ANSWER);
        let client = match endpoint {
            Some(endpoint) => client
                .endpoint(endpoint)
                .map_err(|error| StepError::permanent(format!("`{endpoint}` is no URL: {error}")))?,
            None => client,
        };
        let client = client.build();
        let ask = async |what: &str| {
            let answer = client.get(format!("/latest/meta-data/{what}")).await;
            answer.map(String::from).map_err(unknown)
        };
        Ok(Self {
            id: ask("instance-id").await?,
            region: Region::new(ask("placement/region").await?),
            zone: ask("placement/availability-zone").await?,
        })
    }

    /// Refuses a region that this instance is not in.
    pub(crate) fn check_region(&self, region: &Region) -> StepResult<()> {
        match *region == self.region {
            true => Ok(()),
            false => Err(StepError::permanent(format!(
                "this instance is in region `{}`, and volumes of `{region}` cannot be attached to it",
                self.region
            ))
            .hint("bake in the instance's own region and distribute from there, or use `blockdevice: loop`")),
        }
    }
}

fn unknown(error: impl std::error::Error + Send + Sync + 'static) -> StepError {
    // Asked several times already, by the client itself.
    StepError::permanent("the instance metadata service does not tell which instance this is")
        .because(error)
        .hint("outside EC2, use `blockdevice: loop`; in a container, let the service's answers take two hops")
}
