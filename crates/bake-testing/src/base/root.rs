use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::fixture::cached;
use crate::run::{or_panic, run};

/// Programs of the host, copied as they are. All other tools are busybox.
const PROGRAMS: [&str; 19] = [
    "/usr/bin/apt-cache",
    "/usr/bin/apt-config",
    "/usr/bin/apt-get",
    "/usr/bin/apt-mark",
    "/usr/bin/busybox",
    "/usr/bin/dash",
    "/usr/bin/dpkg",
    "/usr/bin/dpkg-deb",
    "/usr/bin/dpkg-divert",
    "/usr/bin/dpkg-query",
    "/usr/bin/dpkg-split",
    "/usr/bin/dpkg-trigger",
    "/usr/bin/gpgv",
    "/usr/bin/tar",
    "/usr/bin/update-alternatives",
    "/usr/lib/apt/methods/copy",
    "/usr/lib/apt/methods/file",
    "/usr/sbin/invoke-rc.d",
    "/usr/sbin/start-stop-daemon",
];

/// What apt runs to fetch from where, besides the two above.
const METHODS: [&str; 3] = ["gpgv", "http", "store"];

const FOLDERS: [&str; 25] = [
    "dev",
    "etc/apt/apt.conf.d",
    "etc/apt/preferences.d",
    "etc/apt/sources.list.d",
    "etc/apt/trusted.gpg.d",
    "etc/dpkg/dpkg.cfg.d",
    "etc/init.d",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr/bin",
    "usr/lib",
    "usr/lib64",
    "usr/sbin",
    "usr/share",
    "var/cache/apt/archives/partial",
    "var/lib/apt/lists/partial",
    "var/lib/dpkg/info",
    "var/lib/dpkg/triggers",
    "var/lib/dpkg/updates",
    "var/log/apt",
    "var/spool",
    "var/tmp",
];

/// Names a server of a network that is for documentation only, so whoever asks it gets no answer.
const RESOLV_CONF: &str = "nameserver 192.0.2.53\n";

const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/sh
man:x:6:12:man:/var/cache/man:/usr/sbin/nologin
_apt:x:42:65534::/nonexistent:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
";

const GROUP: &str = "root:x:0:\nadm:x:4:\ntty:x:5:\nman:x:12:\nnogroup:x:65534:\n";

const OS_RELEASE: &str = "\
PRETTY_NAME=\"Tiny Debian of the tests of bake\"
NAME=\"Debian GNU/Linux\"
VERSION_ID=\"12\"
VERSION_CODENAME=bookworm
ID=debian
";

/// Packages that the tiny Debian says it has, so that other packages may depend on them.
const INSTALLED: [&str; 7] = ["apt", "base-files", "dash", "dpkg", "init-system-helpers", "libc6", "tar"];

/// Returns the folder of a tiny Debian, shared by all tests: copy it before changing it.
///
/// It is put together from the host's own `apt-get`, `dpkg` and `tar`, with busybox for the rest: 24 MB, in which
/// real packages are installed, with dependencies, scripts and conffiles. Its owners are right if root made it.
#[track_caller]
pub fn apt_root() -> PathBuf {
    or_panic(cached("apt-root", &[include_str!("root.rs")], make))
}

fn make(root: &Path) -> Result<()> {
    make_folders(root)?;
    copy_programs(root)?;
    link_busybox(root)?;
    write_files(root)?;
    write_package_database(root)
}

fn make_folders(root: &Path) -> Result<()> {
    for folder in FOLDERS {
        fs::create_dir_all(root.join(folder)).with_context(|| format!("cannot make `{folder}`"))?;
    }
    for folder in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{folder}"), root.join(folder)).with_context(|| format!("cannot link `{folder}`"))?;
    }
    run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(root))?;
    for folder in ["tmp", "var/tmp"] {
        fs::set_permissions(root.join(folder), fs::Permissions::from_mode(0o1777)).context("cannot set a mode")?;
    }
    Ok(())
}

fn copy_programs(root: &Path) -> Result<()> {
    let methods = METHODS.iter().map(|name| format!("/usr/lib/apt/methods/{name}"));
    let programs: Vec<String> = PROGRAMS.iter().copied().map(str::to_owned).chain(methods).collect();
    let mut libraries = BTreeSet::new();
    for program in &programs {
        copy(Path::new(program), root)?;
        libraries.extend(libraries_of(program)?);
    }
    for library in libraries {
        copy(&library, root)?;
    }
    run(Command::new("cp").args(["-a", "/usr/share/dpkg"]).arg(root.join("usr/share"))).map(drop)
}

