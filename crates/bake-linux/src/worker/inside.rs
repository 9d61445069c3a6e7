//! The mount namespace of the commands: its root *is* the image, and the host's tree does not exist in it.
//!
//! It is built by a helper process, which moves into a copy of the worker's namespace, mounts what commands expect on the image,
//! makes the image the root, and hands back a descriptor of the namespace. Every place to mount on is looked up inside the image
//! and mounted on by descriptor, so that no link in it leads out.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::LinkNameSpaceType;

use super::volume::{BARE_ROOT, Volume};
use super::{WORKSHOP, in_helper};
use crate::error::{Attempt, OpenError, RootError, SystemError};
use crate::kernel::{self, MountChange};
use crate::mounts::{self, Made, MountPoints};
use crate::open::OpenOptions;
use crate::root_path::RootPath;

/// Debian's way to say that maintainer scripts must not start services (101: forbidden by policy).
const NO_SERVICE_STARTS: &[u8] = b"#!/bin/sh\nexit 101\n";

/// The device nodes that commands have, and their numbers.
const NODES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const DEV_LINKS: [(&str, &str); 6] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("core", "/proc/kcore"),
];

/// What would let a command change the running kernel.
const READ_ONLY: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];

/// What tells more of the host than a command needs.
const MASKED: [&str; 8] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/kmsg",
    "/proc/acpi",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/fs/cgroup",
];

/// Builds the namespace; returns it with what had to be made in the image.
pub(super) fn build(device: u64, options: &OpenOptions) -> Result<(OwnedFd, Vec<Made>), OpenError> {
    let (made, mut descriptors) = in_helper(|| build_here(device, options)).map_err(into_open_error)?;
    let inside = descriptors.pop().ok_or(Errno::BADF).attempt("receive the commands' namespace")?;
    Ok((inside, made))
}

fn into_open_error(error: RootError) -> OpenError {
    match error {
        RootError::NotFound { path } => OpenError::Unusable { path, why: "it leads nowhere".to_owned() },
        RootError::Unusable { path, why } => OpenError::Unusable { path, why },
        RootError::Full { path } => OpenError::Unusable { path, why: "the filesystem is full".to_owned() },
        RootError::TooLarge { path, .. } => OpenError::Unusable { path, why: "it is too large".to_owned() },
        RootError::System(error) => OpenError::System(error),
        RootError::Lost(lost) => OpenError::Lost(lost),
    }
}

fn build_here(device: u64, options: &OpenOptions) -> Result<(Vec<Made>, Vec<OwnedFd>), RootError> {
    own_mount_namespace()?;
    // Opened anew: the worker's descriptor belongs to the worker's namespace.
    let root = rustix::fs::open(BARE_ROOT, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .attempt("open the root")?;
    let mut points = MountPoints::new(root.as_fd(), device);

    let none = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let tmpfs = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    mount_on(&mut points, "/proc", "proc", &[], none)?;
    mount_on(&mut points, "/sys", "sysfs", &[], none | MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    mount_on(&mut points, "/tmp", "tmpfs", &[("mode", Some("1777"))], tmpfs)?;
    let run = mount_on(&mut points, "/run", "tmpfs", &[("mode", Some("0755"))], tmpfs)?;
    make_folder(&run, "lock", 0o1777)?;
    let dev = mount_on(&mut points, "/dev", "tmpfs", &[("mode", Some("0755"))], tmpfs)?;
    fill_dev(&dev)?;

    if let Some(content) = &options.resolv_conf {
        show_resolv_conf(&mut points, &run, content)?;
    }
    if options.block_service_starts {
        let at = RootPath::new("/usr/sbin/policy-rc.d").expect("is absolute");
        show_file(&mut points, &at, NO_SERVICE_STARTS, 0o755)?;
    }
    let made = points.made;
    make_root(&root)?;
    restrict()?;
    let inside = rustix::fs::open("/proc/thread-self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .attempt("open the commands' namespace")?;
    Ok((made, vec![inside]))
}

fn own_mount_namespace() -> Result<(), SystemError> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).attempt("make the commands' mount namespace")?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .attempt("make the commands' mounts private")
}

/// Mounts a new filesystem on a folder of the image.
fn mount_on(
    points: &mut MountPoints<'_>,
    at: &str,
    filesystem: &str,
    options: &[(&str, Option<&str>)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, RootError> {
    let target = points.folder(&RootPath::new(at).expect("our own paths are absolute"))?;
    let mount = new_mount(filesystem, options, attributes)?;
    mounts::attach(&mount, &target).attempt(format!("mount `{at}`"))?;
    Ok(mount)
}

fn new_mount(
    filesystem: &str,
    options: &[(&str, Option<&str>)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, SystemError> {
    mounts::new_mount(filesystem, options, attributes)
        .map_err(|(errno, _)| errno)
        .attempt(format!("make a new {filesystem}"))
}

fn make_folder(parent: &OwnedFd, name: &str, mode: u32) -> Result<(), SystemError> {
    let attempt = || format!("make the folder `{name}`");
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)).attempt(attempt())?;
    // The umask took bits away.
    rustix::fs::chmodat(parent, name, Mode::from_raw_mode(mode), rustix::fs::AtFlags::empty()).attempt(attempt())
}

fn make_file(parent: impl AsFd, name: &str, content: &[u8], mode: u32) -> Result<(), SystemError> {
    let attempt = || format!("make the file `{name}`");
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode)).attempt(attempt())?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).attempt(attempt())?;
    std::io::Write::write_all(&mut std::fs::File::from(file), content).attempt(attempt())
}

