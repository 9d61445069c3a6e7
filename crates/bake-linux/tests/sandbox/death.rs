//! What is left when the owner dies: nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bake_linux::{OpenOptions, Sandbox, SandboxOptions, SealOptions};

use crate::support::{Disk, disk, needs_root, shell};

/// The kernel needs a tenth of a second; a busy machine may take longer.
const PATIENCE: Duration = Duration::from_secs(5);
const DISK: &str = "BAKE_TEST_VICTIM_DISK";

/// Bakes for ever, with a daemon in every root, until it is killed. Says where it is.
#[test]
#[ignore = "not a test: what the tests below kill"]
fn victim() {
    let path = std::env::var_os(DISK).expect("set by the test that starts it");
    crate::use_sandbox();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        loop {
            println!("starting");
            let sandbox = Sandbox::start(SandboxOptions::default()).await.unwrap();
            println!("started {}", sandbox.pid());
            let disk = fs::File::options().read(true).write(true).open(&path).unwrap();
            let mut root = sandbox.open(disk, OpenOptions::default()).await.unwrap();
            println!("opened");
            shell(&mut root, "setsid sh -c 'setsid sleep 1000 & sleep 1000' & sleep 0.05").await;
            println!("running");
            shell(&mut root, "dd if=/dev/zero of=/etc/f bs=64k count=40 && sleep 0.1; rm /etc/f").await;
            println!("sealing");
            root.seal(SealOptions::default()).await.unwrap();
        }
    });
}

struct Victim {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    /// A copy of this program that nobody else runs, so that its processes are known by it.
    program: PathBuf,
    disk: Disk,
}

impl Victim {
    fn start(disk: Disk) -> Victim {
        let program = disk.folder.path().join("victim");
        if !program.exists() {
            fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        }
        let mut process = Command::new(&program)
            .args(["--exact", "death::victim", "--ignored", "--nocapture", "--test-threads=1"])
            .env(DISK, &disk.path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Victim { process, lines, program, disk }
    }

    /// Waits until it says something that begins so, and returns the rest.
    fn until(&mut self, word: &str) -> String {
        let line = self.lines.find_map(|line| line.unwrap().strip_prefix(word).map(str::to_owned));
        line.expect("it goes on until it is killed").trim().to_owned()
    }

    fn kill(mut self) -> Disk {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.disk
    }
}

/// Lists what is left of a victim: processes that run its program or something from its disk, and loop devices of its disk.
fn left(program: &Path, disk: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for entry in fs::read_dir("/sys/block").unwrap().flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if backing.trim() == disk.to_str().unwrap() {
            left.push(format!("{:?} is bound", entry.file_name()));
        }
    }
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let (exe, command) = (fs::read_link(entry.path().join("exe")), fs::read(entry.path().join("cmdline")));
        let ours = exe.as_deref().is_ok_and(|exe| exe == program) || has_open(&entry.path(), disk);
        if ours && !stat.contains(") Z ") {
            left.push(format!("{:?}: {}", entry.file_name(), String::from_utf8_lossy(&command.unwrap_or_default())));
        }
    }
    left
}

fn has_open(process: &Path, disk: &Path) -> bool {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|file| file == disk)
}

/// Lists the live processes of a PID namespace.
fn in_namespace(namespace: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let members = entries.filter(|entry| fs::read_link(entry.path().join("ns/pid")).is_ok_and(|of| of == namespace));
    let alive =
        members.filter(|entry| fs::read_to_string(entry.path().join("stat")).is_ok_and(|stat| !stat.contains(") Z ")));
    alive.map(|entry| format!("{:?}", entry.file_name())).collect()
}

fn until_empty(mut list: impl FnMut() -> Vec<String>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = list();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "still there: {left:?}");
        pause(Duration::from_millis(5));
    }
}

fn pause(time: Duration) {
    // Not a runtime's: these tests watch processes from outside.
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    let _ = receiver.recv_timeout(time);
}