/// Copies a file of the host to the same place below the root, where all programs and libraries are in `/usr`.
fn copy(file: &Path, root: &Path) -> Result<()> {
    let inside = file.strip_prefix("/usr").or_else(|_| file.strip_prefix("/")).context("not an absolute path")?;
    let to = root.join("usr").join(inside);
    fs::create_dir_all(to.parent().expect("it is below the root")).context("cannot make a folder")?;
    fs::copy(file, &to).with_context(|| format!("cannot copy `{}`", file.display()))?;
    Ok(())
}

fn libraries_of(program: &str) -> Result<Vec<PathBuf>> {
    // It fails for scripts and static programs, which need none.
    let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output().context("cannot run `ldd`")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text
        .split_whitespace()
        .filter(|word| word.starts_with('/') && word.contains(".so"))
        .map(PathBuf::from)
        .collect())
}

fn link_busybox(root: &Path) -> Result<()> {
    let bin = root.join("usr/bin");
    symlink("dash", bin.join("sh")).context("cannot link `sh`")?;
    for applet in run(Command::new("/usr/bin/busybox").arg("--list"))?.lines() {
        let taken = bin.join(applet).exists() || root.join("usr/sbin").join(applet).exists();
        if !taken {
            symlink("busybox", bin.join(applet)).with_context(|| format!("cannot link `{applet}`"))?;
        }
    }
    // With an init there, a root without `policy-rc.d` starts services, as Debian's does.
    symlink("../bin/busybox", root.join("usr/sbin/init")).context("cannot link `init`")
}

fn write_files(root: &Path) -> Result<()> {
    let files = [
        ("etc/debian_version", "12.0\n", 0o644),
        ("etc/fstab", "LABEL=root / auto defaults 0 1\n", 0o644),
        ("etc/group", GROUP, 0o644),
        ("etc/hostname", "tiny\n", 0o644),
        ("etc/hosts", "127.0.0.1 localhost\n", 0o644),
        ("etc/passwd", PASSWD, 0o644),
        ("etc/resolv.conf", RESOLV_CONF, 0o644),
        ("etc/shadow", "root:*:19000:0:99999:7:::\n", 0o640),
        ("usr/lib/os-release", OS_RELEASE, 0o644),
        // dpkg calls it after libraries were installed; here nothing needs its cache.
        ("usr/sbin/ldconfig", "#!/bin/sh\n", 0o755),
        // As on a running machine, so that services do start if nobody forbids it.
        ("usr/sbin/runlevel", "#!/bin/sh\necho N 2\n", 0o755),
    ];
    for (path, content, mode) in files {
        let path = root.join(path);
        fs::write(&path, content).with_context(|| format!("cannot write `{}`", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).context("cannot set a mode")?;
    }
    symlink("../usr/lib/os-release", root.join("etc/os-release")).context("cannot link `os-release`")
}

fn write_package_database(root: &Path) -> Result<()> {
    let database = root.join("var/lib/dpkg");
    let format = "${Package} ${Version} ${Architecture}\n";
    let versions = run(Command::new("dpkg-query").args(["-W", "-f", format]).args(INSTALLED))?;
    let mut status = String::new();
    for line in versions.lines() {
        let mut words = line.split(' ');
        let (name, version, architecture) = (words.next(), words.next(), words.next());
        let (name, version, architecture) =
            (name.unwrap_or_default(), version.unwrap_or_default(), architecture.unwrap_or_default());
        write!(
            status,
            "Package: {name}\nStatus: install ok installed\nMaintainer: bake tests <nobody@example.com>\n\
             Architecture: {architecture}\nVersion: {version}\nDescription: part of the tiny Debian\n\n"
        )
        .expect("a string takes all that is written");
        fs::write(database.join(format!("info/{name}.list")), "/.\n").context("cannot write a file list")?;
    }
    let architecture = run(Command::new("dpkg").arg("--print-architecture"))?;
    for (name, content) in
        [("status", status.as_str()), ("available", ""), ("arch", &architecture), ("info/format", "1\n")]
    {
        fs::write(database.join(name), content).with_context(|| format!("cannot write `{name}`"))?;
    }
    Ok(())
}
