//! What a command sees, may do, and how it ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use bake_linux::{
    Capabilities, Command, Network, OpenOptions, RootError, RunError, SandboxOptions, SealOptions, Stdin, Sync,
};

use crate::support::{Table, disk, disk_with, loop_number, needs_root, path, shell};

fn sh(script: &str) -> Command {
    Command::new("sh").args(["-c", script])
}

#[tokio::test]
async fn a_command_sees_the_image_and_nothing_else() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    let mounts = shell(&mut root, "cat /proc/self/mountinfo").await;
    assert!(!mounts.contains("/run/bake"), "{mounts}");
    let points: Vec<_> = mounts.lines().map(|line| line.split(' ').nth(4).unwrap()).collect();
    let expected = ["/", "/dev", "/dev/mqueue", "/dev/null", "/dev/pts", "/dev/shm", "/proc", "/run", "/sys", "/tmp"];
    for point in expected {
        assert!(points.contains(&point), "{point} is missing in {points:?}");
    }
    assert_eq!(
        shell(&mut root, "env | grep -v -e ^PWD= -e ^SHLVL= | sort").await,
        "DEBIAN_FRONTEND=noninteractive\nHOME=/root\nLC_ALL=C.UTF-8\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nSYSTEMD_OFFLINE=1\n"
    );
    // Five processes at most: the first one, the worker, the shell, and its own.
    assert!(shell(&mut root, "ls -d /proc/[0-9]* | wc -l").await.trim().parse::<u32>().unwrap() <= 5);
    assert_eq!(shell(&mut root, "ulimit -n; ulimit -c; umask").await, "1024\n0\n0022\n");
    assert_eq!(
        shell(&mut root, "stat -c '%a %n' /tmp /run/lock /dev/shm").await,
        "1777 /tmp\n1777 /run/lock\n1777 /dev/shm\n"
    );
    // 0, 1, 2, and what `ls` itself opens.
    assert_eq!(shell(&mut root, "ls /proc/self/fd").await, "0\n1\n2\n3\n");
    root.abandon().await.unwrap();
}

#[tokio::test]
async fn the_host_is_out_of_reach() {
    needs_root!();
    let disk = disk();
    let before = fs::metadata("/dev/null").unwrap().permissions().mode();
    let mut root = disk.root(OpenOptions::default()).await;
    shell(&mut root, "chmod 600 /dev/null").await;
    assert_eq!(fs::metadata("/dev/null").unwrap().permissions().mode(), before, "the host's node was changed");
    // Each line must fail; what does not is printed.
    let attempts = "
        mount -t tmpfs none /etc && echo mount
        echo 1 > /proc/sys/kernel/panic && echo sysctl
        touch /sys/x && echo sysfs
        ls /proc/1/root/ && echo root-of-1
        ls /proc/2/root/etc && echo root-of-2
        for folder in / /dev /run /tmp /dev/shm; do
            mknod $folder/disk b 7 0 && head -c 1 $folder/disk && echo device in $folder
            rm -f $folder/disk
        done
        true";
    let mut output = Vec::new();
    let script = attempts.replace("mknod", "busybox mknod");
    root.run(sh(&format!("exec 2>/dev/null; {script}")), &mut output).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output), "");
    // Without an effect: it has no handler for it, and none from outside may be forced on it in here.
    shell(&mut root, "kill -STOP 1; kill -KILL 1; true").await;
    assert_eq!(
        shell(
            &mut root,
            "cat /proc/kcore /proc/keys /proc/timer_list 2>/dev/null | head -c 9 | wc -c; ls /sys/firmware | wc -l"
        )
        .await,
        "0\n0\n"
    );
    root.abandon().await.unwrap();
}

/// What a program inherits it gets beside the bounding set: a service with ambient capabilities must not hand them on.
#[tokio::test]
async fn nothing_is_inherited_from_whoever_starts_the_sandbox() {
    needs_root!();
    caps::raise(None, caps::CapSet::Inheritable, caps::Capability::CAP_SYS_ADMIN).unwrap();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    let status =
        shell(&mut root, "grep -e CapInh -e CapAmb /proc/self/status; mount -t tmpfs x /mnt 2>&1 || echo refused")
            .await;
    assert!(status.starts_with("CapInh:\t0000000000000000\nCapAmb:\t0000000000000000\n"), "{status}");
    assert!(status.ends_with("refused\n"), "{status}");
    root.abandon().await.unwrap();
}

