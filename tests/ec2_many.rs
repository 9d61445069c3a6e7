//! One bake that goes to many places.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_double::Delays;
use bake_testing::needs;

use crate::ec2::{ACCOUNT, Cloud, HOME, OTHER, THIRD};

/// How many regions there are; AWS has about as many.
const REGIONS: usize = 30;

/// How many images a bake registers.
const IMAGES: usize = 3;

/// Bakes into all regions of three accounts, and returns how many AMIs were asked for at most in one question, at each place.
fn asked_for_together() -> BTreeMap<(String, String), usize> {
    let regions: Vec<String> =
        std::iter::once(HOME.to_owned()).chain((1..REGIONS).map(|number| format!("eu-north-{number}"))).collect();
    let cloud = Cloud::with_regions(&regions.iter().map(String::as_str).collect::<Vec<_>>());
    let set: Vec<_> = (1..=IMAGES)
        .map(|number| format!("register_ebs_ami: {{ name: ami-{number}, image_name: hello-{number} }}"))
        .collect();
    let set = format!("[{}, tag_artifacts, distribute_images]", set.join(", "));
    let all = regions.join(", ");
    let distribute = format!("distribute_images: {{ regions: [{all}], copy_to: [\"{OTHER}\", \"{THIRD}\"] }}");
    cloud.environment_with_set(&set, &distribute);
    // Long enough that all are waited for at the same time, on a machine that does much else meanwhile.
    cloud.double.set_delays(Delays { copy: Duration::from_secs(10), ..Delays::default() });
    cloud.run(&["hello-bake"]).succeeds();
    for account in [ACCOUNT, OTHER, THIRD] {
        for region in &regions {
            let there = cloud.double.images(account, region).into_iter().filter(|one| one.name.starts_with("hello-"));
            assert_eq!(there.count(), IMAGES, "{account} {region}");
        }
    }
    let mut together = BTreeMap::new();
    for call in cloud.double.requests().into_iter().filter(|call| call.operation == "DescribeImages") {
        let waits = call.parameters.get("Filter.1.Name").is_some_and(|name| name == "image-id");
        if waits && call.region != HOME {
            let ids = call.parameters.keys().filter(|name| name.starts_with("Filter.1.Value.")).count();
            let most = together.entry((call.account, call.region)).or_default();
            *most = ids.max(*most);
        }
    }
    together
}

#[test]
fn images_that_are_waited_for_at_a_place_are_asked_for_in_one_question() {
    needs!(root(), loops(), fixtures());
    let together = asked_for_together();
    assert_eq!(together.len(), 3 * (REGIONS - 1));
    // How many wait at the same time depends on the machine; one question for each would be one for each, however slow it is.
    assert!(together.values().all(|most| *most > 1), "{together:?}");
}
