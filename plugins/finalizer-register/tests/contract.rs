//! What registers keeps the contract of finalizers.

use std::sync::Arc;

use bake_core::Finalizer;
use bake_testing::contract;
use bake_testing::fake::FakeCloud;
use finalizer_register::{
    EbsSettings, INFO, REGISTER_EBS_AMI, RegisterEbsAmi, RegisterImageFinalizer, RegisterSettings,
};

#[tokio::test(start_paused = true)]
async fn register_image_keeps_the_contract() {
    contract::finalizer(|cloud| {
        Ok(Arc::new(RegisterImageFinalizer::new(cloud, INFO.name, RegisterSettings::default())?))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn register_ebs_ami_keeps_the_contract() {
    contract::finalizer(|cloud| {
        Ok(Arc::new(RegisterEbsAmi::new(cloud, REGISTER_EBS_AMI.name, EbsSettings::default())?))
    })
    .await;
}

#[test]
fn it_is_what_the_catalog_says() {
    let cloud = FakeCloud::new(&["base"]).build(&mut Default::default());
    let finalizer = RegisterImageFinalizer::new(&*cloud, INFO.name, RegisterSettings::default()).unwrap();
    assert_eq!((finalizer.name(), Some(finalizer.stage())), (INFO.name, INFO.stage));
}
