use std::sync::Arc;
use std::time::Duration;

use ebs_transfer::{BLOCK_SIZE, ErrorClass, TransferError, Upload, upload};
use proptest::prelude::*;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::service::{Service, Wrong, blocks, disk};

async fn run(service: &Arc<Service>, asked: Upload) -> Result<u32, TransferError> {
    upload(service, asked, |_, _| (), &CancellationToken::new()).await.map(|done| done.written)
}

/// A service with a parent and a disk that was made of it.
fn service(parent: &[u8], child: &[u8]) -> Arc<Service> {
    let service = Service::new();
    service.state().parent = blocks(parent);
    disk(&service.path("disk"), child);
    service
}

/// Every byte of the snapshot is that of the disk, holes being zeros.
#[track_caller]
fn assert_child(service: &Service, child: &[u8]) {
    let there = service.child();
    let length = child.len().max(there.keys().next_back().map_or(0, |last| *last as usize + 1));
    for index in 0..length {
        let wanted = child.get(index).copied().unwrap_or(0);
        let data = there.get(&u32::try_from(index).unwrap());
        let is = data.map_or(wanted == 0, |data| *data == crate::service::block(wanted));
        assert!(is, "block {index} is not full of {wanted}");
    }
}

#[tokio::test]
async fn without_a_parent_zeros_are_not_sent() {
    let service = service(&[], &[1, 0, 2, 0]);
    assert_eq!(run(&service, service.upload()).await.unwrap(), 2);
    assert_child(&service, &[1, 0, 2, 0]);
}

#[tokio::test]
async fn what_became_zero_is_said_where_the_parent_has_something_else() {
    let (parent, child) = ([1, 2, 0, 4, 5], [1, 0, 0, 4, 6]);
    let service = service(&parent, &child);
    assert_eq!(run(&service, service.upload()).await.unwrap(), 2);
    assert_child(&service, &child);
}

#[tokio::test]
async fn a_disk_that_became_smaller_hides_the_rest_of_its_parent() {
    let service = service(&[1, 2, 3], &[1]);
    assert_eq!(run(&service, service.upload()).await.unwrap(), 2);
    assert_child(&service, &[1]);
}

#[tokio::test]
async fn where_nothing_was_changed_nothing_is_written() {
    let service = service(&[1, 2], &[1, 2]);
    assert_eq!(run(&service, service.upload()).await.unwrap(), 0);
    assert_eq!(service.state().completed, Some((0, None)), "and no checksum is sent");
}

#[tokio::test]
async fn only_candidates_are_looked_at() {
    let service = service(&[1, 2, 3], &[7, 8, 9]);
    let block = BLOCK_SIZE as u64;
    let asked = Upload { candidates: Some(vec![0..0, block + 5..block + 6]), ..service.upload() };
    assert_eq!(run(&service, asked).await.unwrap(), 1);
    assert_child(&service, &[1, 8, 3]);
}

#[tokio::test]
async fn an_end_of_half_a_block_is_filled_with_zeros() {
    let service = Service::new();
    std::fs::write(service.path("disk"), vec![1; BLOCK_SIZE + 7]).unwrap();
    assert_eq!(run(&service, service.upload()).await.unwrap(), 2);
    let last = service.child().remove(&1).unwrap();
    assert!(last[..7].iter().all(|byte| *byte == 1) && last[7..].iter().all(|byte| *byte == 0));
}

