//! What is known of a bake's end before anything is made.

use aws_double::{Fault, FaultKind};
use bake_testing::needs;

use crate::ec2::{ACCOUNT, Cloud, FRIEND, HOME, OTHER, THERE};

/// Calls that make or change something.
fn changes(cloud: &Cloud) -> Vec<String> {
    let reads = |name: &str| ["Describe", "Get", "List", "AssumeRole"].iter().any(|start| name.starts_with(start));
    let calls = cloud.double.requests().into_iter().filter(|call| !call.parameters.contains_key("DryRun"));
    calls.map(|call| call.operation).filter(|name| !reads(name)).collect()
}

/// A bake that cannot end well, for many reasons.
fn hopeless() -> Cloud {
    let cloud = Cloud::new();
    cloud.environment(&format!(
        "distribute_images: {{ regions: [{THERE}, mars-north-1], accounts: [\"{FRIEND}\"], copy_to: [\"{OTHER}\", \
         \"999999999999\"] }}, register_ebs_ami: {{ volume_size: 512MiB }}"
    ));
    cloud.double.encrypt_by_default(THERE);
    cloud.double.fault(Fault::on("RegisterImage:DryRun", FaultKind::Denied).times(1000));
    cloud.double.fault(Fault::on("CopyImage:DryRun", FaultKind::Denied).within(THERE).times(1000));
    cloud
}

const FINDINGS: [&str; 7] = [
    "a root disk of 512MiB is asked for, and the base image has 1GiB",
    "`mars-north-1` is no region that account 111122223333 can use",
    "account 111122223333 may not call RegisterImage in region `us-east-1`: UnauthorizedOperation",
    "account 111122223333 may not call CopyImage in region `eu-west-1`: UnauthorizedOperation",
    "account 333344445555 may not call CopyImage in region `eu-west-1`: UnauthorizedOperation",
    "account 999999999999 cannot be reached: nobody said which role to act as in account 999999999999",
    "region `eu-west-1` encrypts by default, so that account 222233334444 could not use the images there",
];

#[test]
fn all_that_will_go_wrong_is_told_at_once_and_nothing_is_made() {
    needs!(root(), loops(), fixtures());
    let cloud = hopeless();
    let said = cloud.run(&["hello-bake"]);
    said.ends_with(20);
    FINDINGS.iter().for_each(|finding| {
        said.tells(finding);
    });
    assert_eq!(changes(&cloud), Vec::<String>::new());
    cloud.house.assert_clean();
}

#[test]
fn a_plan_that_is_checked_tells_it_too() {
    needs!(fixtures());
    let cloud = hopeless();
    let said = cloud.run(&["plan", "--check", "hello-bake"]);
    said.ends_with(20);
    FINDINGS.iter().for_each(|finding| {
        said.tells(finding);
    });
    let well = Cloud::new();
    let said = well.run(&["plan", "--check", "hello-bake"]);
    assert!(said.succeeds().stdout.contains("checked: regions, accounts and permissions"), "{}", said.stdout);
    assert_eq!(changes(&well), Vec::<String>::new());
}

// B42: the service would keep the encryption and say nothing.
#[test]
fn a_plain_copy_of_an_encrypted_image_is_refused() {
    needs!(root(), loops(), fixtures());
    let cloud = Cloud::new();
    cloud.environment(&format!("distribute_images: {{ regions: [{THERE}], encryption: {{ {THERE}: plain }} }}"));
    cloud.double.encrypt_by_default(HOME);
    let said = cloud.run(&["hello-bake"]);
    assert_ne!(said.code, Some(0), "{}", said.stderr);
    said.tells("is encrypted, and no copy of it can be without encryption");
    assert!(cloud.double.images(ACCOUNT, THERE).is_empty());
}

#[test]
fn a_name_that_is_taken_somewhere_is_told_before_bytes_are_sent() {
    needs!(root(), loops(), fixtures());
    let cloud = Cloud::new();
    cloud.environment(&format!("distribute_images: {{ regions: [{THERE}] }}"));
    cloud.run(&["--name", "mine", "hello-bake"]).succeeds();
    let before = changes(&cloud).len();
    let said = cloud.run(&["--fresh", "--name", "mine", "hello-bake"]);
    said.ends_with(20);
    said.tells(&format!("the name `mine-ebs` is taken in region `{HOME}`, by ami-"));
    said.tells(&format!("the name `mine-ebs` is taken in region `{THERE}`, by ami-"))
        .tells("hint: choose another name");
    assert_eq!(changes(&cloud).len(), before, "{:?}", changes(&cloud));
    assert_eq!(cloud.double.images(ACCOUNT, THERE).len(), 1);
    cloud.house.assert_clean();
}
