use std::fmt::Debug;
use std::sync::Arc;

use bake_core::{
    Architecture, BaseId, BaseImage, BaseQuery, Cloud, CloudKinds, CopyImage, CreateSnapshot, CreateVolume, Encryption,
    Image, ImageId, Medium, Package, Region, RegisterImage, RootDisk, Snapshot, SnapshotId, TagResource, Taggable,
    Tags, Volume, VolumeKinds,
};
use bake_engine::{Keep, MutationKind, Mutations, Output, ResourceState, RunId, StepError};

use super::process::{Inherited, Process};
use super::{cx, promise};

/// The world in which one promise of a cloud is tried: a state, and instances of the cloud that share it.
pub trait CloudWorld {
    /// Makes the cloud anew over the same state, as another process does.
    fn build(&self, mutations: &mut Mutations) -> Arc<dyn Cloud>;

    /// Describes everything that there is, a line for each: base images, what was made, and leftovers.
    fn inventory(&self) -> Vec<String>;

    /// Names the kinds of change that say [`Resend::OnlyIfAbsent`](bake_engine::Resend): sent again, they make a second
    /// thing or fail. All others have to give the first answer again.
    fn makes_twice(&self) -> &[&str] {
        &[]
    }

    /// Returns how the volumes that are tried come to this machine: the first way that the cloud has, if nobody says.
    fn medium(&self) -> Option<Medium> {
        None
    }

    /// Names a region in which nothing is, for copies.
    fn another_region(&self) -> Region {
        Region::new("there")
    }
}

impl CloudWorld for crate::fake::FakeCloud {
    fn build(&self, mutations: &mut Mutations) -> Arc<dyn Cloud> {
        Self::build(self, mutations)
    }

    fn inventory(&self) -> Vec<String> {
        Self::inventory(self)
    }

    fn makes_twice(&self) -> &[&str] {
        &["fake.snapshot", "fake.image", "fake.copy"]
    }
}

/// Tries what [`Cloud`] and [`Mutation`](bake_engine::Mutation) promise. `make` makes a world with base images of these
/// names and nothing else.
pub async fn cloud<W: CloudWorld>(make: impl AsyncFn(&[&str]) -> W) {
    promise("reads can be repeated and change nothing");
    reads_change_nothing(&make(&[BASE]).await).await;
    promise("an unknown base image is an error that names it");
    unknown_bases_are_named(&make(&[BASE]).await).await;
    promise("which of two base images is meant is never guessed");
    nothing_is_guessed(&make(&["one", "two"]).await).await;
    promise("kinds of change are named after the cloud");
    kinds_are_named(&make(&[BASE]).await);

    keeps_its_promises::<Volumes, W>(&make).await;
    keeps_its_promises::<Snapshots, W>(&make).await;
    keeps_its_promises::<Images, W>(&make).await;
    keeps_its_promises::<Copies, W>(&make).await;

    promise("a volume has its size, and its file if volumes are files");
    volumes_have_their_size(&Ground::new(make(&[BASE]).await).await).await;
    promise("a snapshot outlives its volume");
    snapshots_outlive_their_volumes(&Ground::new(make(&[BASE]).await).await).await;
    promise("a snapshot that an image is made of is in use until the image is gone");
    images_keep_their_snapshots(&Ground::new(make(&[BASE]).await).await).await;
    promise("an image's name is given once");
    names_are_given_once(&Ground::new(make(&[BASE]).await).await).await;
    promise("a copy is an image in the region that was asked for, with the tags that were asked for");
    copies_are_as_asked(&Ground::new(make(&[BASE]).await).await).await;
    promise("a copy goes without its image, and an image without its copies");
    copies_and_their_images_go_alone(&Ground::new(make(&[BASE]).await).await).await;
    promise("tags are read back as they were set; others stay");
    tags_are_read_back(&Ground::new(make(&[BASE]).await).await).await;
    promise("what carries tags says which run made it");
    tags_tell_the_run(&Ground::new(make(&[BASE]).await).await).await;
}

const BASE: &str = "a-base";

