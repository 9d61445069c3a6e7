use std::sync::Arc;

use bake_core::{
    Bake, BakeHandles, BaseQuery, Cloud, Composition, FinalizerUse, Image, Known, OnFailure, PackageRequest, PlanError,
    Planned, to_take_back,
};
use bake_engine::{
    Cancel, Engine, EngineOptions, Event, EventKind, EventSink, Journal, Left, Mutations, Outcome, RunId, RunSpec, Undo,
};
use tempfile::TempDir;

use crate::run::sure;

use super::{FakeBlockDevice, FakeCloud, FakeProvisioner, FakeVolumes};

/// The finalizers of a bake, group by group, for a cloud.
type Finalizers<'a> = &'a dyn Fn(&dyn Cloud) -> Result<Vec<Vec<FinalizerUse>>, PlanError>;

/// What registers kinds of change, besides those of the cloud.
type Register = Arc<dyn Fn(&mut Mutations) + Send + Sync>;

/// Fakes that fit, ready to bake.
#[derive(Clone)]
pub struct Fakes {
    /// With one base image, `base`.
    pub cloud: FakeCloud,
    /// Disks of its volumes.
    pub blockdevice: FakeBlockDevice,
    /// Roots on these disks.
    pub volumes: FakeVolumes,
    /// Installs into them.
    pub provisioner: FakeProvisioner,
    registers: Vec<Register>,
}

/// A bake that has ended.
pub struct Baked {
    /// How it went.
    pub outcome: Outcome,
    /// The promises of the plan, to be asked for in the outcome.
    pub handles: BakeHandles,
    /// The images that were made.
    pub images: Vec<Image>,
    /// What could not be taken back.
    pub left: Vec<Left>,
    /// Paths of the steps in the order in which they began.
    pub began: Vec<String>,
    /// Everything that the journal tells of the run, in order.
    pub events: Vec<Event>,
    journal: Journal,
    _folder: TempDir,
}

impl Baked {
    /// Returns the journal of the run.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }
}

impl Fakes {
    /// Puts fakes together.
    pub fn new() -> Self {
        Self::with(FakeCloud::new(&["base"]))
    }

    /// Puts fakes together around a cloud.
    pub fn with(cloud: FakeCloud) -> Self {
        Self {
            cloud,
            blockdevice: FakeBlockDevice::default(),
            volumes: FakeVolumes::default(),
            provisioner: FakeProvisioner,
            registers: Vec::new(),
        }
    }

    /// Registers the kinds of change that a finalizer brings along, in every bake and for every teardown.
    #[must_use]
    pub fn registering(mut self, register: impl Fn(&mut Mutations) + Send + Sync + 'static) -> Self {
        self.registers.push(Arc::new(register));
        self
    }

    /// The cloud, and all kinds of change that there are.
    fn cloud_and_kinds(&self) -> (Arc<dyn Cloud>, Mutations) {
        let mut mutations = Mutations::new();
        let cloud = self.cloud.build(&mut mutations);
        self.registers.iter().for_each(|register| register(&mut mutations));
        (cloud, mutations)
    }

    /// Makes a bake of these packages, the first of which names the image, and the kinds of change that it needs.
    pub fn bake(&self, packages: &[&str], finalizers: Finalizers<'_>) -> Result<(Bake, Mutations), PlanError> {
        let (cloud, mutations) = self.cloud_and_kinds();
        let finalizers = finalizers(&*cloud)?;
        let composition = Composition {
            cloud,
            blockdevice: Arc::new(self.blockdevice.clone()),
            volume: Arc::new(self.volumes.clone()),
            provisioner: Arc::new(self.provisioner),
            finalizers,
        };
        let packages: Vec<_> = packages.iter().map(ToString::to_string).collect();
        let request = PackageRequest::parse(&packages, packages.first().map(String::as_str), "/".as_ref());
        let request = sure(request);
        let base = BaseQuery::default();
        Ok((Bake { composition, base, request, known: known(), name: None, steps: Vec::new() }, mutations))
    }

    /// Plans and runs a bake, and takes back what must not stay.
    ///
    /// # Panics
    /// If the bake has no plan.
    pub async fn run(&self, bake: (Bake, Mutations), cancel: Cancel, on_failure: OnFailure) -> Baked {
        let (bake, mutations) = bake;
        let Planned { plan, handles } = sure(bake.plan());
        let folder = memory_folder();
        let journal = sure(Journal::open(&folder.path().join("journal.db")));
        let engine = engine(&journal, mutations);
        let run = RunId::new(jiff::Timestamp::now());
        let outcome = sure(engine.run(plan, run_spec(&run), cancel.clone()).await);
        let images = sure(handles.images_made(&outcome));
        let left = match to_take_back(outcome.verdict, &images, on_failure) {
            Some(what) => sure(engine.undo(&run, what, cancel).await),
            None => Vec::new(),
        };
        sure(engine.close(&run, outcome.verdict).await);
        let events = sure(journal.events(&run));
        let began = events.iter().filter(|event| event.kind == EventKind::StepStarted && event.attempt == Some(1));
        let began = began.filter_map(|event| event.step.clone()).collect();
        Baked { outcome, handles, images, left, began, events, journal, _folder: folder }
    }

    /// Takes a run back as another process would: from its journal alone, with plugins made anew.
    pub async fn teardown(&self, baked: &Baked) -> Vec<Left> {
        let (_cloud, mutations) = self.cloud_and_kinds();
        let journal = sure(Journal::open(baked.journal.path()));
        sure(engine(&journal, mutations).undo(&baked.outcome.run, Undo::Everything, Cancel::new()).await)
    }
}

impl Default for Fakes {
    fn default() -> Self {
        Self::new()
    }
}

fn engine(journal: &Journal, mutations: Mutations) -> Engine {
    let (sink, _nobody_listens) = EventSink::channel();
    Engine::new(journal.clone(), Arc::new(mutations), EngineOptions::default(), sink)
}

/// A temporary folder, in memory where there is one: a journal syncs its disk many times, and nobody needs it later.
pub(crate) fn memory_folder() -> TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    folder.expect("a temporary folder")
}

/// Names a run for its journal.
pub(crate) fn run_spec(run: &RunId) -> RunSpec {
    RunSpec {
        id: run.clone(),
        title: "a test".into(),
        request_key: "a test".into(),
        config: serde_json::Value::Null,
        plugins: serde_json::Value::Null,
        started: jiff::Timestamp::now(),
    }
}

fn known() -> Known {
    let vars = [("suffix", "1"), ("creator", "ann")].map(|(key, value)| (key.into(), value.into())).into();
    let started = jiff::Timestamp::from_second(1_796_040_000).expect("a time in this century");
    sure(Known::new(vars, "fake", "run", started))
}
