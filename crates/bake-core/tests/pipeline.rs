//! Whole bakes with plugins in memory: what runs in which order, and that nothing is ever left behind.

use std::sync::Arc;
use std::time::Duration;

use bake_config::{Condition, StepUse, Text};
use bake_core::{Bake, BlockDevice, Cloud, FinalizerUse, OnFailure, PlanError, Region, Volume, VolumeId};
use bake_engine::{Cancel, EventKind, Left, Mutations, StepContext, Verdict};
use bake_testing::fake::{Baked, FakeCloud, FakeFinalizer, Fakes, Fault, Lacks};
use tokio::sync::Barrier;

/// A bake makes more calls than this, so a loop over all of them has to come this far.
const FEWEST_CALLS: usize = 8;

/// One group that registers an image, and one that tags it.
fn usual(cloud: &dyn Cloud) -> Result<Vec<Vec<FinalizerUse>>, PlanError> {
    Ok(vec![vec![FakeFinalizer::register(cloud)?.placed()], vec![FakeFinalizer::tag(cloud)?.placed()]])
}

/// As usual, with two images of one snapshot.
fn two_images(cloud: &dyn Cloud) -> Result<Vec<Vec<FinalizerUse>>, PlanError> {
    let register = vec![FakeFinalizer::register(cloud)?.placed(), FakeFinalizer::register_another(cloud)?.placed()];
    Ok(vec![register, vec![FakeFinalizer::tag(cloud)?.placed()]])
}

fn hello(fakes: &Fakes) -> (Bake, Mutations) {
    fakes.bake(&["hello-bake"], &usual).unwrap()
}

async fn run(fakes: &Fakes, bake: (Bake, Mutations)) -> Baked {
    fakes.run(bake, Cancel::new(), OnFailure::TakeBack).await
}

fn ids(left: &[Left]) -> Vec<String> {
    left.iter().map(|left| left.made.as_ref().unwrap()["id"].as_str().unwrap().to_owned()).collect()
}

/// Finished images with their snapshot, and what the run says that it left, are all there is.
#[track_caller]
fn assert_no_leaks(fakes: &Fakes, baked: &Baked, when: &str) {
    let mut expected = ids(&baked.left);
    let snapshot = baked.handles.maybe_snapshot().and_then(|handle| baked.outcome.output(handle).unwrap());
    for image in &baked.images {
        expected.extend([image.id.to_string(), snapshot.as_ref().unwrap().id.to_string()]);
    }
    expected.sort();
    expected.dedup();
    assert_eq!(fakes.cloud.alive(), expected, "{when}: {:?}", baked.outcome.failures);
    assert_eq!(fakes.volumes.open_now(), 0, "{when}: a volume is still open");
}

#[tokio::test(start_paused = true)]
async fn a_bake_makes_an_image_and_keeps_only_that() {
    let fakes = Fakes::new();
    let baked = run(&fakes, hello(&fakes)).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
    assert_eq!(fakes.cloud.alive(), ["image-3", "snapshot-2"]);
    assert_eq!(baked.images[0].name, format!("hello-bake-2.0-0-{}-1", std::env::consts::ARCH));
    let installed = baked.outcome.output(baked.handles.installed).unwrap().unwrap();
    assert_eq!((installed.main.name.as_str(), installed.main.version.as_str()), ("hello-bake", "2.0"));
    assert_no_leaks(&fakes, &baked, "a bake that went well");
}