fn run(name: &str) -> RunId {
    name.parse().expect("a legal name")
}

fn query(wanted: &str) -> BaseQuery {
    BaseQuery { wanted: Some(wanted.into()), region: None }
}

fn create_volume(base: &BaseImage) -> CreateVolume {
    CreateVolume { base: base.id.clone(), region: base.region.clone(), snapshot: base.snapshot.clone() }
}

/// All that an error tells a person.
fn told(error: &StepError) -> String {
    [error.chain(), error.detail_lines().to_vec()].concat().join("\n")
}

async fn resolve(cloud: &dyn Cloud, query: &BaseQuery) -> BaseImage {
    let resolved = cloud.resolve_base(cx(), query).await;
    resolved.unwrap_or_else(|error| panic!("{query:?} was not resolved: {error:?}"))
}

async fn reads_change_nothing(world: &dyn CloudWorld) {
    let before = world.inventory();
    let cloud = world.build(&mut Mutations::new());
    let base = resolve(&*cloud, &query(BASE)).await;
    assert_eq!(base.name, BASE);
    assert!(base.size > 0, "`{BASE}` has no size");
    let in_region = BaseQuery { region: Some(base.region.clone()), ..query(BASE) };
    for same in [BaseQuery::default(), query(BASE), query(base.id.as_str()), in_region] {
        assert_eq!(resolve(&*cloud, &same).await, base, "{same:?} is another one than `{BASE}`");
    }
    assert_eq!(world.inventory(), before, "a read has changed something");
}

async fn unknown_bases_are_named(world: &dyn CloudWorld) {
    let cloud = world.build(&mut Mutations::new());
    for wanted in ["no-such-base", "../a-base", "a-bas"] {
        let Err(error) = cloud.resolve_base(cx(), &query(wanted)).await else { panic!("`{wanted}` was resolved") };
        assert!(told(&error).contains(wanted), "the error does not name `{wanted}`: {error:?}");
    }
}

async fn nothing_is_guessed(world: &dyn CloudWorld) {
    let cloud = world.build(&mut Mutations::new());
    let Err(error) = cloud.resolve_base(cx(), &BaseQuery::default()).await else {
        panic!("one of two base images was taken, although nobody said which")
    };
    let told = told(&error);
    assert!(told.contains("one") && told.contains("two"), "the error does not list the candidates: {told}");
    for name in ["one", "two"] {
        assert_eq!(resolve(&*cloud, &query(name)).await.name, name);
    }
}

fn kinds_are_named(world: &dyn CloudWorld) {
    let cloud = world.build(&mut Mutations::new());
    let kinds = cloud.kinds();
    let volumes = volume_kinds(world, kinds);
    let names = [
        Some((volumes.create.name(), "volume")),
        volumes.attach.as_ref().map(|kind| (kind.name(), "attachment")),
        volumes.snapshot.as_ref().map(|kind| (kind.name(), "snapshot")),
        kinds.image.as_ref().map(|kind| (kind.name(), "image")),
        kinds.copy.as_ref().map(|kind| (kind.name(), "copy")),
        kinds.tag.as_ref().map(|kind| (kind.name(), "tags")),
    ];
    for (name, what) in names.into_iter().flatten() {
        assert!(name.starts_with(&format!("{}.", cloud.name())), "the kind for {what} is called `{name}`");
    }
}

/// What is done with the volumes that are tried.
fn volume_kinds<'a>(world: &dyn CloudWorld, kinds: &'a CloudKinds) -> &'a VolumeKinds {
    &kinds.volumes[&medium(world, kinds)]
}

fn medium(world: &dyn CloudWorld, kinds: &CloudKinds) -> Medium {
    let first = || kinds.volumes.keys().next().copied();
    world.medium().or_else(first).expect("a cloud has volumes")
}

/// A world with a process that has prepared what is to be tried.
struct Ground<W> {
    world: W,
    process: Process,
    base: BaseImage,
}

impl<W: CloudWorld> Ground<W> {
    async fn new(world: W) -> Self {
        let process = Process::new(&world);
        let base = resolve(&*process.cloud, &query(BASE)).await;
        Self { world, process, base }
    }

