//! Choosing a device name to attach a volume by.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use bake_engine::{Class, StepError, StepResult};
use host_disks::{DeviceName, DeviceNames, HeldName};

use crate::machine::{GIB, Machine};

fn name(text: &str) -> DeviceName {
    DeviceName::try_from(text.to_owned()).unwrap()
}

/// Chooses a name on a machine to which the cloud says that volumes are attached by these names.
async fn choose(machine: &Machine, mapped: &[&str]) -> StepResult<HeldName> {
    choose_but(machine, mapped, &[]).await
}

async fn choose_but(machine: &Machine, mapped: &[&str], refused: &[&str]) -> StepResult<HeldName> {
    let mapped = || async { Ok(mapped.iter().map(ToString::to_string).collect()) };
    let refused = refused.iter().map(|text| name(text)).collect();
    choose_with(machine, mapped, &refused).await
}

async fn choose_with<F>(
    machine: &Machine,
    mapped: impl Fn() -> F,
    refused: &BTreeSet<DeviceName>,
) -> StepResult<HeldName>
where
    F: Future<Output = StepResult<Vec<String>>>,
{
    DeviceNames::new(machine.host()).take(mapped, refused).await
}

fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

// B14: the cloud says attaching or detaching, and the kernel shows nothing.
#[tokio::test]
async fn a_name_that_the_cloud_has_in_any_state_is_not_chosen() {
    let machine = Machine::new();
    let held = choose(&machine, &["/dev/sda1", "/dev/sdf", "xvdg", "/dev/sdh1"]).await.unwrap();
    assert_eq!(*held.name(), name("/dev/sdi"));
}

// B14
#[tokio::test]
async fn a_name_that_the_kernel_or_udev_has_is_not_chosen() {
    let machine = Machine::new();
    machine.disk("sdf", GIB).disk("xvdg", GIB).partition("sdh1", GIB).write("dev/sdi", "a link to `nvme1n1`");
    assert_eq!(*choose(&machine, &[]).await.unwrap().name(), name("/dev/sdj"));
}

// B14: on "in use" from the cloud, the next one.
#[tokio::test]
async fn a_name_that_the_cloud_refused_is_not_chosen_again() {
    let machine = Machine::new();
    assert_eq!(*choose_but(&machine, &[], &["/dev/sdf"]).await.unwrap().name(), name("/dev/sdg"));
}

// B14: five bakes start at once, while a sixth is tearing down.
#[tokio::test]
async fn bakes_that_start_together_choose_different_names() {
    let machine = Machine::new();
    let sixth = choose(&machine, &[]).await.unwrap();
    let mapped = &["/dev/sdf"];
    let (a, b, c, d, e) = tokio::join!(
        choose(&machine, mapped),
        choose(&machine, mapped),
        choose(&machine, mapped),
        choose(&machine, mapped),
        choose(&machine, mapped),
    );
    let held = [a, b, c, d, e].map(Result::unwrap);
    let names: BTreeSet<_> = held.iter().map(HeldName::name).collect();
    assert_eq!(names.len(), 5);
    assert!(!names.contains(sixth.name()));
}

// B14: what was free before the lock may not be free under it.
#[tokio::test]
async fn a_name_is_looked_up_again_once_it_is_held() {
    let (machine, answers) = (Machine::new(), Mutex::new(vec![vec!["/dev/sdf".to_owned()], vec![]]));
    let mapped = || async { Ok(answers.lock().unwrap().pop().unwrap_or_else(|| vec!["/dev/sdf".into()])) };
    let held = choose_with(&machine, mapped, &BTreeSet::new()).await.unwrap();
    assert_eq!(*held.name(), name("/dev/sdg"));
    // The one that was not free is not held either.
    assert_eq!(*choose(&machine, &[]).await.unwrap().name(), name("/dev/sdf"));
}

// B14: the lock file of a bake that was killed is still there.
#[tokio::test]
async fn a_lock_dies_with_its_process_and_its_file_does_not_matter() {
    let machine = Machine::new();
    machine.write("run/lock/bake/sdf.lock", "");
    let path = machine.path("run/lock/bake/sdf.lock");
    let ready = machine.path("ready");
    let mut other = Command::new("flock")
        .args(["--no-fork"])
        .arg(&path)
        .args(["sh", "-c", "touch \"$0\"; exec sleep 100"])
        .arg(&ready)
        .spawn()
        .unwrap();
    while !ready.exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(*choose(&machine, &[]).await.unwrap().name(), name("/dev/sdg"));
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(path.exists());
    assert_eq!(*choose(&machine, &[]).await.unwrap().name(), name("/dev/sdf"));
}

// B14: a lock that is held may be waited for, and is not the end.
#[tokio::test]
async fn a_name_that_is_let_go_can_be_taken_again() {
    let machine = Machine::new();
    let all: Vec<_> = DeviceName::all().map(String::from).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let held = choose(&machine, &all[1..]).await.unwrap();
    assert_eq!(choose(&machine, &all[1..]).await.unwrap_err().class(), Class::Transient);
    drop(held);
    assert_eq!(*choose(&machine, &all[1..]).await.unwrap().name(), name("/dev/sdf"));
}

// B14
#[tokio::test]
async fn when_none_is_free_the_error_counts_who_has_them() {
    let machine = Machine::new();
    let _held = choose(&machine, &[]).await.unwrap();
    machine.disk("xvdg", GIB);
    let attached: Vec<_> = DeviceName::all().skip(3).map(String::from).collect();
    let attached: Vec<_> = attached.iter().map(String::as_str).collect();
    let error = choose_but(&machine, &attached, &["/dev/sdh"]).await.unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    let error = chain(&error);
    let counts = "no device name is free: 60 have attached volumes, 1 are there as devices, 1 are held by other bakes, 1 were \
                  refused by the cloud";
    assert!(error.contains(counts), "{error}");
}

// B14
#[tokio::test]
async fn a_cloud_that_will_never_answer_ends_the_choice() {
    let machine = Machine::new();
    let mapped = || async { Err(StepError::permanent("denied")) };
    let error = choose_with(&machine, mapped, &BTreeSet::new()).await.unwrap_err();
    assert_eq!(error.class(), Class::Permanent);
}

// B15: partitions are refused as names for whole disks.
#[test]
fn names_are_those_of_whole_disks() {
    assert!(DeviceName::all().all(|name| !name.to_string().ends_with(|c: char| c.is_ascii_digit())));
    assert_eq!(DeviceName::all().count(), 11 + 52);
    for text in ["/dev/sdf1", "/dev/nvme1n1", "/dev/sd", "f", "", "/dev/xvd1", "/dev/sdF"] {
        assert!(DeviceName::try_from(text.to_owned()).is_err(), "`{text}`");
    }
    assert_eq!(name("xvdba").to_string(), "/dev/xvdba");
}

#[test]
fn a_choice_can_be_in_a_step_that_moves_between_threads() {
    fn can_move<T: Send>(value: T) -> T {
        value
    }
    let machine = Machine::new();
    drop(can_move(async move { choose(&machine, &[]).await }));
}
