//! One bake that goes to many places.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_double::Delays;
use bake_testing::needs;

use crate::ec2::{ACCOUNT, Cloud, OTHER, THIRD};

/// How many regions there are; AWS has about as many.
const REGIONS: usize = 30;

/// Bakes so many images into all regions of three accounts, and returns how often the AMIs of each place were looked at.
fn looks_at_each_place(images: usize) -> BTreeMap<(String, String), usize> {
    let regions: Vec<String> = std::iter::once("us-east-1".to_owned())
        .chain((1..REGIONS).map(|number| format!("eu-north-{number}")))
        .collect();
    let cloud = Cloud::with_regions(&regions.iter().map(String::as_str).collect::<Vec<_>>());
    let set: Vec<_> = (1..=images)
        .map(|number| format!("register_ebs_ami: {{ name: ami-{number}, image_name: hello-{number} }}"))
        .collect();
    let set = format!("[{}, tag_artifacts, distribute_images]", set.join(", "));
    let all = regions.join(", ");
    let distribute = format!("distribute_images: {{ regions: [{all}], copy_to: [\"{OTHER}\", \"{THIRD}\"] }}");
    cloud.environment_with_set(&set, &distribute);
    cloud.double.set_delays(Delays { copy: Duration::from_secs(3), ..Delays::default() });
    let said = cloud.run(&["hello-bake"]);
    said.succeeds();
    for account in [ACCOUNT, OTHER, THIRD] {
        for region in &regions {
            let there = cloud.double.images(account, region).into_iter().filter(|one| one.name.starts_with("hello-"));
            assert_eq!(there.count(), images, "{account} {region}");
        }
    }
    let mut looks = BTreeMap::new();
    for call in cloud.double.requests().into_iter().filter(|call| call.operation == "DescribeImages") {
        let waits = call.parameters.get("Filter.1.Name").is_some_and(|name| name == "image-id");
        if waits && call.region != "us-east-1" {
            *looks.entry((call.account, call.region)).or_default() += 1;
        }
    }
    looks
}

#[test]
fn how_often_a_region_is_asked_does_not_depend_on_how_many_images_are_waited_for() {
    needs!(root(), loops(), fixtures());
    let (one, three) = (looks_at_each_place(1), looks_at_each_place(3));
    assert_eq!((one.len(), three.len()), (3 * (REGIONS - 1), 3 * (REGIONS - 1)));
    let all = |looks: &BTreeMap<_, usize>| looks.values().sum::<usize>();
    // They do not all begin to wait at the same moment.
    assert!(all(&three) < 2 * all(&one), "{} looks for one image, {} for three", all(&one), all(&three));
}