    fn kinds(&self) -> &CloudKinds {
        self.process.cloud.kinds()
    }

    fn medium(&self) -> Medium {
        medium(&self.world, self.kinds())
    }

    fn volume_kinds(&self) -> &VolumeKinds {
        volume_kinds(&self.world, self.kinds())
    }

    /// Makes a volume in the run `volume`.
    async fn volume(&self) -> Volume {
        let request = create_volume(&self.base);
        self.process.make(&run("volume"), &self.volume_kinds().create, &request).await
    }

    fn of_volume(&self, volume: &Volume) -> CreateSnapshot {
        CreateSnapshot {
            volume: volume.id.clone(),
            region: volume.region.clone(),
            description: "a contract".into(),
            tags: tags(&[("Of", "a snapshot")]),
        }
    }

    /// Makes a volume and its snapshot, in the run `snapshot`; `None` if the cloud has no snapshots.
    async fn snapshot(&self) -> Option<Snapshot> {
        let kind = self.volume_kinds().snapshot.as_ref()?;
        let request = self.of_volume(&self.volume().await);
        Some(self.process.make(&run("snapshot"), kind, &request).await)
    }

    fn of_snapshot(&self, snapshot: &Snapshot, name: &str) -> RegisterImage {
        RegisterImage {
            name: name.into(),
            description: "a contract".into(),
            snapshot: snapshot.id.clone(),
            region: snapshot.region.clone(),
            architecture: Architecture::of_this_machine(),
            base: BaseId::new(self.base.id.as_str()),
            packages: vec![Package::from_debian("hello", "1:2.10-3", "amd64")],
            tags: tags(&[("Of", "an image")]),
            machine: self.base.machine.clone(),
            disk: RootDisk::default(),
        }
    }

    /// Makes an image `an-image` in the run `image`, and all that it is made of.
    async fn image(&self) -> Option<(Snapshot, Image)> {
        let kind = self.kinds().image.as_ref()?;
        let snapshot = self.snapshot().await?;
        let image = self.process.make(&run("image"), kind, &self.of_snapshot(&snapshot, "an-image")).await;
        Some((snapshot, image))
    }

    fn of_image(&self, image: &Image) -> CopyImage {
        CopyImage {
            image: image.id.clone(),
            from: image.region.clone(),
            region: self.world.another_region(),
            name: image.name.clone(),
            tags: tags(&[("Team", "red"), ("empty", "")]),
            account: None,
            encryption: Encryption::Inherit,
        }
    }
}

/// A kind of thing that a cloud makes.
trait Kind {
    type Request: Output + Clone;
    type Result: Output + PartialEq + Debug;
    const WORD: &'static str;
    const KEEP: Keep;

    fn of(kinds: &CloudKinds, volumes: &VolumeKinds) -> Option<MutationKind<Self::Request, Self::Result>>;

    /// Prepares what is needed, and returns a request; `None` if the cloud cannot do that.
    async fn request<W: CloudWorld>(ground: &Ground<W>) -> Option<Self::Request>;
}

struct Volumes;
struct Snapshots;
struct Images;
struct Copies;

impl Kind for Volumes {
    type Request = CreateVolume;
    type Result = Volume;
    const WORD: &'static str = "volume";
    const KEEP: Keep = Keep::Scaffold;

    fn of(_: &CloudKinds, volumes: &VolumeKinds) -> Option<MutationKind<CreateVolume, Volume>> {
        Some(volumes.create.clone())
    }

    async fn request<W: CloudWorld>(ground: &Ground<W>) -> Option<CreateVolume> {
        Some(create_volume(&ground.base))
    }
}

impl Kind for Snapshots {
    type Request = CreateSnapshot;
    type Result = Snapshot;
    const WORD: &'static str = "snapshot";
    const KEEP: Keep = Keep::Artifact;

    fn of(_: &CloudKinds, volumes: &VolumeKinds) -> Option<MutationKind<CreateSnapshot, Snapshot>> {
        volumes.snapshot.clone()
    }

