//! A contract that nobody can break is none: plugins with one fault each, and the promise that each of them breaks.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bake_config::Stage;
use bake_core::{
    Architecture, Attachment, BakeHandles, BaseImage, BaseQuery, BlockDevice, Cloud, CloudKinds, CopyImage, Disk,
    Finalizer, Image, Images, Installed, Medium, Needs, OpenVolume, Package, PackageChanges, PackageRequest,
    PackageSpec, PlanError, Provisioner, Region, Root, Scrap, Volume, VolumeId, Volumes,
};
use bake_engine::{
    Calls, Cancel, Classify, Found, Keep, Mutation, Mutations, Op, Resend, StepContext, StepResult, Steps, Undone,
};
use bake_linux::Command;
use bake_testing::contract::{self, CloudWorld, DiskCase, ProvisionerCase, VolumeCase};
use bake_testing::fake::{FakeCloud, FakeProvisioner, FakeVolumes, Lacks};

/// A cloud with something changed.
struct Altered {
    cloud: Arc<dyn Cloud>,
    kinds: CloudKinds,
    default_base: Option<&'static str>,
}

impl Altered {
    fn new(cloud: Arc<dyn Cloud>) -> Self {
        let kinds = cloud.kinds().clone();
        Self { cloud, kinds, default_base: None }
    }
}

#[async_trait]
impl Cloud for Altered {
    fn name(&self) -> &'static str {
        self.cloud.name()
    }

    fn kinds(&self) -> &CloudKinds {
        &self.kinds
    }

    async fn resolve_base(&self, cx: StepContext, query: &BaseQuery) -> StepResult<BaseImage> {
        let wanted = query.wanted.clone().or(self.default_base.map(Into::into));
        self.cloud.resolve_base(cx, &BaseQuery { wanted, ..query.clone() }).await
    }

    async fn scraps(&self, cx: StepContext) -> StepResult<Vec<Scrap>> {
        self.cloud.scraps(cx).await
    }

    async fn remove_scrap(&self, cx: StepContext, scrap: &Scrap) -> StepResult<Undone> {
        self.cloud.remove_scrap(cx, scrap).await
    }

    async fn has_image(&self, cx: StepContext, image: &Image) -> StepResult<bool> {
        self.cloud.has_image(cx, image).await
    }
}

/// Takes the first base image if nobody says which.
struct GuessingWorld(FakeCloud);

impl CloudWorld for GuessingWorld {
    fn build(&self, mutations: &mut Mutations) -> Arc<dyn Cloud> {
        Arc::new(Altered { default_base: Some("base-1"), ..Altered::new(self.0.build(mutations)) })
    }

    fn inventory(&self) -> Vec<String> {
        self.0.inventory()
    }
}

#[tokio::test]
#[should_panic(expected = "one of two base images was taken, although nobody said which")]
async fn a_cloud_that_guesses() {
    contract::cloud(async |bases: &[&str]| GuessingWorld(FakeCloud::new(bases))).await;
}

/// Says of its snapshots that sending twice is harmless.
struct Doubling(FakeCloud);

impl CloudWorld for Doubling {
    fn build(&self, mutations: &mut Mutations) -> Arc<dyn Cloud> {
        self.0.build(mutations)
    }

    fn inventory(&self) -> Vec<String> {
        self.0.inventory()
    }
}

#[tokio::test]
#[should_panic(expected = "a snapshot was made twice by one operation")]
async fn a_cloud_that_makes_two_of_one() {
    contract::cloud(async |bases: &[&str]| Doubling(FakeCloud::new(bases))).await;
}

/// Copies images, with one fault.
struct Copying<M> {
    well: M,
    cloud: FakeCloud,
    fault: CopyFault,
}

#[derive(Clone, Copy, PartialEq)]
enum CopyFault {
    IgnoresTags,
    LeavesItThere,
    StaysInTheRegion,
    TakesTheSource,
}

impl<M: Mutation<Request = CopyImage>> Mutation for Copying<M> {
    type Request = CopyImage;
    type Made = M::Made;
    type Result = M::Result;

