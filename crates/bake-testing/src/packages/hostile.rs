//! Packages that fail, linger, fill disks, or attack.

use std::path::PathBuf;
use std::time::Duration;

use super::Deb;

/// Describes `daemon-bake`: installing it starts a daemon that no `policy-rc.d` stops, forked twice and in a session of
/// its own, with the root as its working directory. Its command line has the marker.
///
/// Give each test a marker of its own, so that [`Leftovers`](crate::host::Leftovers) tells its daemon from others'.
pub fn daemon(marker: &str) -> Deb {
    let daemon = "\
#!/bin/sh
cd /var/lib/daemon-bake
exec 9>> open-file
echo $$ > pid
while :; do sleep 1; done
";
    Deb::new("daemon-bake", "1.0")
        .file("/usr/lib/daemon-bake/daemon", daemon, 0o755)
        .file("/var/lib/daemon-bake/open-file", "", 0o644)
        .postinst(&format!("( setsid /usr/lib/daemon-bake/daemon {marker} </dev/null >/dev/null 2>&1 & )"))
}

/// Describes `failing-bake`: its postinst says why, and fails.
pub fn failing() -> Deb {
    Deb::new("failing-bake", "1.0").postinst("echo failing-bake cannot be configured >&2; exit 1")
}

/// Describes `slow-bake`: its postinst takes this long, writing a file of `/var/lib/slow-bake` every tenth of a second.
pub fn slow(time: Duration) -> Deb {
    let tenths = time.as_millis().div_ceil(100);
    let postinst = format!(
        "mkdir -p /var/lib/slow-bake
tenth=0
while [ $tenth -lt {tenths} ]; do
    tenth=$((tenth + 1))
    head -c 65536 /dev/urandom > /var/lib/slow-bake/$tenth
    sleep 0.1
done"
    );
    Deb::new("slow-bake", "1.0").postinst(&postinst)
}

/// Describes `huge-bake`: its postinst writes until the disk is full, and then fails as any program does.
pub fn huge() -> Deb {
    // It ends at 4 GiB, so that a test gone wrong does not take the host's disk.
    let postinst = "\
mkdir -p /var/lib/huge-bake
dd if=/dev/zero of=/var/lib/huge-bake/data bs=1M count=4096
echo the disk was never full >&2";
    Deb::new("huge-bake", "1.0").postinst(postinst)
}

/// What `evil-bake` is after, as the host sees it.
#[derive(Debug, Clone)]
pub struct EvilTarget {
    /// A file of the host that it tries to read.
    pub secret_file: PathBuf,
    /// What the file says.
    pub secret: String,
    /// The number of a disk of the host, `major:minor`, that it tries to read.
    pub disk: String,
}

impl EvilTarget {
    /// Aims at this file, and at the disk of the host's root.
    #[track_caller]
    pub fn new(secret_file: PathBuf, secret: &str) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("Linux has it");
        let root =
            mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| fields.get(4) == Some(&"/"));
        let disk = root.expect("there is a root").get(2).expect("a mount has a device").to_string();
        Self { secret_file, secret: secret.into(), disk }
    }
}

/// Describes `evil-bake`: its postinst tries to get out, and always succeeds as a postinst.
///
/// `/var/lib/evil/report` has a line for each attempt, `held NAME` or `breached NAME`. None of them hurts the host, even
/// where it succeeds: what would hurt is only tried if the process is in namespaces other than the caller's.
pub fn evil(target: &EvilTarget) -> Deb {
    let EvilTarget { secret_file, secret, disk } = target;
    let (secret_file, disk) = (secret_file.display(), disk.replace(':', " "));
    let (other_hostname, other_processes) = (other_namespace("uts"), other_namespace("pid"));
    let postinst = format!(
        r#"
mkdir -p /var/lib/evil /var/lib/evil/mount
try() {{
    name=$1; shift
    if ( "$@" ) >> /var/lib/evil/log 2>&1; then echo "breached $name"; else echo "held $name"; fi >> /var/lib/evil/report
}}
# Writes what is there already, so nothing changes where it is allowed.
rewrite() {{ value=$(cat "$1") && printf '%s\n' "$value" > "$1"; }}
sysrq_help() {{ echo h > /proc/sysrq-trigger; }}
read_disk() {{ rm -f "$1/evil-disk"; mknod "$1/evil-disk" b {disk} && dd if="$1/evil-disk" of=/dev/null bs=512 count=1; }}
finds_secret() {{ grep -q -F '{secret}' "$1"; }}
shares_hostname() {{ {other_hostname} && return 1; return 0; }}
shares_processes() {{ {other_processes} && return 1; return 0; }}

try sysrq sysrq_help
try core-pattern rewrite /proc/sys/kernel/core_pattern
try panic-timeout rewrite /proc/sys/kernel/panic
try remount-proc-sys mount -o remount,bind,rw /proc/sys
try remount-sys mount -o remount,rw /sys
try mount-tmpfs mount -t tmpfs none /var/lib/evil/mount
try read-disk-in-root read_disk /
try read-disk-in-dev read_disk /dev
try read-disk-in-tmp read_disk /tmp
try secret-by-path finds_secret {secret_file}
try secret-by-init finds_secret /proc/1/root{secret_file}
try secret-by-init-cwd finds_secret /proc/1/cwd/..{secret_file}
try secret-by-own-namespace nsenter --mount=/proc/self/ns/mnt grep -q -F '{secret}' {secret_file}
try secret-by-init-namespace nsenter -t 1 -m grep -q -F '{secret}' {secret_file}
try hostname-shared shares_hostname
try processes-shared shares_processes
if {other_hostname}; then hostname evil-bake || true; fi
umount /var/lib/evil/mount 2>/dev/null || true
rm -f /evil-disk /dev/evil-disk /tmp/evil-disk
"#
    );
    Deb::new("evil-bake", "1.0").postinst(&postinst)
}

/// Describes `killer-bake`: its postinst kills every process that it may, package manager included.
///
/// It does so only in a PID namespace other than the caller's; else it fails and says so.
pub fn killer() -> Deb {
    let guard = other_namespace("pid");
    let postinst = format!("if ! {guard}; then echo processes of the host are in reach >&2; exit 1; fi\nkill -9 -1");
    Deb::new("killer-bake", "1.0").postinst(&postinst)
}

/// A shell command that succeeds if the process is known to be in another namespace than the one that makes the package.
fn other_namespace(kind: &str) -> String {
    let link = std::fs::read_link(format!("/proc/self/ns/{kind}")).expect("Linux has namespaces");
    let ours = link.display();
    format!("{{ theirs=$(readlink /proc/self/ns/{kind}) && [ -n \"$theirs\" ] && [ \"$theirs\" != '{ours}' ]; }}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_guard_of_destructive_packages_refuses_here_and_passes_elsewhere() {
        let guard = other_namespace("uts");
        assert!(!Command::new("sh").args(["-c", &guard]).status().unwrap().success());
        crate::needs!(root());
        assert!(Command::new("unshare").args(["--uts", "sh", "-c", &guard]).status().unwrap().success());
    }
}