    async fn request<W: CloudWorld>(ground: &Ground<W>) -> Option<CreateSnapshot> {
        Some(ground.of_volume(&ground.volume().await))
    }
}

impl Kind for Images {
    type Request = RegisterImage;
    type Result = Image;
    const WORD: &'static str = "image";
    const KEEP: Keep = Keep::Artifact;

    fn of(kinds: &CloudKinds, _: &VolumeKinds) -> Option<MutationKind<RegisterImage, Image>> {
        kinds.image.clone()
    }

    async fn request<W: CloudWorld>(ground: &Ground<W>) -> Option<RegisterImage> {
        Some(ground.of_snapshot(&ground.snapshot().await?, "an-image"))
    }
}

impl Kind for Copies {
    type Request = CopyImage;
    type Result = Image;
    const WORD: &'static str = "copy";
    const KEEP: Keep = Keep::Artifact;

    fn of(kinds: &CloudKinds, _: &VolumeKinds) -> Option<MutationKind<CopyImage, Image>> {
        kinds.copy.clone()
    }

    async fn request<W: CloudWorld>(ground: &Ground<W>) -> Option<CopyImage> {
        let (_, image) = ground.image().await?;
        Some(ground.of_image(&image))
    }
}

/// One thing that was made, and what was there before.
struct Trial<K: Kind, W> {
    ground: Ground<W>,
    request: K::Request,
    result: K::Result,
    run: RunId,
    before: Vec<String>,
    after: Vec<String>,
}

impl<K: Kind, W: CloudWorld> Trial<K, W> {
    async fn new(world: W) -> Option<Self> {
        let ground = Ground::new(world).await;
        let kind = K::of(ground.kinds(), ground.volume_kinds())?;
        let request = K::request(&ground).await?;
        let (run, before) = (run("trial"), ground.world.inventory());
        let result = ground.process.make(&run, &kind, &request).await;
        let after = ground.world.inventory();
        assert_ne!(after, before, "the {} is said to be made, and there is nothing", K::WORD);
        Some(Self { ground, request, result, run, before, after })
    }

    fn heir(&self, inherited: Inherited<'_>) -> Process {
        Process::heir(&self.ground.world, &self.ground.process, inherited)
    }

    #[track_caller]
    fn assert_there(&self, when: &str) {
        assert_eq!(self.ground.world.inventory(), self.after, "the {} is not as it was {when}", K::WORD);
    }

    #[track_caller]
    fn assert_gone(&self, when: &str) {
        let now = self.ground.world.inventory();
        let lost: Vec<_> = self.before.iter().filter(|line| !now.contains(line)).collect();
        assert!(lost.is_empty(), "the {} took something else with it {when}: {lost:#?}", K::WORD);
        assert_eq!(now, self.before, "the {} left something behind {when}", K::WORD);
    }
}

async fn keeps_its_promises<K: Kind, W: CloudWorld>(make: &impl AsyncFn(&[&str]) -> W) {
    let trial = async || Trial::<K, W>::new(make(&[BASE]).await).await;
    let word = K::WORD;
    let Some(first) = trial().await else { return promise(&format!("(it makes no {word})")) };
    assert_eq!(first.ground.process.resource(&first.run).keep, K::KEEP, "whether a {word} stays is wrong");

    promise(&format!("a {word} that is asked for twice in one operation is there once, or known to be there twice"));
    made_once(&first).await;
    for (text, inherited) in [("", Inherited::All), (", also if the answer was lost", Inherited::NoAnswers)] {
        promise(&format!("a {word} is undone by another process{text}, and once more"));
        undone_by_another(&trial().await.expect("as the first time"), inherited).await;
    }
    promise(&format!("a {word} is undone by the run that made it only"));
    undone_by_its_own_run(&trial().await.expect("as the first time")).await;
}