    fn name(&self) -> &'static str {
        self.well.name()
    }

    fn calls(&self) -> Calls {
        self.well.calls()
    }

    fn keep(&self) -> Keep {
        self.well.keep()
    }

    fn resend(&self) -> Resend {
        self.well.resend()
    }

    async fn send(&self, op: &Op, request: &CopyImage) -> StepResult<M::Made> {
        let mut request = request.clone();
        match self.fault {
            CopyFault::IgnoresTags => request.tags.clear(),
            CopyFault::StaysInTheRegion => (request.region, request.name) = (request.from.clone(), "a-copy".into()),
            CopyFault::LeavesItThere | CopyFault::TakesTheSource => {}
        }
        self.well.send(op, &request).await
    }

    async fn find(&self, op: &Op, request: &CopyImage) -> StepResult<Found<M::Made>> {
        self.well.find(op, request).await
    }

    async fn settle(&self, cx: &StepContext, request: &CopyImage, made: &M::Made) -> StepResult<M::Result> {
        self.well.settle(cx, request, made).await
    }

    async fn undo(&self, op: &Op, made: &M::Made) -> StepResult<Undone> {
        match self.fault {
            CopyFault::LeavesItThere => return Ok(Undone::Gone),
            CopyFault::TakesTheSource => {
                let images = self.cloud.alive().into_iter().filter(|id| id.starts_with("image-"));
                images.for_each(|id| self.cloud.remove(&id));
            }
            CopyFault::IgnoresTags | CopyFault::StaysInTheRegion => {}
        }
        self.well.undo(op, made).await
    }
}

struct CopyingWorld(FakeCloud, CopyFault);

impl CloudWorld for CopyingWorld {
    fn build(&self, mutations: &mut Mutations) -> Arc<dyn Cloud> {
        let mut altered = Altered::new(self.0.clone().lacking(Lacks::Copies).build(mutations));
        let copying = Copying { well: self.0.copies(), cloud: self.0.clone(), fault: self.1 };
        altered.kinds.copy = Some(mutations.register(copying));
        Arc::new(altered)
    }

    fn inventory(&self) -> Vec<String> {
        self.0.inventory()
    }

    fn makes_twice(&self) -> &[&str] {
        self.0.makes_twice()
    }
}

async fn copies_with(fault: CopyFault) {
    contract::cloud(async |bases: &[&str]| CopyingWorld(FakeCloud::new(bases), fault)).await;
}

#[tokio::test]
#[should_panic(expected = "the tag `Team` is not as it was set")]
async fn copies_without_the_tags_that_were_asked_for() {
    copies_with(CopyFault::IgnoresTags).await;
}

#[tokio::test]
#[should_panic(expected = "the copy is not what was asked for")]
async fn copies_that_stay_in_the_region_of_their_image() {
    copies_with(CopyFault::StaysInTheRegion).await;
}

#[tokio::test]
#[should_panic(expected = "the copy left something behind when it was taken back")]
async fn copies_that_are_not_taken_back() {
    copies_with(CopyFault::LeavesItThere).await;
}

#[tokio::test]
#[should_panic(expected = "the copy took something else with it when it was taken back")]
async fn copies_whose_undo_takes_the_source() {
    copies_with(CopyFault::TakesTheSource).await;
}

/// Keeps what it made in the process that made it.
struct Forgetful(FakeCloud);

impl CloudWorld for Forgetful {
    fn build(&self, mutations: &mut Mutations) -> Arc<dyn Cloud> {
        match self.0.calls().is_empty() {
            true => self.0.build(mutations),
            false => FakeCloud::new(&["a-base"]).build(mutations),
        }
    }

    fn inventory(&self) -> Vec<String> {
        self.0.inventory()
    }
}

#[tokio::test]
#[should_panic(expected = "the volume left something behind when another process took it back")]
async fn a_cloud_that_undoes_only_what_it_remembers() {
    contract::cloud(async |bases: &[&str]| Forgetful(FakeCloud::new(bases))).await;
}

/// Does not look whether somebody else has the disk.
struct Careless(PathBuf);

#[async_trait]
impl BlockDevice for Careless {
    fn name(&self) -> &'static str {
        "careless"
    }

    fn medium(&self) -> Medium {
        Medium::Attached
    }

    async fn open(&self, _: StepContext, _: Arc<dyn Cloud>, _: &Volume, _: Option<&Attachment>) -> StepResult<Disk> {
        let file = std::fs::File::options().read(true).write(true).open(&self.0).permanent()?;
        Ok(Disk { file, path: self.0.clone() })
    }
}

#[tokio::test]
#[should_panic(expected = "a disk was opened twice at a time")]
async fn a_block_device_without_a_lock() {
    contract::blockdevice(async || {
        let disk = empty_disk();
        DiskCase {
            blockdevice: Arc::new(Careless(disk.path().to_owned())),
            cloud: FakeCloud::new(&["base"]).build(&mut Mutations::new()),
            volume: Volume { id: VolumeId::new("volume-1"), region: Region::new("here"), size: SIZE },
            attachment: None,
            keep: Box::new(disk),
        }
    })
    .await;
}

const SIZE: u64 = 1 << 16;

