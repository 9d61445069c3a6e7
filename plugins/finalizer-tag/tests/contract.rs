//! `tag_artifacts` keeps the contract of finalizers.

use std::sync::Arc;

use bake_core::Finalizer;
use bake_testing::contract;
use bake_testing::fake::FakeCloud;
use finalizer_tag::{INFO, TagArtifacts, TagSettings};

fn settings() -> TagSettings {
    let settings = serde_json::json!({
        "tags": { "creator": "{{ vars.creator }}", "where": "{{ region }}" }, "image_tags": { "creator": "nobody" },
    });
    serde_json::from_value(settings).unwrap()
}

#[tokio::test(start_paused = true)]
async fn tag_artifacts_keeps_the_contract() {
    contract::finalizer(|cloud| Ok(Arc::new(TagArtifacts::new(cloud, settings())?))).await;
}

#[test]
fn it_is_what_the_catalog_says() {
    let cloud = FakeCloud::new(&["base"]).build(&mut Default::default());
    let finalizer = TagArtifacts::new(&*cloud, settings()).unwrap();
    assert_eq!((finalizer.name(), Some(finalizer.stage())), (INFO.name, INFO.stage));
}

#[test]
fn tags_alone_are_no_reason_for_a_snapshot() {
    let cloud = FakeCloud::new(&["base"]).build(&mut Default::default());
    assert!(!TagArtifacts::new(&*cloud, settings()).unwrap().needs().snapshot);
}