/// Fills the commands' `/dev`. Nodes are our own: a `chmod` inside must not change the host's.
fn fill_dev(dev: &OwnedFd) -> Result<(), SystemError> {
    for (name, mode) in [("pts", 0o755), ("shm", 0o1777), ("mqueue", 0o755)] {
        make_folder(dev, name, mode)?;
    }
    for (name, target) in DEV_LINKS {
        rustix::fs::symlinkat(target, dev, name).attempt(format!("link `/dev/{name}`"))?;
    }
    let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let quiet = plain | MountAttrFlags::MOUNT_ATTR_NODEV;
    let terminals = [("newinstance", None), ("ptmxmode", Some("0666")), ("mode", Some("0620")), ("gid", Some("5"))];
    attach_below(dev, "pts", &new_mount("devpts", &terminals, plain)?)?;
    attach_below(
        dev,
        "shm",
        &new_mount(
            "tmpfs",
            &[("mode", Some("1777"))],
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
        )?,
    )?;
    match mounts::new_mount("mqueue", &[], quiet) {
        Ok(queues) => attach_below(dev, "mqueue", &queues)?,
        // A kernel without message queues has programs that do without.
        Err((Errno::NODEV, _)) => {}
        Err((errno, _)) => return Err(errno).attempt("make a new mqueue"),
    }
    make_nodes(dev)
}

/// Makes device nodes in a hidden tmpfs that allows them, and shows only these six in a `/dev` that does not.
fn make_nodes(dev: &OwnedFd) -> Result<(), SystemError> {
    let hidden = format!("{WORKSHOP}/nodes");
    rustix::fs::mkdir(&hidden, Mode::from_raw_mode(0o700)).attempt("make a folder for device nodes")?;
    let target = rustix::fs::open(&hidden, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).attempt("open it")?;
    let nodes = new_mount("tmpfs", &[("mode", Some("0755"))], MountAttrFlags::MOUNT_ATTR_NOSUID)?;
    // Attached, because older kernels do not copy a mount that is not.
    mounts::attach(&nodes, &target).attempt("mount a tmpfs for device nodes")?;
    for (name, major, minor) in NODES {
        let attempt = || format!("make `/dev/{name}`");
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(&nodes, name, FileType::CharacterDevice, mode, rustix::fs::makedev(major, minor))
            .attempt(attempt())?;
        rustix::fs::chmodat(&nodes, name, mode, rustix::fs::AtFlags::empty()).attempt(attempt())?;
        make_file(dev, name, &[], 0o666)?;
        let node = mounts::clone_mount(&nodes, Path::new(name)).attempt(attempt())?;
        attach_below(dev, name, &node)?;
    }
    Ok(())
}

/// Mounts on an entry of a filesystem that we made ourselves.
fn attach_below(folder: &OwnedFd, name: &str, mount: &OwnedFd) -> Result<(), SystemError> {
    let attempt = || format!("mount `{name}`");
    let target = rustix::fs::openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .attempt(attempt())?;
    mounts::attach(mount, &target).attempt(attempt())
}

/// Shows our name servers to the commands, and leaves the image's `resolv.conf` as it is.
///
/// Where that is a link to below `/run`, which is ours anyway, the file goes there: then a package can replace the link itself.
/// Else it is mounted over the file, or over the link: not over what the link points to.
fn show_resolv_conf(points: &mut MountPoints<'_>, run: &OwnedFd, content: &[u8]) -> Result<(), RootError> {
    let at = RootPath::new("/etc/resolv.conf").expect("is absolute");
    let etc = points.folder(&at.parent().expect("has one"))?;
    if let Ok(target) = rustix::fs::readlinkat(&etc, "resolv.conf", Vec::new())
        && let Some(below_run) = below_run(Path::new(OsStr::from_bytes(target.as_bytes())))
    {
        return Ok(write_below(run, &below_run, content)?);
    }
    show_file(points, &at, content, 0o644)
}

/// Returns where below `/run` a link in `/etc` points, if it does.
fn below_run(target: &Path) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for component in Path::new("/etc").join(target).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => drop(path.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let below = path.strip_prefix("run").ok()?;
    below.file_name().is_some().then(|| below.to_owned())
}