/// Another process sends the same operation: token and request are the same.
async fn made_once<K: Kind, W: CloudWorld>(trial: &Trial<K, W>) {
    let (word, second) = (K::WORD, Process::new(&trial.ground.world));
    let kinds = second.cloud.kinds();
    let kind = K::of(kinds, volume_kinds(&trial.ground.world, kinds)).expect("another instance can do the same");
    let may_differ = trial.ground.world.makes_twice().contains(&kind.name());
    let answer = second.try_make(&trial.run, &kind, &trial.request).await;
    let made = |process: &Process| process.resource(&trial.run).made;
    match answer {
        Ok(result) if made(&second) == made(&trial.ground.process) => {
            assert_eq!(result, trial.result, "the {word} is read back differently the second time");
            trial.assert_there("before it was asked for again");
        }
        Ok(_) if may_differ => two_are_known(trial, &second).await,
        Err(_) if may_differ => trial.assert_there("before it was asked for again in vain"),
        Ok(_) => panic!("a {word} was made twice by one operation"),
        Err(failure) => panic!("a {word} that was made has no answer the second time: {:?}", failure.error),
    }
    assert_eq!(trial.ground.process.undo(&trial.run).await, [], "the {word} cannot be taken back");
    trial.assert_gone("when it was taken back");
}

/// A look finds two, and takes none of them for ours.
async fn two_are_known<K: Kind, W: CloudWorld>(trial: &Trial<K, W>, second: &Process) {
    let (word, both) = (K::WORD, trial.ground.world.inventory());
    let left = trial.heir(Inherited::NoAnswers).undo(&trial.run).await;
    assert_eq!(left.len(), 1, "of two {word}s of one operation, one was taken by a guess");
    assert_eq!(trial.ground.world.inventory(), both, "of two {word}s of one operation, one was taken back");
    assert_eq!(second.undo(&trial.run).await, [], "the second {word} cannot be taken back");
    trial.assert_there("before there was a second one");
}

async fn undone_by_another<K: Kind, W: CloudWorld>(trial: &Trial<K, W>, inherited: Inherited<'_>) {
    let word = K::WORD;
    let (other, late) = (trial.heir(inherited), trial.heir(inherited));
    assert_eq!(other.undo(&trial.run).await, [], "the {word} cannot be taken back by another process");
    let state = other.resource(&trial.run).state;
    assert_eq!(state, ResourceState::Undone, "the {word} was not found by the operation that made it");
    trial.assert_gone("when another process took it back");

    assert_eq!(late.undo(&trial.run).await, [], "a {word} that is gone cannot be taken back once more");
    let expected = match inherited {
        Inherited::NoAnswers => ResourceState::NotMade,
        Inherited::All | Inherited::Renamed { .. } => ResourceState::Undone,
    };
    assert_eq!(late.resource(&trial.run).state, expected, "a {word} that is gone was found");
    trial.assert_gone("when it was taken back once more");
}

async fn undone_by_its_own_run<K: Kind, W: CloudWorld>(trial: &Trial<K, W>) {
    let stranger = run("another-run");
    let renamed = Inherited::Renamed { run: &trial.run, to: &stranger };
    let left = trial.heir(renamed).undo(&stranger).await;
    assert_eq!(left.len(), 1, "a {} was taken back by a run that did not make it", K::WORD);
    trial.assert_there("before another run wanted to take it back");
}

async fn volumes_have_their_size<W: CloudWorld>(ground: &Ground<W>) {
    let volume = ground.volume().await;
    assert!(volume.size >= ground.base.size, "the volume is smaller than its base image");
    assert_eq!(volume.region, ground.base.region);
    if ground.medium() == Medium::File {
        let file = ground.process.cloud.disk_file(&volume).await;
        let file = file.unwrap_or_else(|error| panic!("the volume has no file: {error:?}"));
        let size = std::fs::metadata(&file).unwrap_or_else(|error| panic!("`{}`: {error}", file.display())).len();
        assert_eq!(size, volume.size, "the volume's file has another size");
    }
}

async fn snapshots_outlive_their_volumes<W: CloudWorld>(ground: &Ground<W>) {
    let Some(snapshot) = ground.snapshot().await else { return };
    assert_eq!(ground.process.undo(&run("volume")).await, [], "the volume of a snapshot cannot be taken back");
    let Some(kind) = &ground.kinds().image else { return };
    ground.process.make(&run("image"), kind, &ground.of_snapshot(&snapshot, "an-image")).await;
}