#[tokio::test(start_paused = true)]
async fn steps_run_in_the_order_of_the_recipe() {
    let fakes = Fakes::new();
    let baked = run(&fakes, hello(&fakes)).await;
    insta::assert_snapshot!(baked.began.join("\n"), @"
    base
    volume/create
    volume/open
    volume/provision
    volume/seal
    identity
    snapshot
    finalize/fake_register/image
    finalize/fake_tag/fake
    ");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_fails_at_any_call_leaves_nothing_unsaid() {
    for fault in Fault::ALL {
        for call in 0.. {
            let fakes = Fakes::with(FakeCloud::new(&["base"]).failing_at(call, fault));
            let baked = run(&fakes, fakes.bake(&["hello-bake"], &two_images).unwrap()).await;
            let calls = fakes.cloud.calls();
            if calls.len() <= call {
                assert!(call > FEWEST_CALLS, "{calls:?}");
                break;
            }
            let when = format!("{fault:?} at call {call}, `{}`", calls[call]);
            assert_no_leaks(&fakes, &baked, &when);
            let undoing = calls[call].starts_with("Delete");
            let verdict = if fault == Fault::Refused && !undoing { Verdict::Failed } else { Verdict::Done };
            assert_eq!(baked.outcome.verdict, verdict, "{when}: {:?}", baked.outcome.failures);
            assert_eq!(!baked.left.is_empty(), fault == Fault::Refused && undoing, "{when}: {:?}", baked.left);
            assert_eq!(fakes.teardown(&baked).await, [], "{when}");
            assert_eq!(fakes.cloud.alive(), Vec::<String>::new(), "{when}, after teardown");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_bake_that_is_cancelled_at_any_call_leaves_nothing() {
    // Whoever is cancelled does not ask again, so an answer that is lost then stays unknown until the run is taken back.
    for fault in [None, Some(Fault::LostRequest), Some(Fault::LostReply)] {
        for call in 0.. {
            let cancel = Cancel::new();
            let cloud = FakeCloud::new(&["base"]).cancelling_at(call, &cancel, 1);
            let fakes = Fakes::with(match fault {
                Some(fault) => cloud.failing_at(call, fault),
                None => cloud,
            });
            let bake = fakes.bake(&["hello-bake"], &two_images).unwrap();
            let baked = fakes.run(bake, cancel.clone(), OnFailure::TakeBack).await;
            if cancel.level() == 0 {
                assert!(call > FEWEST_CALLS, "{:?}", fakes.cloud.calls());
                break;
            }
            let when = format!("cancelled at call {call}, `{}`, {fault:?}", fakes.cloud.calls()[call]);
            assert_eq!(baked.left, [], "{when}");
            assert_no_leaks(&fakes, &baked, &when);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_second_signal_leaves_is_taken_back_later() {
    for call in 0.. {
        let cancel = Cancel::new();
        let fakes = Fakes::with(FakeCloud::new(&["base"]).cancelling_at(call, &cancel, 2));
        let baked = fakes.run(hello(&fakes), cancel.clone(), OnFailure::TakeBack).await;
        if cancel.level() == 0 {
            assert!(call > FEWEST_CALLS, "{:?}", fakes.cloud.calls());
            break;
        }
        let when = format!("abandoned at call {call}, `{}`", fakes.cloud.calls()[call]);
        assert_eq!(fakes.teardown(&baked).await, [], "{when}");
        assert_eq!(fakes.cloud.alive(), Vec::<String>::new(), "{when}");
        assert_eq!(fakes.volumes.open_now(), 0, "{when}: a volume is still open");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_bake_keeps_is_taken_back_later() {
    let fakes = Fakes::new();
    let bake = fakes.bake(&["no-such-package"], &usual).unwrap();
    let baked = fakes.run(bake, Cancel::new(), OnFailure::Keep).await;
    assert_eq!(fakes.cloud.alive(), ["volume-1"]);
    assert_eq!(fakes.teardown(&baked).await, []);
    assert_eq!(fakes.cloud.alive(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_failed_installation_is_neither_sealed_nor_kept() {
    let fakes = Fakes::new();
    let bake = fakes.bake(&["hello-bake", "no-such-package"], &usual).unwrap();
    let baked = run(&fakes, bake).await;
    assert_eq!(baked.outcome.verdict, Verdict::Failed);
    assert_eq!(baked.outcome.failures[0].path, "volume/provision");
    assert!(baked.outcome.failures[0].error[0].contains("`no-such-package`"), "{:?}", baked.outcome.failures);
    assert_eq!(baked.began.last().unwrap(), "volume/provision", "nothing begins after that: {:?}", baked.began);
    assert!(!fakes.cloud.calls().contains(&"CreateSnapshot"));
    assert_no_leaks(&fakes, &baked, "a failed installation");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_in_use_is_not_installed_into() {
    let fakes = Fakes::new();
    let (bake, mutations) = hello(&fakes);
    let volume = Volume { id: VolumeId::new("volume-1"), region: Region::new("here"), size: 1 << 16 };
    let cx = StepContext::detached("another program", &Cancel::new());
    let _held = fakes.blockdevice.open(cx, bake.composition.cloud.clone(), &volume, None).await.unwrap();
    let baked = run(&fakes, (bake, mutations)).await;
    assert_eq!(baked.outcome.failures[0].path, "volume/open");
    let skipped: Vec<_> = baked.outcome.skipped.iter().map(|skipped| skipped.path.as_str()).collect();
    assert!(skipped.contains(&"volume/provision") && skipped.contains(&"snapshot"), "{skipped:?}");
    assert_no_leaks(&fakes, &baked, "a volume in use");
}

#[tokio::test(start_paused = true)]
async fn a_required_finalizer_that_fails_fails_the_bake_and_the_image_stays() {
    let fakes = Fakes::new();
    let bake = fakes.bake(&["hello-bake"], &|cloud| {
        let first = vec![FakeFinalizer::register(cloud)?.placed(), FakeFinalizer::fail().placed()];
        Ok(vec![first, vec![FakeFinalizer::tag(cloud)?.placed()]])
    });
    let baked = run(&fakes, bake.unwrap()).await;
    assert_eq!(baked.outcome.verdict, Verdict::Failed);
    assert_eq!(baked.images.len(), 1, "what runs beside it is finished");
    assert!(baked.began.iter().any(|step| step == "finalize/fake_tag/fake"), "a later group waits, no more");
    assert_no_leaks(&fakes, &baked, "a required finalizer failed");
}

#[tokio::test(start_paused = true)]
async fn an_optional_finalizer_that_fails_is_a_warning() {
    let fakes = Fakes::new();
    let bake = fakes.bake(&["hello-bake"], &|cloud| {
        let optional = FinalizerUse { optional: true, ..FakeFinalizer::fail().placed() };
        Ok(vec![vec![FakeFinalizer::register(cloud)?.placed()], vec![optional]])
    });
    let baked = run(&fakes, bake.unwrap()).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done);
    assert_eq!(baked.outcome.warnings.len(), 1);
    assert_eq!(baked.outcome.warnings[0].path, "finalize/fake_fail/fail");
    assert_eq!(baked.images.len(), 1);
    assert_no_leaks(&fakes, &baked, "an optional finalizer failed");
}

#[tokio::test(start_paused = true)]
async fn a_set_in_which_nobody_needs_a_snapshot_takes_none() {
    // So it also works with a cloud that has none.
    let fakes = Fakes::with(FakeCloud::new(&["base"]).lacking(Lacks::Snapshots));
    let bake = fakes.bake(&["hello-bake"], &|_| Ok(vec![vec![FakeFinalizer::nothing().placed()]])).unwrap();
    let baked = run(&fakes, bake).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
    assert!(baked.handles.maybe_snapshot().is_none());
    assert!(!baked.began.iter().any(|step| step == "snapshot"), "{:?}", baked.began);
    assert_no_leaks(&fakes, &baked, "nobody needs a snapshot");
}

#[tokio::test(start_paused = true)]
async fn one_who_needs_a_snapshot_is_enough() {
    let fakes = Fakes::new();
    let set = vec![vec![FakeFinalizer::look().placed(), FakeFinalizer::nothing().placed()]];
    let bake = fakes.bake(&["hello-bake"], &|_| Ok(set.clone())).unwrap();
    let baked = run(&fakes, bake).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
    assert_eq!(fakes.cloud.alive(), ["snapshot-2"]);
}

#[test]
fn a_cloud_that_lacks_what_a_finalizer_needs_is_refused_before_anything_runs() {
    let fakes = Fakes::with(FakeCloud::new(&["base"]).lacking(Lacks::Images));
    let refused = fakes.bake(&["hello-bake"], &usual).err().unwrap();
    insta::assert_snapshot!(refused, @"the finalizer `fake_register` cannot work with the cloud `fake`, which has no images");

    let fakes = Fakes::with(FakeCloud::new(&["base"]).lacking(Lacks::Snapshots));
    let refused = hello(&fakes).0.plan().err().unwrap();
    insta::assert_snapshot!(refused, @"the finalizer `fake_register` cannot work with the cloud `fake`, which has no snapshots");
    assert_eq!(fakes.cloud.calls(), Vec::<&str>::new());
}

#[test]
fn a_block_device_that_cannot_open_the_clouds_volumes_is_refused() {
    assert!(hello(&Fakes::new()).0.composition.check().is_ok());
    let disk = tempfile::NamedTempFile::new().unwrap();
    let refused =
        hello(&Fakes::with(FakeCloud::new(&["base"]).in_files(disk.path()))).0.composition.check().unwrap_err();
    insta::assert_snapshot!(refused, @"the block device `fake` cannot open volumes of the cloud `fake`, which come as files");
}

/// Three registering finalizers run at the same time: each waits until all three are there, and the journal shows that none
/// ended before all had begun.
#[tokio::test(start_paused = true)]
async fn registering_finalizers_of_one_group_overlap() {
    let fakes = Fakes::new();
    let barrier = Arc::new(Barrier::new(3));
    let bake = fakes.bake(&["hello-bake"], &|cloud| {
        let register = |name| {
            let placed = FakeFinalizer::register_together(cloud, name, &barrier)?.placed();
            Ok(FinalizerUse { timeout: Some(Duration::from_secs(60)), ..placed })
        };
        let together = ["ebs", "s3", "local"].map(register).into_iter().collect::<Result<_, PlanError>>()?;
        Ok(vec![together, vec![FakeFinalizer::tag(cloud)?.placed()]])
    });
    let baked = run(&fakes, bake.unwrap()).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
    assert_eq!(baked.images.len(), 3);
    let of_meetings =
        baked.events.iter().filter(|event| event.step.as_ref().is_some_and(|step| step.ends_with("/meet")));
    let begun_first: Vec<_> = of_meetings.take(3).map(|event| event.kind.clone()).collect();
    assert_eq!(begun_first, vec![EventKind::StepStarted; 3], "one ended before all had begun");
    assert_no_leaks(&fakes, &baked, "three images");
}

/// What is about images is decided once they are there, by a step of its own whose answer all steps of the finalizer go by.
#[tokio::test(start_paused = true)]
async fn a_predicate_about_images_waits_for_them() {
    for (predicate, runs) in [("images.fake is defined", true), ("images.s3 is defined", false)] {
        let fakes = Fakes::new();
        let bake = fakes.bake(&["hello-bake"], &|cloud| {
            let conditions = vec![Condition { predicate: Text::built_in(predicate), holds: true }];
            let tag = FinalizerUse { conditions, ..FakeFinalizer::tag(cloud)?.placed() };
            Ok(vec![vec![FakeFinalizer::register(cloud)?.placed()], vec![tag]])
        });
        let baked = run(&fakes, bake.unwrap()).await;
        assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
        assert!(baked.began.iter().any(|step| step == "finalize/fake_tag/when"));
        assert_eq!(baked.began.iter().any(|step| step == "finalize/fake_tag/fake"), runs, "{predicate}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_predicate_that_fails_stops_the_bake_before_anything_that_stays_is_made() {
    let fakes = Fakes::new();
    let bake = fakes.bake(&["hello-bake"], &|cloud| {
        let conditions = vec![Condition { predicate: Text::built_in("base.tags.team == 'red'"), holds: true }];
        // That its failure would not matter does not make its predicate a guess.
        let tag = FinalizerUse { conditions, optional: true, ..FakeFinalizer::tag(cloud)?.placed() };
        Ok(vec![vec![FakeFinalizer::register(cloud)?.placed()], vec![tag]])
    });
    let baked = run(&fakes, bake.unwrap()).await;
    assert_eq!(baked.outcome.verdict, Verdict::Failed);
    assert_eq!(baked.outcome.failures[0].path, "identity");
    assert!(!fakes.cloud.calls().contains(&"CreateSnapshot"));
    assert_no_leaks(&fakes, &baked, "a predicate that fails");
}

#[test]
fn what_is_laid_on_a_step_that_is_not_there_is_refused() {
    let fakes = Fakes::new();
    let (bake, _) = hello(&fakes);
    let step = |path: &str| {
        let mut step = StepUse::new(Text::built_in(path));
        step.timeout = Some(Duration::from_secs(9));
        step
    };
    let laid = Bake { steps: vec![step("volume/provision"), step("finalize")], ..bake.clone() };
    let steps = laid.plan().unwrap().plan.describe()["steps"].clone();
    assert_eq!(steps["volume/provision"]["timeout_seconds"], 9.0);
    assert_eq!(steps["finalize/fake_register/image"]["timeout_seconds"], 9.0);
    let refused = Bake { steps: vec![step("volume/provison")], ..bake }.plan().err().unwrap();
    insta::assert_snapshot!(refused, @"built-in: there is no step `volume/provison`");
    assert!(refused.hint().unwrap().contains("volume/provision"));
}

#[test]
fn a_group_waits_for_the_one_before() {
    let fakes = Fakes::new();
    let set = vec![vec![FakeFinalizer::look().placed()], vec![FakeFinalizer::nothing().placed()]];
    let (bake, _) = fakes.bake(&["hello-bake"], &|_| Ok(set.clone())).unwrap();
    let steps = &bake.plan().unwrap().plan.describe()["steps"];
    assert_eq!(steps["finalize/fake_nothing/nothing"]["after"], serde_json::json!(["finalize/group 1"]));
    assert_eq!(steps["finalize/group 1"]["after"], serde_json::json!(["finalize/fake_look/look"]));
    assert_eq!(steps["finalize/fake_look/look"]["after"], serde_json::json!([]));
}

#[test]
fn planning_twice_gives_the_same_plan_and_touches_nothing() {
    let fakes = Fakes::new();
    let digests = [(); 2].map(|()| hello(&fakes).0.plan().unwrap().plan.digest());
    assert_eq!(digests[0], digests[1]);
    assert_eq!(fakes.cloud.calls(), Vec::<&str>::new());
}
