//! The file functions and what is bound into a root.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use bake_linux::{EntryKind, OpenOptions, RootError, SealOptions};

use crate::support::{Table, disk, disk_with, needs_root, path, shell};

#[tokio::test]
async fn files_are_written_read_and_removed() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    root.create_folder(&path("/etc/a/b"), 0o750).await.unwrap();
    root.create_folder(&path("/etc/a/b"), 0o750).await.unwrap();
    let large = vec![7; 300_000];
    root.write(&path("/etc/a/b/large"), &large, 0o640).await.unwrap();
    assert_eq!(root.read(&path("/etc/a/b/large")).await.unwrap(), large);
    assert_eq!(
        shell(&mut root, "stat -c '%a %u %s' /etc/a/b /etc/a/b/large").await.lines().next_back().unwrap(),
        "640 0 300000"
    );

    root.write(&path("/etc/a/b/large"), b"small", 0o600).await.unwrap();
    let entry = root.metadata(&path("/etc/a/b/large")).await.unwrap().unwrap();
    assert_eq!((entry.kind, entry.size, entry.mode, entry.links), (EntryKind::File, 5, 0o600, 1));
    shell(&mut root, "ln -s large /etc/a/b/link; ln -s /nowhere /etc/a/dangling").await;

    let walked: Vec<_> = root
        .walk(&path("/etc/a"))
        .await
        .unwrap()
        .into_iter()
        .map(|entry| (entry.path.to_string(), entry.kind))
        .collect();
    let expected = [
        ("/etc/a/b", EntryKind::Folder),
        ("/etc/a/b/large", EntryKind::File),
        ("/etc/a/b/link", EntryKind::Link("large".into())),
        ("/etc/a/dangling", EntryKind::Link("/nowhere".into())),
    ];
    assert_eq!(walked, expected.map(|(path, kind)| (path.to_owned(), kind)));
    assert!(root.exists(&path("/etc/a/dangling")).await.unwrap());
    assert_eq!(root.remove(&path("/etc/a")).await.unwrap(), 5);
    assert_eq!(root.remove(&path("/etc/a")).await.unwrap(), 0);
    assert_eq!(root.remove(&path("/no/such/folder")).await.unwrap(), 0);
    assert!(!root.exists(&path("/etc/a")).await.unwrap());
    root.seal(SealOptions::default()).await.unwrap();
}

#[tokio::test]
async fn no_link_leads_out_of_the_image() {
    needs_root!();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "host").unwrap();
    let disk = disk_with(Table::Gpt, 16 << 20, |tree| {
        symlink(outside.path(), tree.join("out")).unwrap();
        symlink("../../../../../..", tree.join("up")).unwrap();
        symlink("/proc/self/root", tree.join("magic")).unwrap();
    });
    let mut root = disk.root(OpenOptions::default()).await;
    for link in ["/out/secret", &format!("/up{}/secret", outside.path().display()), "/magic/etc/passwd"] {
        let error = root.read(&path(link)).await.unwrap_err();
        assert!(matches!(error, RootError::NotFound { .. }), "{link}: {error}");
        let error = root.write(&path(link), b"image", 0o644).await.unwrap_err();
        assert!(matches!(error, RootError::NotFound { .. }), "{link}: {error}");
        assert_eq!(root.remove(&path(link)).await.unwrap(), 0);
    }
    // Upwards from the top is the top.
    assert_eq!(root.read(&path("/up/etc/hostname")).await.unwrap(), b"image\n");
    root.write(&path("/out"), b"replaced, not followed", 0o644).await.unwrap();
    assert_eq!(root.remove(&path("/up")).await.unwrap(), 1, "the link itself");
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"host");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    root.seal(SealOptions::default()).await.unwrap();
}

#[tokio::test]
async fn only_plain_files_are_read() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    shell(&mut root, "busybox mkfifo /etc/fifo; busybox mknod /etc/null c 1 3").await;
    for odd in ["/etc/fifo", "/etc/null", "/etc"] {
        let error = root.read(&path(odd)).await.unwrap_err();
        assert_eq!(error.to_string(), format!("`{odd}` of the image cannot be used: it is not a plain file"));
    }
    shell(&mut root, "dd if=/dev/zero of=/etc/sparse bs=1 count=1 seek=99999999").await;
    let error = root.read(&path("/etc/sparse")).await.unwrap_err();
    assert!(matches!(error, RootError::TooLarge { size: 100_000_000, .. }), "{error}");
    root.abandon().await.unwrap();
}

#[tokio::test]
async fn host_files_and_folders_are_shown_and_go_without_a_trace() {
    needs_root!();
    let host = tempfile::tempdir().unwrap();
    fs::create_dir(host.path().join("packages")).unwrap();
    fs::create_dir(host.path().join("cache")).unwrap();
    fs::write(host.path().join("packages/a.deb"), "package").unwrap();
    fs::write(host.path().join("key"), "key").unwrap();
    let open = |name: &str| File::open(host.path().join(name)).unwrap().into();

    let disk = disk();
    let mut before = disk.root(OpenOptions::default()).await;
    let tree = before.walk(&path("/")).await.unwrap();
    before.abandon().await.unwrap();

    let mut root = disk.root(OpenOptions::default()).await;
    root.bind(open("packages"), &path("/mnt/repository/packages")).await.unwrap();
    root.bind(open("key"), &path("/etc/keys/key.gpg")).await.unwrap();
    root.bind(open("key"), &path("/etc/hostname")).await.unwrap();
    root.bind_writable(open("cache"), &path("/run/cache")).await.unwrap();
    let script = "cat /mnt/repository/packages/a.deb /etc/keys/key.gpg /etc/hostname; echo cached > /run/cache/b;
        exec 2>/dev/null; echo x > /mnt/repository/packages/a.deb && echo written; echo x > /etc/keys/key.gpg && echo written; true";
    assert_eq!(shell(&mut root, script).await, "packagekeykey");
    assert_eq!(fs::read_to_string(host.path().join("cache/b")).unwrap(), "cached\n");
    let error = root.bind(open("key"), &path("/etc")).await.unwrap_err();
    assert_eq!(error.to_string(), "`/etc` of the image cannot be used: it is neither a file nor a link");
    root.seal(SealOptions::default()).await.unwrap();

    let mut after = disk.root(OpenOptions::default()).await;
    let names =
        |entries: Vec<bake_linux::RootEntry>| entries.into_iter().map(|e| (e.path, e.size, e.mode)).collect::<Vec<_>>();
    assert_eq!(names(after.walk(&path("/")).await.unwrap()), names(tree));
    after.abandon().await.unwrap();
}
