//! The EBS direct API as `ebs-transfer` wants it: each call made once, and its errors put into classes.

use api_manners::ErrorClass as Kind;
use aws_sdk_ebs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ebs::primitives::ByteStream;
use aws_sdk_ebs::types::{ChecksumAggregationMethod, ChecksumAlgorithm, Tag};
use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::types::SnapshotState as Ec2State;
use bake_engine::{StepError, StepResult};
use bytes::Bytes;
use ebs_transfer::{ApiError, Block, BlockPage, Digest, ErrorClass, SnapshotApi, SnapshotState, StartSnapshot};

use crate::aws::calls::CallError;
use crate::aws::connection::Place;

/// Blocks on a page of a list; the most there may be.
const PAGE: i32 = 10_000;

/// The EBS direct API at one place.
pub(crate) struct Blocks {
    place: Place,
}

impl Blocks {
    pub(crate) fn new(place: &Place) -> Self {
        Self { place: place.clone() }
    }

    /// Begins a snapshot and returns its id. The same token gives the same snapshot.
    pub(crate) async fn begin(&self, start: &StartSnapshot) -> StepResult<String> {
        let size = i64::from(start.volume_size_gib);
        let tags = start.tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect();
        let call = || {
            let call = self.place.ebs().start_snapshot().volume_size(size).client_token(&start.token);
            call.set_parent_snapshot_id(start.parent.clone())
                .set_description(start.description.clone())
                .set_tags(Some(tags))
                .timeout(start.timeout_minutes)
                .send()
        };
        let answer = self.place.calls().once("StartSnapshot", call).await?;
        if answer.block_size.is_some_and(|size| usize::try_from(size) != Ok(ebs_transfer::BLOCK_SIZE)) {
            return Err(StepError::permanent(format!("the service has blocks of {:?} bytes", answer.block_size)));
        }
        answer.snapshot_id.ok_or_else(|| StepError::unknown("StartSnapshot answered without an id"))
    }

    /// Makes a call once.
    async fn once<T, E, F>(&self, operation: &'static str, call: impl FnOnce() -> F) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        self.place.calls().single(operation, call).await.map_err(|error| classed(&error))
    }
}

/// Puts an error of the EBS direct API into its class.
fn classed(error: &CallError) -> ApiError {
    let message = error.to_string();
    let class = match (error.code(), error.kind()) {
        // What is said when the bytes are not those of the checksum; with another text it is about the clock.
        (Some("InvalidSignatureException"), _) if message.contains("checksum") => ErrorClass::BadChecksum,
        (Some("ValidationException"), _) if message.contains("Failed to read block data") => ErrorClass::Passing,
        (Some("ValidationException"), _) if message.contains("block token") => ErrorClass::TokenExpired,
        (_, Kind::Throttled | Kind::Limit) => ErrorClass::Throttled,
        // A block may be written twice, so a lost answer costs nothing.
        (_, Kind::Passing | Kind::UnknownOutcome | Kind::InUse) => ErrorClass::Passing,
        (_, Kind::NotYetVisible) => ErrorClass::Absent,
        (_, Kind::Expired | Kind::Denied | Kind::Refused) => ErrorClass::Fatal,
    };
    ApiError { class, message }
}

fn index(index: u32) -> i32 {
    i32::try_from(index).expect("a volume has fewer blocks")
}

fn unfit(message: &str) -> ApiError {
    ApiError { class: ErrorClass::Fatal, message: message.into() }
}

impl SnapshotApi for Blocks {
    async fn put_block(
        &self,
        snapshot: &str,
        block: u32,
        data: Bytes,
        digest: Digest,
    ) -> Result<Option<Digest>, ApiError> {
        let length = i32::try_from(data.len()).expect("a block is small");
        let call = || {
            let call = self.place.ebs().put_snapshot_block().snapshot_id(snapshot).block_index(index(block));
            let call = call.block_data(ByteStream::from(data)).data_length(length).checksum(digest.to_base64());
            call.checksum_algorithm(ChecksumAlgorithm::ChecksumAlgorithmSha256).send()
        };
        let answer = self.once("PutSnapshotBlock", call).await?;
        Ok(answer.checksum.as_deref().and_then(Digest::from_base64))
    }

    async fn complete(&self, snapshot: &str, written: u32, checksum: Option<String>) -> Result<(), ApiError> {
        let sum = checksum.is_some();
        let call = || {
            let call = self.place.ebs().complete_snapshot().snapshot_id(snapshot).changed_blocks_count(index(written));
            call.set_checksum(checksum)
                .set_checksum_algorithm(sum.then_some(ChecksumAlgorithm::ChecksumAlgorithmSha256))
                .set_checksum_aggregation_method(sum.then_some(ChecksumAggregationMethod::ChecksumAggregationLinear))
                .send()
        };
        self.once("CompleteSnapshot", call).await.map(drop)
    }

    async fn state(&self, snapshot: &str) -> Result<SnapshotState, ApiError> {
        let call = || self.place.ec2().describe_snapshots().snapshot_ids(snapshot).send();
        let answer = match self.once("DescribeSnapshots", call).await {
            Ok(answer) => answer,
            Err(ApiError { class: ErrorClass::Absent, .. }) => return Ok(SnapshotState::Absent),
            Err(error) => return Err(error),
        };
        Ok(match answer.snapshots.unwrap_or_default().into_iter().next() {
            None => SnapshotState::Absent,
            Some(snapshot) => match snapshot.state {
                Some(Ec2State::Completed) => SnapshotState::Completed,
                Some(Ec2State::Error | Ec2State::Recoverable | Ec2State::Recovering) => SnapshotState::Failed {
                    reason: snapshot.state_message.unwrap_or_else(|| "no reason was given".into()),
                },
                _ => SnapshotState::Pending,
            },
        })
    }

    async fn list_blocks(&self, snapshot: &str, page: Option<String>, from: u32) -> Result<BlockPage, ApiError> {
        let from = (page.is_none() && from > 0).then(|| index(from));
        let call = || {
            let call = self.place.ebs().list_snapshot_blocks().snapshot_id(snapshot).max_results(PAGE);
            call.set_starting_block_index(from).set_next_token(page).send()
        };
        let answer = self.once("ListSnapshotBlocks", call).await?;
        let mut blocks = Vec::new();
        for block in answer.blocks.unwrap_or_default() {
            let index = block.block_index.and_then(|index| u32::try_from(index).ok());
            let (Some(index), Some(token)) = (index, block.block_token) else {
                return Err(unfit("a block in the list has no index or no token"));
            };
            blocks.push((index, token));
        }
        Ok(BlockPage {
            blocks,
            next: answer.next_token.filter(|token| !token.is_empty()),
            volume_size_gib: answer.volume_size.and_then(|size| u32::try_from(size).ok()),
            block_size: answer.block_size.and_then(|size| usize::try_from(size).ok()),
        })
    }

    async fn get_block(&self, snapshot: &str, block: u32, token: &str) -> Result<Block, ApiError> {
        let call = || {
            let call = self.place.ebs().get_snapshot_block().snapshot_id(snapshot).block_index(index(block));
            call.block_token(token).send()
        };
        let answer = self.once("GetSnapshotBlock", call).await?;
        let digest = answer.checksum.as_deref().and_then(Digest::from_base64);
        let data = answer.block_data.collect().await;
        let passing = |error| ApiError { class: ErrorClass::Passing, message: format!("the block broke off: {error}") };
        Ok(Block { data: data.map_err(passing)?.into_bytes(), digest })
    }
}
