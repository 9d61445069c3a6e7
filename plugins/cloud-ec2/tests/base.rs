//! Which AMI a bake starts from: never a guess, and never a stranger's.

use std::path::PathBuf;
use std::time::Duration;

use aws_double::{Double, SeedImage};
use bake_core::{BaseQuery, Cloud, Region};
use bake_engine::{Cancel, Mutations, StepContext, StepError};
use cloud_ec2::{Ec2Cloud, Ec2Settings, Folders, Keys};
use host_disks::Host;

const OWN: &str = "111122223333";
const STRANGER: &str = "999988887777";
const HERE: &str = "us-east-1";

struct Shop {
    double: Double,
    folder: tempfile::TempDir,
}

impl Shop {
    async fn new() -> Self {
        let double = Double::builder().account(OWN, "AKIAOWN").region(HERE).start().await.unwrap();
        Self { double, folder: tempfile::tempdir().unwrap() }
    }

    fn seed(&self, owner: &str, name: &str) -> String {
        let disk = self.folder.path().join("disk");
        std::fs::write(&disk, b"bytes").unwrap();
        let snapshot = self.double.seed_snapshot(owner, HERE, &disk).unwrap();
        self.double.seed_image(owner, HERE, SeedImage::new(name, &snapshot)).unwrap()
    }

    async fn resolve(&self, wanted: &str, settings: Ec2Settings) -> Result<bake_core::BaseImage, StepError> {
        let settings = Ec2Settings {
            region: Some(Region::new(HERE)),
            endpoint: Some(self.double.endpoint()),
            pace: Duration::from_millis(5),
            ..settings
        };
        let folders = Folders {
            disks: self.folder.path().join("disks"),
            cache: self.folder.path().join("cache"),
            uploads: PathBuf::new(),
            host: Host::default(),
        };
        let keys = Some(Keys { access: "AKIAOWN".into(), secret: "secret".into(), metadata: None });
        let cloud = Ec2Cloud::with_keys(settings, &folders, keys, &mut Mutations::new());
        let wanted = Some(wanted.to_owned()).filter(|wanted| !wanted.is_empty());
        let query = BaseQuery { wanted, region: None };
        cloud.resolve_base(StepContext::detached("base", &Cancel::new()), &query).await
    }
}

#[tokio::test]
async fn an_ami_is_found_by_id_by_name_and_by_a_parameter() {
    let shop = Shop::new().await;
    let id = shop.seed(OWN, "debian-12");
    shop.double.seed_parameter(HERE, "/ours/base", &id);
    for wanted in [id.as_str(), "debian-12", "ssm:/ours/base"] {
        let base = shop.resolve(wanted, Ec2Settings::default()).await.unwrap();
        assert_eq!((base.id.as_str(), base.name.as_str()), (id.as_str(), "debian-12"), "{wanted}");
        assert_eq!((base.architecture.as_str(), base.size), ("x86_64", 1 << 30));
        assert_eq!(base.machine.boot_mode.as_deref(), Some("uefi-preferred"));
        assert!(base.snapshot.is_some());
    }
    let error = shop.resolve("ssm:/theirs", Ec2Settings::default()).await.unwrap_err();
    assert!(error.to_string().contains("cannot read the parameter `/theirs`"), "{error:?}");
}

#[tokio::test]
async fn a_strangers_ami_of_that_name_is_not_taken() {
    let shop = Shop::new().await;
    let own = shop.seed(OWN, "debian-12");
    shop.seed(STRANGER, "debian-12");
    let newest = Ec2Settings { newest: true, ..Ec2Settings::default() };
    assert_eq!(shop.resolve("debian-12", newest.clone()).await.unwrap().id.as_str(), own);
    let error = shop.resolve("debian-13", newest).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("there is no base image `debian-13` in region `{HERE}` that account {OWN} may use")
    );
    assert!(error.hint_text().unwrap().contains("owners"));
}

#[tokio::test]
async fn of_several_one_is_taken_only_if_the_newest_is_asked_for() {
    let shop = Shop::new().await;
    let ids = [shop.seed(OWN, "debian-12-a"), shop.seed(OWN, "debian-12-b")];
    let error = shop.resolve("debian-12-*", Ec2Settings::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "`debian-12-*` may be one of 2 AMIs");
    assert!(ids.iter().all(|id| error.detail_lines().iter().any(|line| line.contains(id))), "{error:?}");
    let newest = Ec2Settings { newest: true, ..Ec2Settings::default() };
    shop.resolve("debian-12-*", newest).await.unwrap();
    let error = shop.resolve("", Ec2Settings::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "nobody said which base image to bake from");
    assert_eq!(error.detail_lines().len(), 2);
}

#[tokio::test]
async fn an_ami_that_is_not_ready_or_gone_is_refused() {
    let shop = Shop::new().await;
    let error = shop.resolve("ami-0123456789abcdef0", Ec2Settings::default()).await.unwrap_err();
    assert!(error.to_string().contains("there is no base image"), "{error:?}");
    let error = shop.resolve("ami-nonsense", Ec2Settings::default()).await.unwrap_err();
    assert!(error.chain().join(" ").contains("InvalidAMIID.Malformed"), "{error:?}");
}

#[tokio::test]
async fn credentials_that_nobody_knows_are_an_error_with_a_hint() {
    let shop = Shop::new().await;
    let folders = Folders {
        disks: shop.folder.path().into(),
        cache: shop.folder.path().into(),
        uploads: PathBuf::new(),
        host: Host::default(),
    };
    let settings = Ec2Settings {
        region: Some(Region::new(HERE)),
        endpoint: Some(shop.double.endpoint()),
        ..Ec2Settings::default()
    };
    let keys = Some(Keys { access: "AKIANOBODY".into(), secret: "secret".into(), metadata: None });
    let cloud = Ec2Cloud::with_keys(settings, &folders, keys, &mut Mutations::new());
    let query = BaseQuery { wanted: Some("debian".into()), region: None };
    let error = cloud.resolve_base(StepContext::detached("base", &Cancel::new()), &query).await.unwrap_err();
    assert!(error.to_string().contains("InvalidClientTokenId"), "{error:?}");
    assert!(error.hint_text().unwrap().contains("get-caller-identity"));
    assert!(error.to_string().contains("(request "), "the request can be asked about: {error}");
}
