//! `register_image` keeps the contract of finalizers.

use std::sync::Arc;

use bake_core::Finalizer;
use bake_testing::contract;
use bake_testing::fake::FakeCloud;
use finalizer_register::{INFO, RegisterImageFinalizer, RegisterSettings};

#[tokio::test(start_paused = true)]
async fn register_image_keeps_the_contract() {
    contract::finalizer(|cloud| {
        Ok(Arc::new(RegisterImageFinalizer::new(cloud, INFO.name, RegisterSettings::default())?))
    })
    .await;
}

#[test]
fn it_is_what_the_catalog_says() {
    let cloud = FakeCloud::new(&["base"]).build(&mut Default::default());
    let finalizer = RegisterImageFinalizer::new(&*cloud, INFO.name, RegisterSettings::default()).unwrap();
    assert_eq!((finalizer.name(), Some(finalizer.stage())), (INFO.name, INFO.stage));
}