/// Writes a file into a fresh filesystem of ours, making the folders above it.
fn write_below(top: &OwnedFd, path: &Path, content: &[u8]) -> Result<(), SystemError> {
    let attempt = || format!("write `{}`", path.display());
    let mut folder = top.try_clone().attempt(attempt())?;
    for component in path.parent().into_iter().flat_map(Path::components) {
        match rustix::fs::mkdirat(&folder, component.as_os_str(), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno).attempt(attempt()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        folder = rustix::fs::openat(&folder, component.as_os_str(), flags, Mode::empty()).attempt(attempt())?;
    }
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(Errno::INVAL).attempt(attempt())?;
    make_file(&folder, name, content, 0o644)
}

/// Mounts a file of ours over a file or link of the image.
fn show_file(points: &mut MountPoints<'_>, at: &RootPath, content: &[u8], mode: u32) -> Result<(), RootError> {
    let target = points.file_or_link(at)?;
    let folder = rustix::fs::open(WORKSHOP, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .attempt(format!("open `{WORKSHOP}`"))?;
    let name = at.file_name().and_then(|name| name.to_str()).expect("our own names are text");
    make_file(&folder, name, content, mode)?;
    let mount = mounts::clone_mount(&folder, Path::new(name)).attempt(format!("copy the mount of `{name}`"))?;
    mounts::attach(&mount, &target).attempt(format!("mount a file on `{at}`"))?;
    Ok(())
}

/// Makes the image the root of this namespace; nothing else is left in it.
fn make_root(root: &OwnedFd) -> Result<(), SystemError> {
    rustix::process::fchdir(root).attempt("enter the root")?;
    rustix::process::pivot_root(".", ".").attempt("make the image the root")?;
    // Lazily, but only here: the host's tree stays where it was, in the other namespaces.
    rustix::mount::unmount(".", UnmountFlags::DETACH).attempt("leave the host's tree")?;
    rustix::process::chdir("/").attempt("enter `/`")
}

/// Takes from the commands what would reach the running kernel. By plain paths: there is nothing but the image to be led astray to.
fn restrict() -> Result<(), SystemError> {
    let here = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).attempt("open `/`")?;
    let open = |path: &str| rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    for path in READ_ONLY {
        let Ok(target) = open(path) else { continue };
        let attempt = || format!("make `{path}` read-only");
        let copy = mounts::clone_mount(&target, Path::new("")).attempt(attempt())?;
        kernel::change_mount(copy.as_fd(), MountChange { read_only: true, ..Default::default() }).attempt(attempt())?;
        mounts::attach(&copy, &target).attempt(attempt())?;
    }
    for path in MASKED {
        let Ok(target) = open(path) else { continue };
        let attempt = || format!("hide `{path}`");
        let stat = rustix::fs::fstat(&target).attempt(attempt())?;
        let mask = if FileType::from_raw_mode(stat.st_mode).is_dir() {
            new_mount("tmpfs", &[("mode", Some("0555"))], MountAttrFlags::MOUNT_ATTR_RDONLY)?
        } else {
            mounts::clone_mount(&here, Path::new("/dev/null")).attempt(attempt())?
        };
        mounts::attach(&mask, &target).attempt(attempt())?;
    }
    Ok(())
}

/// Shows a mount that the owner copied from the host's tree at a path inside.
pub(super) fn bind(volume: &mut Volume, descriptors: Vec<OwnedFd>, at: &RootPath) -> Result<(), RootError> {
    let source = descriptors.into_iter().next().ok_or(Errno::BADF).attempt("receive what to bind")?;
    let (inside, device) = (volume.inside.as_fd(), volume.filesystem.device);
    // What was made comes back even if mounting fails: it must be removed in either case.
    let ((made, result), _) = in_helper(|| -> Result<_, RootError> {
        enter(inside)?;
        let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).attempt("open the root")?;
        let mut points = MountPoints::new(root.as_fd(), device);
        let result = bind_here(&mut points, source.as_fd(), at);
        Ok(((points.made, result), Vec::new()))
    })?;
    volume.made.extend(made);
    result
}

fn bind_here(points: &mut MountPoints<'_>, source: BorrowedFd<'_>, at: &RootPath) -> Result<(), RootError> {
    let stat = rustix::fs::fstat(source).attempt("look at what to bind")?;
    let target =
        if FileType::from_raw_mode(stat.st_mode).is_dir() { points.folder(at)? } else { points.file_or_link(at)? };
    Ok(mounts::attach(source, &target).attempt(format!("show something at `{at}`"))?)
}

/// Moves this process into the commands' namespace; its root and working directory become the image's.
pub(super) fn enter(inside: BorrowedFd<'_>) -> Result<(), SystemError> {
    rustix::thread::move_into_link_name_space(inside, Some(LinkNameSpaceType::Mount)).attempt("enter the root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_below_run_is_seen_in_all_its_forms() {
        let below = |target: &str| below_run(Path::new(target)).map(|path| path.display().to_string());
        assert_eq!(below("../run/systemd/resolve/stub-resolv.conf").unwrap(), "systemd/resolve/stub-resolv.conf");
        assert_eq!(below("/run/resolv.conf").unwrap(), "resolv.conf");
        assert_eq!(below("../../../run/./a").unwrap(), "a");
        for elsewhere in ["resolv.conf.real", "/etc/run/a", "/run", "/run/..", "/run/../etc/a", "../running/a", ""] {
            assert_eq!(below(elsewhere), None, "{elsewhere}");
        }
    }
}
