//! Open, run, seal.

use bake_linux::{Check, FilesystemKind, OpenOptions, SealOptions};

use crate::support::{Table, disk, disk_with, needs_root, path, shell};

#[tokio::test]
async fn a_disk_is_opened_worked_on_and_sealed() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    assert_eq!((root.filesystem().kind, root.filesystem().partition), (FilesystemKind::Ext4, Some(1)));
    assert_eq!(shell(&mut root, "echo hello > /etc/greeting; id -u; pwd; hostname").await, "0\n/\nlocalhost\n");
    assert_eq!(root.read(&path("/etc/greeting")).await.unwrap(), b"hello\n");
    let sealed = root.seal(SealOptions::default()).await.unwrap();
    assert_eq!((sealed.ended.len(), &sealed.check), (0, &Check::Clean));

    let mut again = disk.root(OpenOptions::default()).await;
    assert_eq!(again.read(&path("/etc/greeting")).await.unwrap(), b"hello\n");
    again.abandon().await.unwrap();
}

#[tokio::test]
async fn every_table_works() {
    needs_root!();
    for table in [Table::Mbr, Table::None] {
        let disk = disk_with(table, 16 << 20, |_| {});
        let mut root = disk.root(OpenOptions::default()).await;
        assert_eq!(shell(&mut root, "cat /etc/hostname").await, "image\n");
        root.seal(SealOptions::default()).await.unwrap();
    }
}