fn empty_disk() -> tempfile::NamedTempFile {
    let disk = tempfile::NamedTempFile::new().unwrap();
    disk.as_file().set_len(SIZE).unwrap();
    disk
}

/// Keeps volumes open that were discarded.
struct Clinging(FakeVolumes);

struct ClingingVolume(Box<dyn OpenVolume>);

#[async_trait]
impl Volumes for Clinging {
    fn name(&self) -> &'static str {
        "clinging"
    }

    async fn open(&self, cx: StepContext, disk: Disk) -> StepResult<Box<dyn OpenVolume>> {
        Ok(Box::new(ClingingVolume(self.0.open(cx, disk).await?)))
    }
}

#[async_trait]
impl OpenVolume for ClingingVolume {
    fn root(&mut self) -> &mut dyn Root {
        self.0.root()
    }

    async fn seal(self: Box<Self>, cx: StepContext) -> StepResult<Vec<String>> {
        self.0.seal(cx).await
    }

    async fn discard(self: Box<Self>) -> StepResult<()> {
        std::mem::forget(self.0);
        Ok(())
    }
}

#[tokio::test]
#[should_panic(expected = "the disk is still held after discarding")]
async fn volumes_that_are_never_let_go() {
    contract::volumes(|| {
        let disk = empty_disk();
        VolumeCase {
            volumes: Arc::new(Clinging(FakeVolumes::default())),
            disk: disk.path().to_owned(),
            left: Box::new(Vec::new),
            keep: Box::new(disk),
        }
    })
    .await;
}

/// Takes an exit code of 0 for an installation.
struct Trusting;

#[async_trait]
impl Provisioner for Trusting {
    fn name(&self) -> &'static str {
        "trusting"
    }

    fn accepts(&self, spec: &PackageSpec) -> Result<(), String> {
        FakeProvisioner.accepts(spec)
    }

    async fn install(
        &self,
        cx: StepContext,
        root: &mut dyn Root,
        request: &PackageRequest,
        architecture: &Architecture,
    ) -> StepResult<Installed> {
        match FakeProvisioner.install(cx, root, request, architecture).await {
            Err(error)
                if root.run(Command::new("fake-install"), &mut Vec::new()).await.is_ok_and(|end| end.success()) =>
            {
                let PackageSpec::Name { name, .. } = &request.packages[0] else { return Err(error) };
                let package = Package::from_debian(name, "1.0", "all");
                let (requested, changes) = (vec![package.clone()], PackageChanges::default());
                Ok(Installed { requested, main: package, changes })
            }
            other => other,
        }
    }
}

#[tokio::test]
#[should_panic(expected = "is said to be installed")]
async fn a_provisioner_that_trusts_an_exit_code() {
    contract::provisioner(async || {
        let (disk, folder) = (empty_disk(), tempfile::tempdir().unwrap());
        let package_file = folder.path().join("hello.fake");
        std::fs::write(&package_file, "hello-bake=1.0").unwrap();
        let opened = Disk { file: disk.reopen().unwrap(), path: disk.path().to_owned() };
        let cx = StepContext::detached("test", &Cancel::new());
        ProvisionerCase {
            provisioner: Arc::new(Trusting),
            volume: FakeVolumes::default().open(cx, opened).await.unwrap(),
            package_file,
            foreign_file: "/hello.deb".into(),
            liar: FakeProvisioner::LIAR,
            keep: Box::new(folder),
        }
    })
    .await;
}

/// Works from a snapshot, and hides it or not.
struct Secretive(Needs);

impl Finalizer for Secretive {
    fn name(&self) -> &'static str {
        "secretive"
    }

    fn stage(&self) -> Stage {
        Stage::Register
    }

    fn needs(&self) -> Needs {
        self.0
    }

    fn plan(self: Arc<Self>, bake: &BakeHandles, steps: &mut Steps<'_>) -> Result<Images, PlanError> {
        match self.0.snapshot {
            false => drop(bake.snapshot("secretive")?),
            true => drop(steps.step("nothing").needs(bake.identity).run((), async |(), _, _| Ok(()))),
        }
        Ok(Images::new())
    }
}

#[tokio::test]
#[should_panic(expected = "the finalizer `secretive` needs a snapshot and did not declare it")]
async fn a_finalizer_that_does_not_declare_its_snapshot() {
    contract::finalizer(|_| Ok(Arc::new(Secretive(Needs { snapshot: false })))).await;
}

#[tokio::test]
#[should_panic(expected = "it declares the snapshot to be needed: true")]
async fn a_finalizer_that_declares_what_it_does_not_use() {
    contract::finalizer(|_| Ok(Arc::new(Secretive(Needs { snapshot: true })))).await;
}