#[tokio::test]
async fn capabilities_are_what_was_asked_for() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    let bounding = sh("grep -E 'Cap(Bnd|Eff)' /proc/self/status | tr -d '\\t'");
    for (capabilities, mask) in [
        // CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT MKNOD AUDIT_WRITE SETFCAP
        (Capabilities::Package, "00000000a80405fb"),
        (Capabilities::Only(vec![caps::Capability::CAP_CHOWN, caps::Capability::CAP_MKNOD]), "0000000008000001"),
    ] {
        let mut output = Vec::new();
        root.run(bounding.clone().capabilities(capabilities), &mut output).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output), format!("CapEff:{mask}\nCapBnd:{mask}\n"));
    }
    root.abandon().await.unwrap();
}

#[tokio::test]
async fn outcomes_and_failures_are_told_apart() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    let mut output = Vec::new();
    let outcome = root.run(sh("exit 3"), &mut output).await.unwrap();
    assert_eq!((outcome.success(), outcome.status.code()), (false, Some(3)));
    let outcome = root.run(sh("kill -9 $$"), &mut output).await.unwrap();
    assert_eq!((outcome.success(), outcome.status.signal()), (false, Some(9)));

    let error = root.run(Command::new("no-such").arg("a b"), &mut output).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot run `no-such 'a b'` in the root");
    assert!(matches!(error, RunError::Start { source, .. } if source.0 == libc::ENOENT));
    let error = root.run(Command::new("/etc/hostname"), &mut output).await.unwrap_err();
    assert!(matches!(error, RunError::Start { source, .. } if source.0 == libc::EACCES), "{error:?}");
    let error = root.run(sh("true").working_directory(path("/no-such")), &mut output).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot enter `/no-such`");
    root.abandon().await.unwrap();
}

#[tokio::test]
async fn input_arguments_and_environment_arrive_whole() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    let long = "x".repeat(100_000);
    let command = sh("cat; echo \"$1\" | wc -c; echo $A; pwd")
        .args(["name", &long])
        .env("A", "1 2")
        .working_directory(path("/etc"))
        .stdin(Stdin::Bytes(b"from outside\n".to_vec()));
    let mut output = Vec::new();
    root.run(command, &mut output).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output), "from outside\n100001\n1 2\n/etc\n");
    root.abandon().await.unwrap();
}

#[tokio::test]
async fn a_flood_of_output_arrives_whole() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    let mut output = Vec::new();
    root.run(sh("yes | head -c 50000000"), &mut output).await.unwrap();
    assert_eq!(output.len(), 50_000_000);
    // One that never ends is not waited for.
    let started = Instant::now();
    let outcome = root.run(sh("setsid yes & sleep 0.1"), &mut output).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(outcome.success());
    root.abandon().await.unwrap();
}

#[tokio::test]
async fn a_daemon_that_keeps_the_output_is_not_waited_for() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    let started = Instant::now();
    let mut output = Vec::new();
    let outcome = root.run(sh("setsid sleep 1000 & echo started; sleep 0.1"), &mut output).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(output, b"started\n");
    let daemons: Vec<_> = outcome.still_running.iter().map(|holder| holder.command.as_str()).collect();
    assert_eq!(daemons, ["sleep 1000"]);
    let sealed = root.seal(SealOptions::default()).await.unwrap();
    assert_eq!(sealed.ended.len(), 1);
    assert_eq!(sealed.ended[0].command, "sleep 1000");
}

