//! The double refuses what AWS refuses, in AWS's words.

use std::time::Duration;

use aws_double::{Delays, Double, DoubleBuilder, Fault, FaultKind, Kernel, Machine, SeedImage};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, Response};
use sha2::{Digest as _, Sha256};

const OWN: &str = "111122223333";
const OTHER: &str = "222233334444";
const HERE: &str = "us-east-1";
const THERE: &str = "eu-west-1";
const BLOCK: usize = 512 * 1024;

struct Service {
    double: Double,
    client: Client,
}

impl Service {
    async fn new() -> Self {
        let builder = Double::builder().account(OWN, "AKIAOWN").account(OTHER, "AKIAOTHER");
        Self::of(builder.region(HERE).region(THERE)).await
    }

    async fn of(builder: DoubleBuilder) -> Self {
        let double = builder.start().await.unwrap();
        // Without it even a client for plain HTTP cannot be made.
        let _another_test_may_have_done_so = rustls::crypto::ring::default_provider().install_default();
        Self { double, client: Client::builder().no_proxy().build().unwrap() }
    }

    fn signed(key: &str, region: &str, service: &str) -> String {
        format!(
            "AWS4-HMAC-SHA256 Credential={key}/20261201/{region}/{service}/aws4_request, SignedHeaders=host, Signature=0"
        )
    }

