//! `distribute_images` keeps the contract of finalizers, and delivers to each region what it can.

use std::sync::Arc;

use bake_config::Text;
use bake_core::{Cloud, Finalizer, FinalizerUse, OnFailure, PlanError};
use bake_engine::{Cancel, SkipReason, Verdict};
use bake_testing::contract;
use bake_testing::fake::{Baked, FakeCloud, FakeFinalizer, Fakes, Fault};
use finalizer_distribute::{DistributeImages, DistributeSettings, INFO, Success};

fn settings(regions: &[&str]) -> DistributeSettings {
    let regions = regions.iter().map(|region| Text::built_in(*region)).collect();
    DistributeSettings { regions, ..DistributeSettings::default() }
}

fn distribute(cloud: &dyn Cloud, settings: DistributeSettings) -> Result<Arc<dyn Finalizer>, PlanError> {
    Ok(Arc::new(DistributeImages::new(cloud, settings)?))
}

#[tokio::test(start_paused = true)]
async fn distribute_images_keeps_the_contract() {
    contract::finalizer(|cloud| distribute(cloud, settings(&["there", "elsewhere"]))).await;
}

#[test]
fn it_is_what_the_catalog_says() {
    let cloud = FakeCloud::new(&["base"]).build(&mut Default::default());
    let finalizer = distribute(&*cloud, settings(&[])).unwrap();
    assert_eq!((finalizer.name(), Some(finalizer.stage())), (INFO.name, INFO.stage));
}

#[test]
fn accounts_need_a_cloud_that_has_them() {
    let cloud = FakeCloud::new(&["base"]).build(&mut Default::default());
    let accounts = vec![Text::built_in("012345678901")];
    let refused = distribute(&*cloud, DistributeSettings { accounts, ..settings(&[]) }).err().unwrap();
    insta::assert_snapshot!(refused, @"the finalizer `distribute_images` cannot work with the cloud `fake`: built-in: it has no accounts, and `012345678901` is one");
}

/// A bake of two images to these regions.
async fn deliver(fakes: &Fakes, settings: DistributeSettings) -> Baked {
    let bake = fakes.bake(&["hello-bake"], &|cloud| {
        let registered =
            vec![FakeFinalizer::register(cloud)?.placed(), FakeFinalizer::register_another(cloud)?.placed()];
        let tagged = vec![FakeFinalizer::tag(cloud)?.placed()];
        let delivered = vec![FinalizerUse::new("deliver", distribute(cloud, settings.clone())?)];
        Ok(vec![registered, tagged, delivered])
    });
    fakes.run(bake.unwrap(), Cancel::new(), OnFailure::TakeBack).await
}

#[tokio::test(start_paused = true)]
async fn every_image_goes_to_every_region_with_the_tags_of_copies() {
    let fakes = Fakes::new();
    let baked = deliver(&fakes, settings(&["there", "elsewhere", "there"])).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
    let mut images: Vec<_> = baked.images.iter().map(|image| format!("{} {}", image.region, image.name)).collect();
    images.sort();
    assert_eq!(images.len(), 6, "{images:?}");
    assert_eq!(images.iter().filter(|image| image.starts_with("there ")).count(), 2);
    let elsewhere = |line: &String| line.contains(" there ") || line.contains(" elsewhere ");
    let copies: Vec<_> = fakes.cloud.inventory().into_iter().filter(elsewhere).collect();
    assert!(copies.len() == 4 && copies.iter().all(|copy| copy.contains("appversion")), "{copies:?}");
}

#[tokio::test(start_paused = true)]
async fn a_region_that_has_the_image_already_is_passed_over() {
    let fakes = Fakes::new();
    let baked = deliver(&fakes, settings(&["here", "there"])).await;
    assert_eq!((baked.outcome.verdict, baked.images.len()), (Verdict::Done, 4));
    let skipped = baked.outcome.skipped.iter().map(|skipped| (skipped.path.as_str(), &skipped.reason));
    let expected = SkipReason::Condition("the image is not in `here` already".into());
    assert!(skipped.clone().all(|(path, reason)| path.starts_with("finalize/deliver/here/") && *reason == expected));
    assert_eq!(skipped.count(), 2);
}

/// The calls before the first copy are the same in every bake.
async fn fail_one_copy(success: Success) -> Baked {
    let fakes = Fakes::new();
    let regions = ["one", "two", "three"];
    deliver(&fakes, settings(&regions)).await;
    let first_copy = fakes.cloud.calls().iter().position(|call| *call == "CopyImage").unwrap();
    let fakes = Fakes::with(FakeCloud::new(&["base"]).failing_at(first_copy, Fault::Refused));
    deliver(&fakes, DistributeSettings { success, ..settings(&regions) }).await
}

#[tokio::test(start_paused = true)]
async fn one_region_that_fails_does_not_keep_the_others_from_theirs() {
    let all = fail_one_copy(Success::All).await;
    assert_eq!((all.outcome.verdict, all.outcome.failures.len(), all.images.len()), (Verdict::Failed, 1, 2 + 5));
    let some = fail_one_copy(Success::BestEffort).await;
    assert_eq!((some.outcome.verdict, some.outcome.warnings.len(), some.images.len()), (Verdict::Done, 1, 2 + 5));
}