async fn images_keep_their_snapshots<W: CloudWorld>(ground: &Ground<W>) {
    let Some(_) = ground.image().await else { return };
    let (process, before) = (&ground.process, ground.world.inventory());
    assert_eq!(process.undo(&run("snapshot")).await.len(), 1, "the snapshot of an image was taken back");
    assert_eq!(ground.world.inventory(), before, "a snapshot that is in use was changed");

    // It waits for the image to go: who is in use is asked again, and says so until it is not.
    let (snapshot_run, image_run) = (run("snapshot"), run("image"));
    let (waited, image) = tokio::join!(process.undo(&snapshot_run), process.undo(&image_run));
    assert_eq!((waited, image), (vec![], vec![]), "a snapshot cannot be taken back after its image");
}

async fn names_are_given_once<W: CloudWorld>(ground: &Ground<W>) {
    let Some((snapshot, image)) = ground.image().await else { return };
    assert_eq!(image.name, "an-image");
    let kind = ground.kinds().image.as_ref().expect("there is an image");
    let request = ground.of_snapshot(&snapshot, "an-image");
    is_refused_for_its_name(ground, kind, &request).await;
    assert_eq!(ground.process.undo(&run("image")).await, []);
    ground.process.make(&run("later"), kind, &request).await;
}

/// Another image of the region is named `an-image`.
async fn is_refused_for_its_name<W: CloudWorld, Q: Output + Clone>(
    ground: &Ground<W>,
    kind: &MutationKind<Q, Image>,
    request: &Q,
) {
    let before = ground.world.inventory();
    let Err(failure) = ground.process.try_make(&run("same-name"), kind, request).await else {
        panic!("two images are named `an-image`")
    };
    assert!(failure.error.join(": ").contains("an-image"), "the error does not name `an-image`: {:?}", failure.error);
    assert_eq!(ground.world.inventory(), before, "a name that was taken has left something");

    assert_eq!(ground.process.undo(&run("same-name")).await, [], "an image that was not made cannot be undone");
    assert_eq!(ground.world.inventory(), before, "undoing an image that was not made took another one");
}

async fn copies_are_as_asked<W: CloudWorld>(ground: &Ground<W>) {
    let Some(kind) = &ground.kinds().copy else { return };
    let Some((_, image)) = ground.image().await else { return };
    let request = ground.of_image(&image);
    let copy = ground.process.make(&run("copy"), kind, &request).await;
    assert_eq!((&copy.name, &copy.region), (&request.name, &request.region), "the copy is not what was asked for");
    let resource = Taggable::Image(copy.id);
    if let Some(found) = read_tags(ground, &run("tags"), resource, &copy.region).await {
        assert_has(&found, &request.tags);
        assert_has(&found, &tags(&[("bake:run", "copy")]));
    }
    is_refused_for_its_name(ground, kind, &request).await;

    let nobody = CopyImage { image: ImageId::new("no-such-image"), name: "a-copy".into(), ..request };
    let Err(failure) = ground.process.try_make(&run("copy-of-nothing"), kind, &nobody).await else {
        panic!("an image that does not exist was copied")
    };
    assert!(failure.error.join(": ").contains("no-such-image"), "{:?}", failure.error);
}

async fn copies_and_their_images_go_alone<W: CloudWorld>(ground: &Ground<W>) {
    let Some(kind) = &ground.kinds().copy else { return };
    let Some((_, image)) = ground.image().await else { return };
    let (process, before) = (&ground.process, ground.world.inventory());
    let copy = process.make(&run("copy"), kind, &ground.of_image(&image)).await;
    let after = ground.world.inventory();
    assert!(before.iter().all(|line| after.contains(line)), "copying an image has changed it: {before:#?} {after:#?}");

    for of_source in ["image", "snapshot", "volume"] {
        assert_eq!(process.undo(&run(of_source)).await, [], "the {of_source} of a copied image cannot be taken back");
    }
    // It is whole: the image can be made of it again, where it was.
    let back = CopyImage { region: image.region, ..ground.of_image(&copy) };
    process.make(&run("back"), kind, &back).await;
    let with_both = ground.world.inventory();
    assert_eq!(process.undo(&run("copy")).await, [], "a copy cannot be taken back after its image");
    let left = ground.world.inventory();
    assert!(left.len() < with_both.len(), "a copy stayed when it was taken back");
    assert_eq!(process.undo(&run("back")).await, [], "an image cannot be taken back after its copy");
}

