use std::sync::Arc;

use ebs_transfer::{BLOCK_SIZE, Download, Downloaded, ErrorClass, TransferError, download};
use tokio_util::sync::CancellationToken;

use crate::service::{Service, Wrong, blocks, index, patience};

fn service(bytes: &[u8]) -> Arc<Service> {
    let service = Service::new();
    service.state().parent = blocks(bytes);
    service
}

async fn run(service: &Arc<Service>) -> Result<Downloaded, TransferError> {
    let asked = Download {
        snapshot: "snap-1".into(),
        file: service.path("disk"),
        journal: service.path("journal"),
        patience: patience(),
    };
    download(service, asked, |_, _| (), &CancellationToken::new()).await
}

#[track_caller]
fn assert_disk(service: &Service, bytes: &[u8]) {
    let disk = std::fs::read(service.path("disk")).unwrap();
    assert_eq!(disk.len(), 1 << 30);
    for (number, block) in disk.chunks(BLOCK_SIZE).enumerate() {
        let wanted = bytes.get(number).copied().unwrap_or(0);
        assert_eq!((block[0], block[BLOCK_SIZE - 1]), (wanted, wanted), "block {number}");
    }
}

#[tokio::test]
async fn all_pages_are_fetched_and_what_nobody_wrote_is_a_hole() {
    use std::os::unix::fs::MetadataExt as _;
    let bytes = [1, 0, 0, 2, 3, 4, 0, 5];
    let service = service(&bytes);
    let done = run(&service).await.unwrap();
    assert_disk(&service, &bytes);
    assert_eq!((done.size, &done.digests), (1 << 30, &index(&blocks(&bytes), 2048)));
    let held = std::fs::metadata(service.path("disk")).unwrap().blocks() * 512;
    assert!(held < 6 * BLOCK_SIZE as u64, "{held} bytes are held for five blocks");
}

#[tokio::test]
async fn a_damaged_block_is_fetched_again() {
    let service = service(&[1]);
    // The list is two calls.
    service.state().faults = [(2, Wrong::Garbled), (3, Wrong::AnswerLost)].into();
    run(&service).await.unwrap();
    assert_disk(&service, &[1]);
}

#[tokio::test]
async fn a_token_that_ran_out_is_made_anew() {
    let service = service(&[1, 2]);
    service.state().stale = ["1-_0".into(), "1-_1".into()].into();
    let error = run(&service).await.err();
    assert!(error.is_none(), "{error:?}");
    assert_disk(&service, &[1, 2]);
}

#[tokio::test]
async fn what_was_fetched_is_not_fetched_again() {
    let bytes = [1, 2, 3, 4];
    let service = service(&bytes);
    service.state().faults = [(7, Wrong::Refused(ErrorClass::Fatal))].into();
    run(&service).await.unwrap_err();
    let before = service.state().calls;
    run(&service).await.unwrap();
    assert_disk(&service, &bytes);
    let list = 4;
    assert!(service.state().calls - before < list + 4 + 1, "some of the four blocks were there");
    // What another has put there is not taken for ours.
    std::fs::remove_file(service.path("journal")).unwrap();
    std::fs::write(service.path("disk"), [9; 100]).unwrap();
    run(&service).await.unwrap();
    assert_disk(&service, &bytes);
}
