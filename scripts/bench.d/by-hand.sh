#!/bin/bash
# Bakes packages into a copy of a disk the way one writes it by hand: what `scripts/bench` measures `bake` against.
#
#   by-hand.sh BASE RESULT REPOSITORY PACKAGE…
#
# It does its work decently (own mount namespace, no services started, nothing of ours left in the image, cleaning up when
# it fails), and no more than that: it neither checks the filesystem nor waits for the disk at the end.

set -euo pipefail

# In a mount namespace of its own, nobody else sees the mounts, and all of them go with us.
if [[ ${IN_OWN_NAMESPACE:-} != yes ]]; then
    exec env IN_OWN_NAMESPACE=yes unshare --mount "$0" "$@"
fi

base=$1 result=$2 repository=$3
shift 3

root=$(mktemp -d)
loop=
clean_up() {
    if mountpoint --quiet "$root"; then umount --recursive "$root"; fi
    if [[ -n $loop ]]; then losetup --detach "$loop"; fi
    rmdir "$root"
}
trap clean_up EXIT

cp --sparse=always --reflink=auto "$base" "$result"

# By offset rather than by partition device, since not every kernel reads partition tables.
start=$(partx --noheadings --output START --nr 1 "$result")
loop=$(losetup --find --show --offset $((start * 512)) "$result")
mount "$loop" "$root"

mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --bind /dev "$root/dev"
mount -t devpts devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/run"
mkdir "$root/run/repository"
mount --bind "$repository" "$root/run/repository"

printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
echo 'deb [trusted=yes] file:/run/repository ./' >"$root/etc/apt/sources.list.d/by-hand.list"

in_root() {
    env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        chroot "$root" "$@"
}
in_root apt-get -q update
in_root apt-get -q -y --no-install-recommends install "$@"
in_root dpkg-query -W "$@"
in_root apt-get clean

rm "$root/usr/sbin/policy-rc.d" "$root/etc/apt/sources.list.d/by-hand.list"
umount --recursive "$root"
losetup --detach "$loop"
loop=