/// Returns the tags of something, if the cloud has tags.
async fn read_tags<W: CloudWorld>(
    ground: &Ground<W>,
    run: &RunId,
    resource: Taggable,
    region: &Region,
) -> Option<Tags> {
    let kind = ground.kinds().tag.as_ref()?;
    let request = TagResource { resource, region: region.clone(), tags: tags(&[("a", "b")]) };
    Some(ground.process.make(run, kind, &request).await.tags)
}

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

#[track_caller]
fn assert_has(all: &Tags, expected: &Tags) {
    for (key, value) in expected {
        assert_eq!(all.get(key), Some(value), "the tag `{key}` is not as it was set: {all:?}");
    }
}

/// What carries tags: each with the run that made it.
async fn taggable<W: CloudWorld>(ground: &Ground<W>) -> Vec<(Taggable, RunId)> {
    match ground.image().await {
        Some((snapshot, image)) => {
            vec![(Taggable::Snapshot(snapshot.id), run("snapshot")), (Taggable::Image(image.id), run("image"))]
        }
        None => {
            let snapshot = ground.snapshot().await;
            snapshot.map(|snapshot| (Taggable::Snapshot(snapshot.id), run("snapshot"))).into_iter().collect()
        }
    }
}

async fn tags_are_read_back<W: CloudWorld>(ground: &Ground<W>) {
    let Some(kind) = &ground.kinds().tag else { return };
    for (number, (resource, _)) in taggable(ground).await.into_iter().enumerate() {
        let region = &ground.base.region;
        let request = |tags| TagResource { resource: resource.clone(), region: region.clone(), tags };
        let first = tags(&[("Team", "red"), ("team", "blue"), ("grüße", "☃ = 1"), ("empty", "")]);
        let process = &ground.process;
        let set = process.make(&run(&format!("tags-{number}")), kind, &request(first.clone())).await;
        assert_has(&set.tags, &first);

        let again = Process::new(&ground.world);
        let again_kind = again.cloud.kinds().tag.as_ref().expect("another instance can do the same");
        let same = again.make(&run(&format!("tags-{number}")), again_kind, &request(first.clone())).await;
        assert_eq!(same, set, "setting the same tags again changed something");

        let changed = process.make(&run(&format!("more-{number}")), kind, &request(tags(&[("Team", "green")]))).await;
        assert_has(&changed.tags, &Tags::from_iter(first.into_iter().chain(tags(&[("Team", "green")]))));
        assert_eq!(process.undo(&run(&format!("more-{number}"))).await, [], "tags stand in the way of an undo");
    }
    let nobody = TagResource {
        resource: Taggable::Snapshot(SnapshotId::new("no-such-snapshot")),
        region: ground.base.region.clone(),
        tags: tags(&[("a", "b")]),
    };
    let Err(failure) = ground.process.try_make(&run("tags-of-nothing"), kind, &nobody).await else {
        panic!("tags were set on a snapshot that does not exist")
    };
    assert!(failure.error.join(": ").contains("no-such-snapshot"), "{:?}", failure.error);
}

async fn tags_tell_the_run<W: CloudWorld>(ground: &Ground<W>) {
    for (number, (resource, maker)) in taggable(ground).await.into_iter().enumerate() {
        let found = read_tags(ground, &run(&format!("tags-{number}")), resource, &ground.base.region).await;
        if let Some(found) = found {
            assert_has(&found, &tags(&[("bake:run", maker.as_str())]));
        }
    }
}
