//! The packages do what their descriptions say, in the tiny Debian, with its own `apt-get`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bake_testing::base::{DiskOptions, apt_root, disk};
use bake_testing::host::{Canary, Leftover, Leftovers};
use bake_testing::packages::{self, Deb, EvilTarget, Repository};
use bake_testing::{copy_disk, copy_tree, image, needs};

/// A tiny Debian in a temporary folder, and a simple sandbox by `unshare` to install into it.
struct Root {
    folder: tempfile::TempDir,
    repository: Repository,
}

impl Root {
    /// With the standard repository.
    fn new() -> Self {
        Self::of(|_| packages::standard())
    }

    /// With a repository of this one package.
    fn with(package: &Deb) -> Self {
        Self::of(|folder| Repository::create(&folder.join("repository"), std::slice::from_ref(package)))
    }

    fn of(repository: impl FnOnce(&Path) -> Repository) -> Self {
        let folder = tempfile::tempdir().unwrap();
        copy_tree(&apt_root(), &folder.path().join("root"));
        let repository = repository(folder.path());
        Self { folder, repository }
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.folder.path().join("root").join(inside.trim_start_matches('/'))
    }

    fn text(&self, inside: &str) -> String {
        fs::read_to_string(self.path(inside)).unwrap_or_else(|error| panic!("{inside}: {error}"))
    }

    /// A command that installs into the root, in namespaces of its own; afterwards it runs the shell lines `then`.
    fn install(&self, packages: &[&str], then: &str) -> Command {
        let script = format!(
            "set -e
            root=$1 repository=$2; shift 2
            mkdir -p $root/repository
            mount --bind $repository $root/repository
            mount -t proc proc $root/proc
            mount -t tmpfs tmpfs $root/dev
            mknod -m 666 $root/dev/null c 1 3
            mknod -m 666 $root/dev/zero c 1 5
            mknod -m 666 $root/dev/urandom c 1 9
            echo '{}' > $root/etc/apt/sources.list
            chroot $root apt-get -q update
            chroot $root apt-get -q -y install \"$@\" || exit $?
            {then}",
            Repository::source_at(Path::new("/repository"))
        );
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--pid",
            "--net",
            "--ipc",
            "--uts",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            &script,
            "sh",
        ]);
        command.arg(self.folder.path().join("root")).arg(self.repository.folder()).args(packages);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("DEBIAN_FRONTEND", "noninteractive");
        command.stdin(Stdio::null());
        command
    }

    fn installed(&self, packages: &[&str]) -> String {
        let output = self.install(packages, ":").output().unwrap();
        assert!(output.status.success(), "{}", told(&output));
        told(&output)
    }

    fn refused(&self, packages: &[&str]) -> String {
        let output = self.install(packages, ":").output().unwrap();
        assert!(!output.status.success(), "it should fail:\n{}", told(&output));
        told(&output)
    }
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn apt_installs_a_dependency_and_runs_its_postinst() {
    needs!(root(), fixtures());
    let root = Root::new();
    root.installed(&["hello-dep"]);
    assert_eq!(root.text("/usr/bin/hello-bake"), "#!/bin/sh\necho hello from 2.0\n");
    assert_eq!(root.text("/usr/share/hello-bake/grüße ☃"), "hallo\n");
    assert_eq!(root.text("/var/lib/hello-bake/postinst"), "configure \n");
    assert!(root.text("/var/lib/dpkg/status").contains("Package: hello-dep\nStatus: install ok installed\n"));
}

#[test]
fn apt_takes_the_version_that_is_asked_for_and_upgrades_it() {
    needs!(root(), fixtures());
    let root = Root::new();
    root.installed(&["hello-bake=1.0", "conf-bake=1.0"]);
    assert!(root.text("/usr/bin/hello-bake").contains("1.0"));
    fs::write(root.path("/etc/conf-bake.conf"), "edited\n").unwrap();
    let said = root.refused(&["conf-bake=2.0"]);
    assert!(said.contains("conffile"), "{said}");
    assert_eq!(root.text("/etc/conf-bake.conf"), "edited\n");
}

#[test]
fn a_package_of_glibc_programs_finds_the_libc_that_the_root_says_it_has() {
    needs!(root(), fixtures());
    let root = Root::with(&Deb::new("needs-libc", "1.0").depends("libc6 (>= 2.30), dpkg"));
    root.installed(&["needs-libc"]);
}

#[test]
fn a_failing_postinst_fails_apt_and_says_why() {
    needs!(root(), fixtures());
    let said = Root::new().refused(&["failing-bake"]);
    assert!(said.contains("failing-bake cannot be configured"), "{said}");
}

