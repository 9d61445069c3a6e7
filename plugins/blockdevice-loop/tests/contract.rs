//! Disk files keep the contract of block devices.

use std::sync::Arc;

use bake_engine::Mutations;
use bake_testing::contract::{self, DiskCase};
use bake_testing::fake::FakeCloud;
use blockdevice_loop::LoopBlockDevice;

#[tokio::test]
async fn disk_files_keep_the_contract() {
    let disk = tempfile::NamedTempFile::new().unwrap();
    disk.as_file().set_len(1 << 20).unwrap();
    contract::blockdevice(async || {
        let cloud = FakeCloud::new(&["base"]).in_files(disk.path());
        DiskCase {
            blockdevice: Arc::new(LoopBlockDevice),
            cloud: cloud.build(&mut Mutations::new()),
            volume: cloud.add_volume(),
            attachment: None,
            keep: Box::new(cloud),
        }
    })
    .await;
}