    /// A call of EC2: status and text of the answer.
    async fn ec2_as(&self, key: &str, region: &str, form: &[(&str, &str)]) -> (u16, String) {
        let form: String = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self.client.post(self.double.endpoint()).body(form);
        let answer = request.header("authorization", Self::signed(key, region, "ec2")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn ec2(&self, form: &[(&str, &str)]) -> (u16, String) {
        self.ec2_as("AKIAOWN", HERE, form).await
    }

    async fn ebs(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Response {
        let url = format!("{}{path}", self.double.endpoint());
        let request = self.client.request(method.parse().unwrap(), url).body(body);
        let request = request.header("authorization", Self::signed("AKIAOWN", HERE, "ebs"));
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
    }

    async fn begin(&self, body: &str) -> (u16, serde_json::Value) {
        let answer = self.ebs("POST", "/snapshots", &[], body.as_bytes().to_vec()).await;
        (answer.status().as_u16(), serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
    }

    async fn put(&self, id: &str, index: u32, data: &[u8], checksum: &str) -> (u16, String) {
        let algorithm = ("x-amz-checksum-algorithm", "SHA256");
        let headers = [("x-amz-data-length", "524288"), ("x-amz-checksum", checksum), algorithm];
        let answer = self.ebs("PUT", &format!("/snapshots/{id}/blocks/{index}"), &headers, data.to_vec()).await;
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn complete(&self, id: &str, count: &str, checksum: &str) -> u16 {
        let headers = [
            ("x-amz-changedblockscount", count),
            ("x-amz-checksum", checksum),
            ("x-amz-checksum-algorithm", "SHA256"),
            ("x-amz-checksum-aggregation-method", "LINEAR"),
        ];
        self.ebs("POST", &format!("/snapshots/completion/{id}"), &headers, Vec::new()).await.status().as_u16()
    }

    fn state(&self, id: &str) -> (&'static str, Option<String>) {
        self.double.snapshots(OWN, HERE).iter().find(|one| one.id == id).unwrap().state()
    }

    /// A snapshot that is there, and an image of it.
    fn seeded(&self) -> (String, String) {
        let disk = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(disk.path(), b"bytes").unwrap();
        let snapshot = self.double.seed_snapshot(OWN, HERE, disk.path()).unwrap();
        let image = self.double.seed_image(OWN, HERE, SeedImage::new("base", &snapshot)).unwrap();
        (snapshot, image)
    }
}

#[track_caller]
fn assert_code(answer: &(u16, String), code: &str) {
    assert!(answer.1.contains(&format!("<Code>{code}</Code>")), "{code} was expected: {answer:?}");
}

fn checksum(data: &[u8]) -> String {
    STANDARD.encode(Sha256::digest(data))
}

fn registration<'a>(name: &'a str, snapshot: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("Action", "RegisterImage"),
        ("Version", "2016-11-15"),
        ("Name", name),
        ("Architecture", "x86_64"),
        ("VirtualizationType", "hvm"),
        ("RootDeviceName", "/dev/xvda"),
        ("BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
        ("BlockDeviceMapping.1.Ebs.SnapshotId", snapshot),
    ]
}

#[tokio::test]
async fn who_asks_has_to_be_known() {
    let service = Service::new().await;
    let unsigned = service.client.post(service.double.endpoint()).body("Action=DescribeImages").send().await.unwrap();
    assert_eq!(unsigned.status(), 403);
    assert_code(&service.ec2_as("AKIANOBODY", HERE, &[("Action", "DescribeImages")]).await, "AuthFailure");
}

#[tokio::test]
async fn what_nobody_knows_is_refused() {
    let service = Service::new().await;
    let (_, image) = service.seeded();
    assert_code(&service.ec2(&[("Action", "RunInstances")]).await, "InvalidAction");
    assert_code(&service.ec2(&[("Action", "DescribeImages"), ("Colour", "red")]).await, "UnknownParameter");
    assert_code(&service.ec2(&[("Action", "DeregisterImage")]).await, "MissingParameter");
    let filter = [("Action", "DescribeImages"), ("Filter.1.Name", "colour"), ("Filter.1.Value.1", "red")];
    assert_code(&service.ec2(&filter).await, "InvalidParameterValue");
    let dry = service.ec2(&[("Action", "DeregisterImage"), ("ImageId", &image), ("DryRun", "true")]).await;
    assert_eq!(dry.0, 412);
    assert_code(&dry, "DryRunOperation");
}

#[tokio::test]
async fn images_are_registered_by_the_rules() {
    let service = Service::new().await;
    let (snapshot, _) = service.seeded();
    let wrong = [
        ("Name", "bad*name", "InvalidAMIName.Malformed"),
        ("RootDeviceName", "/dev/sda1", "InvalidBlockDeviceMapping"),
        ("BlockDeviceMapping.1.Ebs.SnapshotId", "snap-0", "InvalidSnapshotID.NotFound"),
        ("BlockDeviceMapping.1.Ebs.Encrypted", "false", "InvalidParameter"),
        ("BlockDeviceMapping.1.Ebs.Throughput", "9", "InvalidParameterCombination"),
        ("TagSpecification.1.ResourceType", "snapshot", "InvalidParameterValue"),
        ("Architecture", "sparc", "InvalidParameterValue"),
    ];
    for (name, value, code) in wrong {
        let mut form = registration("an-image", &snapshot);
        form.retain(|(one, _)| *one != name);
        form.push((name, value));
        assert_code(&service.ec2(&form).await, code);
    }
    assert_eq!(service.ec2(&registration("an-image", &snapshot)).await.0, 200);
    assert_code(&service.ec2(&registration("an-image", &snapshot)).await, "InvalidAMIName.Duplicate");
}

#[tokio::test]
async fn what_is_used_is_not_deleted_and_what_is_gone_says_so() {
    let service = Service::new().await;
    let (snapshot, image) = service.seeded();
    let delete = [("Action", "DeleteSnapshot"), ("SnapshotId", snapshot.as_str())];
    assert_code(&service.ec2(&delete).await, "InvalidSnapshot.InUse");
    let deregister = [("Action", "DeregisterImage"), ("ImageId", image.as_str())];
    assert_eq!(service.ec2(&deregister).await.0, 200);
    assert_code(&service.ec2(&deregister).await, "InvalidAMIID.Unavailable");
    let (_, text) = service.ec2(&[("Action", "DescribeImages"), ("ImageId.1", &image)]).await;
    assert!(text.contains("<imagesSet></imagesSet>"), "an image that was deregistered is an empty list: {text}");
    assert_eq!(service.ec2(&delete).await.0, 200);
    assert_code(&service.ec2(&delete).await, "InvalidSnapshot.NotFound");
}

#[tokio::test]
async fn one_attribute_is_changed_by_a_call() {
    let service = Service::new().await;
    let (_, image) = service.seeded();
    let modify = [("Action", "ModifyImageAttribute"), ("ImageId", image.as_str())];
    let share = ("LaunchPermission.Add.1.UserId", OTHER);
    assert_code(&service.ec2(&modify).await, "InvalidParameterCombination");
    let both = [&modify[..], &[share, ("Description.Value", "text")]].concat();
    assert_code(&service.ec2(&both).await, "InvalidParameterCombination");
    let nobody = [&modify[..], &[("LaunchPermission.Add.1.UserId", "bob")]].concat();
    assert_code(&service.ec2(&nobody).await, "InvalidAMIAttributeItemValue");
    assert_eq!(service.ec2(&[&modify[..], &[share]].concat()).await.0, 200);
}

#[tokio::test]
async fn another_account_copies_what_is_shared_with_its_bytes() {
    let service = Service::new().await;
    let (snapshot, image) = service.seeded();
    let image = image.as_str();
    let source = [("Action", "CopyImage"), ("Name", "a copy"), ("SourceRegion", HERE), ("SourceImageId", image)];
    let copy = [&source[..], &[("ClientToken", "token")]].concat();
    assert_code(&service.ec2_as("AKIAOTHER", THERE, &copy).await, "InvalidAMIID.NotFound");
    let launch = [("Action", "ModifyImageAttribute"), ("ImageId", image), ("LaunchPermission.Add.1.UserId", OTHER)];
    assert_eq!(service.ec2(&launch).await.0, 200);
    assert_code(&service.ec2_as("AKIAOTHER", THERE, &copy).await, "InvalidRequest");
    let bytes = [
        ("Action", "ModifySnapshotAttribute"),
        ("SnapshotId", snapshot.as_str()),
        ("Attribute", "createVolumePermission"),
        ("OperationType", "add"),
        ("UserId.1", OTHER),
    ];
    assert_eq!(service.ec2(&bytes).await.0, 200);
    assert_eq!(service.ec2_as("AKIAOTHER", THERE, &copy).await.0, 200);
    assert_eq!(service.ec2_as("AKIAOTHER", THERE, &copy).await.0, 200, "the token gives the first answer");
    assert_eq!(service.double.images(OTHER, THERE).len(), 1);
    let other = [&copy[..], &[("Description", "another")]].concat();
    assert_code(&service.ec2_as("AKIAOTHER", THERE, &other).await, "IdempotentParameterMismatch");
}

#[tokio::test]
async fn lists_have_pages_and_limits() {
    let service = Service::new().await;
    let (snapshot, image) = service.seeded();
    for number in 0..6 {
        assert_eq!(service.ec2(&registration(&format!("image-{number}"), &snapshot)).await.0, 200);
    }
    let describe = [("Action", "DescribeImages"), ("Owner.1", "self")];
    assert_code(&service.ec2(&[&describe[..], &[("MaxResults", "1")]].concat()).await, "InvalidParameterValue");
    let both = [("Action", "DescribeImages"), ("ImageId.1", image.as_str()), ("MaxResults", "5")];
    assert_code(&service.ec2(&both).await, "InvalidParameterCombination");
    let (_, first) = service.ec2(&[&describe[..], &[("MaxResults", "5")]].concat()).await;
    assert_eq!((first.matches("<imageId>").count(), first.contains("<nextToken>5</nextToken>")), (5, true));
    let (_, rest) = service.ec2(&[&describe[..], &[("MaxResults", "5"), ("NextToken", "5")]].concat()).await;
    assert_eq!((rest.matches("<imageId>").count(), rest.contains("nextToken")), (2, false));
}

#[tokio::test]
async fn a_block_is_checked_when_it_is_written() {
    let service = Service::new().await;
    let (_, begun) = service.begin(r#"{"VolumeSize":1,"ClientToken":"t"}"#).await;
    let id = begun["SnapshotId"].as_str().unwrap();
    let data = vec![1; BLOCK];
    let right = checksum(&data);
    assert_eq!(service.put(id, 0, &data, &checksum(b"another")).await.0, 403);
    assert!(service.put(id, 0, &data[1..], &right).await.1.contains("Failed to read block data"));
    assert!(service.put(id, 2048, &data, &right).await.1.contains("INVALID_BLOCK"));
    assert_eq!(service.put(id, 0, &data, &right).await.0, 201);
    assert_eq!(service.complete(id, "1", &checksum(&Sha256::digest(&data))).await, 202);
    assert_eq!(service.state(id), ("completed", None));
    assert!(service.put(id, 1, &data, &right).await.1.contains("already completed"));
}

#[tokio::test]
async fn a_wrong_end_is_told_afterwards() {
    let data = vec![2; BLOCK];
    let linear = checksum(&Sha256::digest(&data));
    for (count, sum, reason) in [
        ("1", &checksum(b"wrong"), "Checksum mismatch for snapshot"),
        ("2", &linear, "Changed blocks count mismatch for snapshot"),
    ] {
        let service = Service::new().await;
        let (_, begun) = service.begin(r#"{"VolumeSize":1}"#).await;
        let id = begun["SnapshotId"].as_str().unwrap();
        service.put(id, 7, &data, &checksum(&data)).await;
        assert_eq!(service.complete(id, count, sum).await, 202, "it says yes first");
        assert_eq!(service.state(id), ("error", Some(reason.to_owned())));
    }
}

#[tokio::test]
async fn a_token_begins_one_snapshot_and_a_child_has_its_parents_blocks() {
    let service = Service::new().await;
    let (parent, _) = service.seeded();
    let body = format!(r#"{{"VolumeSize":1,"ParentSnapshotId":"{parent}","ClientToken":"t"}}"#);
    let (status, first) = service.begin(&body).await;
    assert_eq!(status, 201);
    assert_eq!(service.begin(&body).await.1["SnapshotId"], first["SnapshotId"]);
    for (wrong, status) in [
        (r#"{"VolumeSize":2,"ClientToken":"t"}"#, 409),
        (r#"{"VolumeSize":0}"#, 400),
        (r#"{"VolumeSize":1,"Colour":"red"}"#, 400),
    ] {
        assert_eq!(service.begin(wrong).await.0, status, "{wrong}");
    }
    let id = first["SnapshotId"].as_str().unwrap();
    let list = format!("/snapshots/{id}/blocks");
    assert_eq!(service.ebs("GET", &list, &[], Vec::new()).await.status(), 404, "it is not complete");
    service.ebs("POST", &format!("/snapshots/completion/{id}"), &[("x-amz-changedblockscount", "0")], Vec::new()).await;
    let listed = service.ebs("GET", &list, &[], Vec::new()).await.bytes().await.unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!(listed["Blocks"].as_array().unwrap().len(), 1);
    let token = listed["Blocks"][0]["BlockToken"].as_str().unwrap();
    let block = service.ebs("GET", &format!("{list}/0?blockToken={token}"), &[], Vec::new()).await;
    assert_eq!(&block.bytes().await.unwrap()[..5], b"bytes");
    let wrong = service.ebs("GET", &format!("{list}/0?blockToken=AAAA"), &[], Vec::new()).await;
    assert!(wrong.text().await.unwrap().contains("INVALID_BLOCK_TOKEN"));
}

#[tokio::test]
async fn faults_come_when_they_are_due_and_are_written_down() {
    let service = Service::new().await;
    service.double.fault(Fault::on("DescribeRegions", FaultKind::Throttle).skip(1).times(2));
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(service.ec2(&[("Action", "DescribeRegions")]).await.0);
    }
    assert_eq!(codes, [200, 503, 503, 200]);
    service.double.fault(Fault::on("DescribeRegions", FaultKind::DropAfter));
    let request = service.client.post(service.double.endpoint()).body("Action=DescribeRegions");
    let lost = request.header("authorization", Service::signed("AKIAOWN", HERE, "ec2")).send().await;
    assert!(lost.is_err(), "{lost:?}");
    let outcomes: Vec<_> = service.double.requests().into_iter().map(|request| request.outcome).collect();
    assert_eq!(outcomes, ["200", "RequestLimitExceeded", "RequestLimitExceeded", "200", "no answer"]);
}

#[tokio::test]
async fn what_is_new_takes_its_time() {
    let service = Service::new().await;
    let (snapshot, _) = service.seeded();
    let [visibility, image] = [200, 1000].map(Duration::from_millis);
    service.double.set_delays(Delays { image, visibility, ..Delays::default() });
    assert_eq!(service.ec2(&registration("new", &snapshot)).await.0, 200);
    let id = service.double.images(OWN, HERE).iter().find(|image| image.name == "new").unwrap().id.clone();
    let describe = [("Action", "DescribeImages"), ("ImageId.1", id.as_str())];
    assert_code(&service.ec2(&describe).await, "InvalidAMIID.NotFound");
    tokio::time::sleep(visibility).await;
    assert!(service.ec2(&describe).await.1.contains("<imageState>pending</imageState>"));
    tokio::time::sleep(image).await;
    assert!(service.ec2(&describe).await.1.contains("<imageState>available</imageState>"));
}

/// The text of an element of an answer.
fn element<'a>(answer: &'a str, name: &str) -> &'a str {
    let start = answer.find(&format!("<{name}>")).unwrap_or_else(|| panic!("no {name} in {answer}")) + name.len() + 2;
    &answer[start..start + answer[start..].find('<').unwrap()]
}

const MACHINE: &str = "i-0123456789abcdef0";

#[tokio::test]
async fn volumes_are_made_by_the_rules() {
    let service = Service::new().await;
    let (snapshot, _) = service.seeded();
    let create = |more: &[(&'static str, &'static str)]| {
        let snapshot = snapshot.clone();
        let mut form = vec![("Action", "CreateVolume".to_owned()), ("SnapshotId", snapshot)];
        form.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        form
    };
    let ask = async |form: Vec<(&str, String)>| {
        service.ec2(&form.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>()).await
    };
    assert_code(&ask(create(&[])).await, "MissingParameter");
    assert_code(&ask(create(&[("AvailabilityZone", "eu-west-1a")])).await, "InvalidZone.NotFound");
    assert_code(&ask(create(&[("AvailabilityZone", "us-east-1a"), ("VolumeType", "fast")])).await, "UnknownVolumeType");
    assert_code(&ask(create(&[("AvailabilityZone", "us-east-1a"), ("Size", "0")])).await, "InvalidParameterValue");
    let once = create(&[("AvailabilityZone", "us-east-1a"), ("ClientToken", "once")]);
    let (first, again) = (ask(once.clone()).await, ask(once).await);
    assert_eq!(element(&first.1, "volumeId"), element(&again.1, "volumeId"), "a token makes one volume");
    let other = create(&[("AvailabilityZone", "us-east-1b"), ("ClientToken", "once")]);
    assert_code(&ask(other).await, "IdempotentParameterMismatch");
    let volume = element(&first.1, "volumeId");
    let detach = service.ec2(&[("Action", "DetachVolume"), ("VolumeId", volume)]).await;
    assert_code(&detach, "IncorrectState");
    assert_eq!(service.ec2(&[("Action", "DeleteVolume"), ("VolumeId", volume)]).await.0, 200);
    assert_code(&service.ec2(&[("Action", "DeleteVolume"), ("VolumeId", volume)]).await, "InvalidVolume.NotFound");
}

#[tokio::test]
async fn a_volume_is_a_disk_of_the_machine_that_it_is_attached_to() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: loop devices need root");
        return;
    }
    use std::os::unix::fs::FileExt as _;
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(OWN, HERE, folder.path());
    let service = Service::of(Double::builder().account(OWN, "AKIAOWN").region(HERE).machine(machine)).await;
    let (snapshot, _) = service.seeded();
    let create = |zone| [("Action", "CreateVolume"), ("SnapshotId", &*snapshot), ("AvailabilityZone", zone)];
    let far = service.ec2(&create("us-east-1a")).await.1;
    let near = service.ec2(&create("us-east-1b")).await.1;
    let (far, near) = (element(&far, "volumeId"), element(&near, "volumeId"));
    let attach = |volume, device| {
        [("Action", "AttachVolume"), ("VolumeId", volume), ("InstanceId", MACHINE), ("Device", device)]
    };
    assert_code(&service.ec2(&attach(far, "/dev/sdf")).await, "InvalidVolume.ZoneMismatch");
    assert_code(&service.ec2(&attach(near, "/dev/sda1")).await, "InvalidParameterValue");
    assert_code(&service.ec2(&attach(near, "nvme1n1")).await, "InvalidParameterValue");
    assert_eq!(service.ec2(&attach(near, "/dev/sdf")).await.0, 200);
    assert_code(&service.ec2(&attach(near, "/dev/sdg")).await, "VolumeInUse");
    assert_code(&service.ec2(&[("Action", "DeleteVolume"), ("VolumeId", near)]).await, "VolumeInUse");
    let told = service.ec2(&[("Action", "DescribeInstances"), ("InstanceId.1", MACHINE)]).await.1;
    assert!(told.contains("<deviceName>/dev/sdf</deviceName>"), "{told}");

    let node = folder.path().join("dev/nvme9n1");
    let disk = std::fs::File::options().read(true).write(true).open(&node).unwrap();
    disk.write_all_at(b"written on the machine", 3 << 19).unwrap();
    let taken = service.ec2(&[("Action", "CreateSnapshot"), ("VolumeId", near)]).await.1;
    let copy = folder.path().join("copy");
    service.double.write_snapshot(HERE, element(&taken, "snapshotId"), &copy).unwrap();
    let mut there = [0; 22];
    std::fs::File::open(&copy).unwrap().read_exact_at(&mut there, 3 << 19).unwrap();
    assert_eq!(&there, b"written on the machine");

    let detached = || async { service.ec2(&[("Action", "DescribeVolumes"), ("VolumeId.1", near)]).await.1 };
    assert_eq!(service.ec2(&[("Action", "DetachVolume"), ("VolumeId", near)]).await.0, 200);
    assert!(detached().await.contains("<status>in-use</status>") && node.exists(), "somebody has it open");
    assert_code(&service.ec2(&[("Action", "DetachVolume"), ("VolumeId", near)]).await, "IncorrectState");
    drop(disk);
    while !detached().await.contains("<status>available</status>") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!node.exists());
}

#[tokio::test]
async fn a_disk_is_there_when_its_volume_is_attached_and_not_before() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: loop devices need root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(OWN, HERE, folder.path()).kernel(Kernel::XenShifted);
    let service = Service::of(Double::builder().account(OWN, "AKIAOWN").region(HERE).machine(machine)).await;
    let (snapshot, _) = service.seeded();
    let create = [("Action", "CreateVolume"), ("SnapshotId", &*snapshot), ("AvailabilityZone", "us-east-1b")];
    let volumes = [service.ec2(&create).await.1, service.ec2(&create).await.1];
    let [one, stuck] = [0, 1].map(|number| element(&volumes[number], "volumeId").to_owned());
    let attach = async |volume: &str, device: &str| {
        let form = [("Action", "AttachVolume"), ("VolumeId", volume), ("InstanceId", MACHINE), ("Device", device)];
        assert_eq!(service.ec2(&form).await.0, 200);
    };
    service.double.set_delays(Delays { attach: Duration::from_millis(200), ..Delays::default() });
    attach(&one, "/dev/sdf").await;
    service.double.fault(Fault::on("AttachVolume", FaultKind::Fails("it hangs".into())));
    attach(&stuck, "/dev/sdx").await;
    let there = |name: &str| folder.path().join("dev").join(name).exists();
    assert!(!there("xvdj"), "it is only attaching");
    tokio::time::sleep(Duration::from_millis(250)).await;
    let told = service.ec2(&[("Action", "DescribeVolumes"), ("VolumeId.1", &one), ("VolumeId.2", &stuck)]).await.1;
    assert!(told.contains("<status>attached</status>") && told.contains("<status>attaching</status>"), "{told}");
    assert!(there("xvdj") && !there("xvdx"), "one is attached, and one hangs");
}

#[tokio::test]
async fn an_instance_is_told_who_it_is_for_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(OWN, HERE, folder.path());
    let service = Service::of(Double::builder().region(HERE).machine(machine)).await;
    let at = |path: &str| format!("{}/latest/{path}", service.double.endpoint());
    let without = service.client.get(at("meta-data/instance-id")).send().await.unwrap();
    assert_eq!(without.status(), 401);
    let life = "x-aws-ec2-metadata-token-ttl-seconds";
    let long = service.client.put(at("api/token")).header(life, "99999").send().await.unwrap();
    assert_eq!(long.status(), 400);
    let token = service.client.put(at("api/token")).header(life, "60").send().await.unwrap();
    assert_eq!(token.headers()[life], "60");
    let token = token.text().await.unwrap();
    let get = |path: &str| service.client.get(at(path)).header("x-aws-ec2-metadata-token", &token).send();
    assert_eq!(get("meta-data/instance-id").await.unwrap().text().await.unwrap(), MACHINE);
    assert_eq!(get("meta-data/placement/availability-zone").await.unwrap().text().await.unwrap(), "us-east-1b");
    assert_eq!(get("meta-data/nothing").await.unwrap().status(), 404);
}