#[test]
fn a_service_is_started_unless_policy_forbids_it() {
    needs!(root(), fixtures());
    let root = Root::new();
    root.installed(&["service-bake"]);
    assert_eq!(root.text("/var/lib/service-bake/tried"), "invoke-rc.d\n");
    assert_eq!(root.text("/var/lib/service-bake/started"), "/etc/init.d/service-bake start\n");

    let root = Root::new();
    fs::write(root.path("/usr/sbin/policy-rc.d"), "#!/bin/sh\nexit 101\n").unwrap();
    fs::set_permissions(root.path("/usr/sbin/policy-rc.d"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    root.installed(&["service-bake"]);
    assert_eq!(root.text("/var/lib/service-bake/tried"), "invoke-rc.d\n");
    assert!(!root.path("/var/lib/service-bake/started").exists());
}

#[test]
fn the_daemon_outlives_apt_and_works_in_the_root() {
    needs!(root(), fixtures());
    let marker = format!("daemon-marker-{}", std::process::id());
    let root = Root::with(&packages::daemon(&marker));
    let mut install = root
        .install(&["daemon-bake"], "echo installed > $root/installed; sleep 60")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Only the daemon itself, not the shells that start it, writes its id.
    let leftovers = Leftovers::of(root.folder.path());
    let found = leftovers.wait_for(Duration::from_secs(20), |_| root.path("/installed").exists());
    let daemon = found.iter().find(|one| matches!(one, Leftover::Process { command, .. } if command.contains(&marker)));
    assert!(daemon.is_some(), "{found:?}");
    install.kill().unwrap();
    install.wait().unwrap();
    leftovers.or_argument(&marker).wait_gone(Duration::from_secs(5));
}

#[test]
fn slow_takes_its_time_and_leaves_its_files() {
    needs!(root(), fixtures());
    let root = Root::with(&packages::slow(Duration::from_millis(300)));
    let start = std::time::Instant::now();
    root.installed(&["slow-bake"]);
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(fs::read_dir(root.path("/var/lib/slow-bake")).unwrap().count(), 3);
}

#[test]
fn curious_tells_what_it_sees() {
    needs!(root(), fixtures());
    let root = Root::new();
    root.installed(&["curious-bake"]);
    let seen = |sight: &str| root.text(&format!("/var/lib/curious/{sight}"));
    assert_eq!(seen("resolv.conf"), "nameserver 192.0.2.53\n");
    assert!(seen("env").contains("DEBIAN_FRONTEND=noninteractive\n"));
    assert!(seen("mounts").contains(" /proc "));
    assert!(seen("cmdlines").contains("apt-get -q -y install curious-bake"));
    assert!(seen("dev").contains("null"));
    assert!(seen("network").contains("lo:"));
    assert!(seen("capabilities").contains("CapEff:"));
    for sight in ["hostname", "ps", "namespaces", "stdin", "umask", "limits"] {
        assert!(!seen(sight).contains("failed"), "{sight}: {}", seen(sight));
    }
}

#[test]
fn evil_gets_out_of_a_simple_chroot_and_tells_and_the_host_is_as_it_was() {
    needs!(root(), fixtures());
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "the cat is called Schnurr").unwrap();
    let canary = Canary::watching([secret.as_path()]);
    let root = Root::with(&packages::evil(&EvilTarget::new(secret, "Schnurr")));
    root.installed(&["evil-bake"]);
    canary.assert_unchanged();
    let report = root.text("/var/lib/evil/report");
    let log = root.text("/var/lib/evil/log");
    // In a chroot, what is outside is within reach; in namespaces of its own, hostname and processes are not.
    for line in
        ["breached secret-by-init", "breached secret-by-own-namespace", "held secret-by-path", "held hostname-shared"]
    {
        assert!(report.lines().any(|one| one == line), "no `{line}`:\n{report}\n{log}");
    }
    assert!(report.contains("held processes-shared"), "{report}");
    assert_eq!(report.lines().count(), 16, "{report}");
}

#[test]
fn killer_kills_its_own_apt_and_nobody_else() {
    needs!(root(), fixtures());
    let root = Root::with(&packages::killer());
    let mut bystander = Command::new("sleep").arg("60").spawn().unwrap();
    let output = root.install(&["killer-bake"], ":").output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 9), "{}", told(&output));
    assert!(bystander.try_wait().unwrap().is_none(), "a process of the host was killed");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn huge_fills_the_disk_and_says_so() {
    needs!(loops(), fixtures());
    let root = Root::with(&packages::huge());
    let file = root.folder.path().join("disk");
    copy_disk(&disk(&DiskOptions::bare().size_mib(64)), &file);
    let mut install = root.install(&["huge-bake"], ":");
    // The root is the disk instead of the folder: mounted around the install, and gone with its namespace.
    let mut on_disk = Command::new("unshare");
    on_disk.args(["--mount", "sh", "-c", "mount -n -o loop \"$1\" \"$2\"; shift 2; exec \"$@\"", "sh"]);
    on_disk.arg(&file).arg(root.path("/")).arg(install.get_program()).args(install.get_args());
    install = on_disk;
    let output = install.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null()).output().unwrap();
    assert!(told(&output).contains("No space left on device"), "{}", told(&output));
    assert_eq!(output.status.code(), Some(100), "{}", told(&output));
    Leftovers::of(root.folder.path()).wait_gone(Duration::from_secs(5));
    image::inspect(&file, |image| assert!(!image.packages()["huge-bake"].is_installed()));
}