#[tokio::test(start_paused = true)]
async fn what_passes_is_tried_again_and_what_does_not_ends_all() {
    for class in [ErrorClass::Throttled, ErrorClass::Passing, ErrorClass::Absent, ErrorClass::BadChecksum] {
        let service = service(&[], &[1, 2, 3]);
        service.state().faults = [(0, Wrong::Refused(class)), (1, Wrong::Refused(class))].into();
        assert_eq!(run(&service, service.upload()).await.unwrap(), 3, "{class:?}");
    }
    let many: Vec<u8> = (1..=200).collect();
    let service = service(&[], &many);
    service.state().always = Some(Wrong::Refused(ErrorClass::Fatal));
    let error = run(&service, service.upload()).await.unwrap_err();
    assert!(matches!(error, TransferError::Block { tries: 1, .. }), "{error}");
    assert!(service.state().calls < 200, "the others are not tried any more");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_may_be_unknown_while_it_is_new_and_not_for_ever() {
    let service = service(&[], &[1]);
    service.state().always = Some(Wrong::Refused(ErrorClass::Absent));
    let begun = Instant::now();
    run(&service, service.upload()).await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_secs(150), "{:?}", begun.elapsed());
    let begun = Instant::now();
    run(&service, Upload { age: Duration::from_secs(600), ..service.upload() }).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn damage_on_the_way_is_seen_and_sent_again() {
    let service = service(&[], &[1]);
    service.state().faults = [(0, Wrong::Garbled)].into();
    assert_eq!(run(&service, service.upload()).await.unwrap(), 1);
    assert_eq!(service.state().puts[&0], 2);
    let service = self::service(&[], &[1]);
    service.state().always = Some(Wrong::Garbled);
    assert!(matches!(run(&service, service.upload()).await, Err(TransferError::Block { tries: 3, .. })));
}

#[tokio::test(start_paused = true)]
async fn only_completed_is_success() {
    let service = service(&[], &[1]);
    service.state().pending = 20;
    assert_eq!(run(&service, service.upload()).await.unwrap(), 1);
    let service = self::service(&[], &[1]);
    service.state().refuses = Some("Checksum mismatch for snapshot".into());
    let error = run(&service, service.upload()).await.unwrap_err();
    assert_eq!(error.to_string(), "the snapshot `snap-1` failed: Checksum mismatch for snapshot");
    let service = self::service(&[], &[1]);
    service.state().pending = u32::MAX;
    assert!(matches!(run(&service, service.upload()).await, Err(TransferError::TooSlow { .. })));
}

#[tokio::test]
async fn memory_is_bounded_by_what_is_in_flight() {
    let many: Vec<u8> = (0..400).map(|number| (number % 250) as u8 + 1).collect();
    let service = service(&[], &many);
    assert_eq!(run(&service, service.upload()).await.unwrap(), 400);
    assert!(service.state().most_in_flight <= 128, "{}", service.state().most_in_flight);
}

#[tokio::test]
async fn a_disk_that_is_written_to_meanwhile_is_not_uploaded() {
    let service = service(&[], &[1, 2]);
    service.state().faults = [(0, Wrong::Refused(ErrorClass::Passing))].into();
    let asked = Upload {
        patience: ebs_transfer::Patience { shortest: Duration::from_millis(200), ..crate::service::patience() },
        ..service.upload()
    };
    let (uploading, writing) = tokio::join!(run(&service, asked), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        std::fs::OpenOptions::new()
            .append(true)
            .open(service.path("disk"))
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"more"))
    });
    writing.unwrap();
    assert!(matches!(uploading, Err(TransferError::Changed { .. })), "{uploading:?}");
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..4u8, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, max_shrink_iters: 20, ..ProptestConfig::default() })]

    /// Whatever was changed: a reader of the snapshot gets the disk.
    #[test]
    fn the_snapshot_is_the_disk(parent in bytes(), child in bytes().prop_filter("a disk has blocks", |child| !child.is_empty())) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let service = service(&parent, &child);
        runtime.block_on(run(&service, service.upload())).unwrap();
        assert_child(&service, &child);
    }

    /// Failures and a kill at any call: the next process finishes it, and the count is of distinct blocks.
    #[test]
    fn an_upload_that_was_stopped_goes_on(
        parent in bytes(),
        child in bytes().prop_filter("a disk has blocks", |child| !child.is_empty()),
        stop in 0..20u32,
        lost in prop::collection::btree_set(0..20u32, 0..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let service = service(&parent, &child);
        service.state().faults = lost.into_iter().map(|call| (call, Wrong::AnswerLost)).collect();
        service.state().faults.insert(stop, Wrong::Refused(ErrorClass::Fatal));
        let first = runtime.block_on(run(&service, service.upload()));
        prop_assert!(first.is_ok() || service.state().calls > stop);
        service.state().faults.clear();
        let before = service.state().puts.clone();
        runtime.block_on(run(&service, service.upload())).unwrap();
        assert_child(&service, &child);
        let state = service.state();
        let (count, _) = state.completed.clone().unwrap();
        prop_assert_eq!(count as usize, state.written.len());
        let twice = |(index, count): &(&u32, &u32)| before.get(index).is_some_and(|old| old < *count);
        let again = state.puts.iter().filter(twice).count();
        prop_assert!(again <= 128, "only what was in flight may be written twice");
    }
}