#[tokio::test]
async fn a_time_limit_ends_the_group_politely_then_surely() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    let mut output = Vec::new();
    let limit = Duration::from_millis(200);

    let polite = sh("trap 'echo asked; exit' TERM; while true; do sleep 0.02; done");
    let error = root.run(polite.time_limit(limit), &mut output).await.unwrap_err();
    assert!(matches!(error, RunError::TimeLimit { .. }), "{error}");
    let output = String::from_utf8_lossy(&output);
    assert!(output.contains("asked\n"), "{output}");

    let mut output = Vec::new();
    let stubborn = sh("trap '' TERM; while true; do sleep 1000; done");
    let started = Instant::now();
    let error = root.run(stubborn.time_limit(limit).grace(limit), &mut output).await.unwrap_err();
    assert!(error.to_string().ends_with("was ended after its time limit of 0.2 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(root.holders().await.unwrap().is_empty());
    root.abandon().await.unwrap();
}

#[tokio::test]
async fn a_dropped_run_ends_its_group_and_the_root_lives_on() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    let mut output = Vec::new();
    let run = root.run(sh("sleep 1000 & sleep 1000"), &mut output);
    assert!(tokio::time::timeout(Duration::from_millis(100), run).await.is_err());
    assert_eq!(shell(&mut root, "echo still here").await, "still here\n");
    assert!(root.holders().await.unwrap().is_empty());

    // The next request comes while the dropped command still takes its time.
    let slow =
        root.run(sh("trap 'busybox usleep 300000; exit' TERM; while true; do busybox usleep 1000; done"), &mut output);
    assert!(tokio::time::timeout(Duration::from_millis(100), slow).await.is_err());
    assert_eq!(shell(&mut root, "echo and here").await, "and here\n");
    root.seal(SealOptions::default()).await.unwrap();
}

#[tokio::test]
async fn a_command_can_have_no_network() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    let links = Command::new("ip").args(["-o", "link"]);
    let mut output = Vec::new();
    root.run(links.clone().network(Network::None), &mut output).await.unwrap();
    let output = String::from_utf8_lossy(&output).into_owned();
    assert!(output.contains("lo: <LOOPBACK,UP"), "{output}");
    assert_eq!(output.lines().filter(|line| line.contains("state UP")).count(), 0, "{output}");
    root.abandon().await.unwrap();

    let options = SandboxOptions { network: Network::None, hostname: "elsewhere".to_owned(), ..Default::default() };
    let sandbox = bake_linux::Sandbox::start(options).await.unwrap();
    let mut root = sandbox.open(disk.open(), OpenOptions::default()).await.unwrap();
    let script = "ip -o link | grep -c 'lo: <LOOPBACK,UP'; hostname";
    assert_eq!(shell(&mut root, script).await, "1\nelsewhere\n");
    root.abandon().await.unwrap();
}

/// The flushes that a block device was asked for since it exists.
fn flushes(number: u64) -> u64 {
    let stat = fs::read_to_string(format!("/sys/block/loop{number}/stat")).unwrap();
    stat.split_ascii_whitespace().nth(15).unwrap().parse().unwrap()
}

#[tokio::test]
async fn syncs_are_suppressed_unless_wanted() {
    needs_root!();
    let disk = disk_with(Table::Gpt, 16 << 20, |_| {});
    let mut root = disk.root(OpenOptions::default()).await;
    let number = loop_number(&root);
    let script = "for n in 1 2 3 4 5 6 7 8 9 10; do dd if=/bin/busybox of=/etc/f bs=1k count=1 conv=fsync; sync; done";
    let mut counts = Vec::new();
    for sync in [Sync::Suppressed, Sync::Real] {
        let before = flushes(number);
        let outcome = root.run(sh(script).sync(sync), &mut Vec::new()).await.unwrap();
        assert!(outcome.success());
        counts.push(flushes(number) - before);
    }
    assert!(counts[0] <= 1 && counts[1] >= 10, "{counts:?}");
    root.abandon().await.unwrap();
}

#[tokio::test]
async fn a_full_root_is_said_plainly() {
    needs_root!();
    let disk = disk();
    let mut root = disk.root(OpenOptions::default()).await;
    assert!(!root.space().await.unwrap().is_full());
    let outcome = root.run(sh("dd if=/dev/zero of=/fill bs=64k"), &mut Vec::new()).await.unwrap();
    assert!(!outcome.success());
    assert!(root.space().await.unwrap().is_full(), "{:?}", root.space().await);
    let error = root.write(&path("/more"), &[1; 500_000], 0o644).await.unwrap_err();
    assert_eq!(error.to_string(), "the root is full: cannot write `/more`");
    assert!(matches!(error, RootError::Full { .. }));
    assert!(!root.exists(&path("/.bake-0")).await.unwrap(), "half a file was left");
    root.remove(&path("/fill")).await.unwrap();
    assert!(!root.space().await.unwrap().is_full());
    root.seal(SealOptions::default()).await.unwrap();
}