#[test]
fn nothing_is_left_at_whatever_moment_the_owner_is_killed() {
    needs_root!();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    let mut disk = disk();
    // A round of the victim takes about 350 ms; the steps do not divide it.
    for delay in [1u64, 3, 7, 15, 23, 31, 47, 67, 97, 131, 173, 227, 283, 331] {
        let mut victim = Victim::start(disk);
        victim.until("starting");
        pause(Duration::from_millis(delay));
        let program = victim.program.clone();
        disk = victim.kill();
        until_empty(|| left(&program, &disk.path));
    }
    assert_eq!(mounts(), before);
}

#[test]
fn daemons_end_with_the_owner() {
    needs_root!();
    let mut victim = Victim::start(disk());
    let sandbox = victim.until("started");
    let namespace = fs::read_link(format!("/proc/{sandbox}/ns/pid")).unwrap();
    victim.until("running");
    assert!(in_namespace(&namespace).len() >= 4, "the first process, the worker, two daemons");
    let program = victim.program.clone();
    let disk = victim.kill();
    until_empty(|| in_namespace(&namespace));
    until_empty(|| left(&program, &disk.path));
}

/// A stopped process cannot see its owner hang up; the death signal ends it all the same.
#[test]
fn a_stopped_first_process_ends_too() {
    needs_root!();
    let mut victim = Victim::start(disk());
    let sandbox = victim.until("started");
    victim.until("running");
    assert!(Command::new("kill").args(["-STOP", &sandbox]).status().unwrap().success());
    let program = victim.program.clone();
    let disk = victim.kill();
    until_empty(|| left(&program, &disk.path));
}

/// The death signal follows the thread that made the child; that must not be one that ends early.
#[test]
fn the_sandbox_outlives_the_thread_that_started_it() {
    needs_root!();
    let disk = disk();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    let mut root =
        std::thread::spawn(move || handle.block_on(async { (disk.root(OpenOptions::default()).await, disk) }))
            .join()
            .unwrap();
    pause(Duration::from_millis(50));
    assert_eq!(runtime.block_on(shell(&mut root.0, "echo alive")), "alive\n");
    runtime.block_on(root.0.abandon()).unwrap();
}

/// Signals that a terminal or a service manager sends to everybody are for the owner alone.
#[test]
fn the_sandbox_ignores_polite_signals() {
    needs_root!();
    let disk = disk();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut root = disk.root(OpenOptions::default()).await;
        let sandbox = root.sandbox().pid();
        let namespace = fs::read_link(format!("/proc/{sandbox}/ns/pid")).unwrap();
        for member in in_namespace(&namespace) {
            for signal in ["-TERM", "-INT", "-HUP", "-QUIT"] {
                Command::new("kill").args([signal, member.trim_matches('"')]).status().unwrap();
            }
        }
        assert_eq!(shell(&mut root, "echo alive").await, "alive\n");
        root.seal(SealOptions::default()).await.unwrap();
    });
}

#[test]
fn a_dropped_root_and_a_lost_sandbox_leave_nothing() {
    needs_root!();
    let disk = disk();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let nowhere = Path::new("/no/such/program");
    runtime.block_on(async {
        let root = disk.root(OpenOptions::default()).await;
        drop(root);
        until_empty(|| left(nowhere, &disk.path));

        let mut root = disk.root(OpenOptions::default()).await;
        let sandbox = root.sandbox().pid();
        Command::new("kill").args(["-KILL", &sandbox.to_string()]).status().unwrap();
        // It may answer once more before it is gone.
        let deadline = Instant::now() + PATIENCE;
        let error = loop {
            match root.space().await {
                Err(error) => break error,
                Ok(_) => assert!(Instant::now() < deadline, "it survived"),
            }
        };
        assert_eq!(error.to_string(), "the sandbox ended unexpectedly (signal 9)");
        until_empty(|| left(nowhere, &disk.path));
    });
}

/// Futures that are dropped half way must leave nothing either.
#[test]
fn a_cancelled_start_or_open_leaves_nothing() {
    needs_root!();
    let disk = disk();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        for limit in [0, 1, 2, 4, 8, 12, 16, 24, 32] {
            let open = async {
                let root = disk.root(OpenOptions::default()).await;
                // Longer than any limit here.
                tokio::time::sleep(Duration::from_secs(10)).await;
                drop(root);
            };
            assert!(tokio::time::timeout(Duration::from_millis(limit), open).await.is_err());
            until_empty(|| left(Path::new("/no/such/program"), &disk.path));
        }
    });
}
