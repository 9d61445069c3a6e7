//! `resolv.conf` and `policy-rc.d`: what commands see, and what the image keeps.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use bake_linux::{OpenOptions, RootEntry, SealOptions};

use crate::support::{Disk, Table, disk_with, needs_root, path, shell};

const OURS: &str = "nameserver 203.0.113.53\n";

fn options() -> OpenOptions {
    OpenOptions { resolv_conf: Some(OURS.into()), block_service_starts: true, ..Default::default() }
}

async fn tree(disk: &Disk) -> Vec<RootEntry> {
    let mut root = disk.root(OpenOptions::default()).await;
    let tree = root.walk(&path("/")).await.unwrap();
    root.abandon().await.unwrap();
    tree
}

/// Makes an image, checks what commands see, and that the image is the same afterwards; but for the times of folders where something
/// had to be made for a while.
async fn check(name: &str, made_for_a_while: bool, change: impl FnOnce(&Path)) {
    let disk = disk_with(Table::Gpt, 16 << 20, |tree| {
        fs::write(tree.join("usr/sbin/policy-rc.d"), "#!/bin/sh\nexit 0\n").unwrap();
        change(tree);
    });
    let before = tree(&disk).await;
    let mut root = disk.root(options()).await;
    assert_eq!(shell(&mut root, "cat /etc/resolv.conf").await, OURS, "{name}");
    root.seal(SealOptions::default()).await.unwrap();
    let mut after = tree(&disk).await;
    if made_for_a_while {
        for (entry, old) in after.iter_mut().zip(&before) {
            if entry.path == path("/etc") {
                entry.modified = old.modified;
            }
        }
    }
    assert_eq!(after, before, "{name}");
}

fn link_to(target: &str) -> impl FnOnce(&Path) {
    move |tree| {
        fs::remove_file(tree.join("etc/resolv.conf")).unwrap();
        symlink(target, tree.join("etc/resolv.conf")).unwrap();
    }
}

#[tokio::test]
async fn resolv_conf_is_shown_whatever_the_image_has() {
    needs_root!();
    check("plain", false, |_| {}).await;
    check("missing", true, |tree| fs::remove_file(tree.join("etc/resolv.conf")).unwrap()).await;
    for target in [
        "../run/systemd/resolve/stub-resolv.conf",
        "/run/resolvconf/resolv.conf",
        "/var/run/resolv.conf",
        "/nowhere/at/all",
        "nowhere",
        "/etc/hostname",
        "resolv.conf",
        "../../../../../../etc/resolv.conf",
        "/proc/self/environ",
    ] {
        check(target, false, link_to(target)).await;
    }
}

#[tokio::test]
async fn a_link_to_run_can_be_replaced_by_a_package() {
    needs_root!();
    let disk = disk_with(Table::Gpt, 16 << 20, link_to("../run/systemd/resolve/stub-resolv.conf"));
    let mut root = disk.root(options()).await;
    shell(&mut root, "ln -sf /run/other /etc/new && busybox mv /etc/new /etc/resolv.conf").await;
    root.seal(SealOptions::default()).await.unwrap();
    let mut root = disk.root(OpenOptions::default()).await;
    assert_eq!(shell(&mut root, "readlink /etc/resolv.conf").await, "/run/other\n");
    root.abandon().await.unwrap();
}

#[tokio::test]
async fn service_starts_are_forbidden_inside_only() {
    needs_root!();
    const NAME: &str = "usr/sbin/policy-rc.d";
    type Change = Box<dyn FnOnce(&Path)>;
    let cases: [(&str, Change); 4] = [
        ("missing", Box::new(|_| {})),
        ("without its folder", Box::new(|tree| fs::remove_dir_all(tree.join("usr")).unwrap())),
        (
            "present",
            Box::new(|tree| {
                fs::write(tree.join(NAME), "#!/bin/sh\nexit 0\n").unwrap();
                fs::set_permissions(tree.join(NAME), fs::Permissions::from_mode(0o700)).unwrap();
            }),
        ),
        ("a dangling link", Box::new(|tree| symlink("/nowhere", tree.join(NAME)).unwrap())),
    ];
    for (name, change) in cases {
        let disk = disk_with(Table::Gpt, 16 << 20, change);
        let before = tree(&disk).await;
        let mut root = disk.root(options()).await;
        assert_eq!(shell(&mut root, "/usr/sbin/policy-rc.d; echo $?").await, "101\n", "{name}");
        root.seal(SealOptions::default()).await.unwrap();
        let shape =
            |tree: Vec<RootEntry>| tree.into_iter().map(|e| (e.path, e.kind, e.mode, e.size)).collect::<Vec<_>>();
        assert_eq!(shape(tree(&disk).await), shape(before), "{name}");
    }
}
