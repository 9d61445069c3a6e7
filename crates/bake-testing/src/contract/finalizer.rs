use std::sync::Arc;

use bake_config::Stage;
use bake_core::{Bake, Cloud, Finalizer, FinalizerUse, OnFailure, PlanError};
use bake_engine::{Cancel, Mutations, Verdict};
use serde_json::Value;

use super::promise;
use crate::fake::{FakeCloud, FakeFinalizer, Fakes, Lacks};
use crate::run::sure;

/// The name under which the finalizer is placed in a set; it need not be the plugin's.
const PLACE: &str = "placed";

/// Tries what [`Finalizer`] promises, in sets of its own and behind others. `make` makes the plugin for a cloud.
pub async fn finalizer(make: impl Fn(&dyn Cloud) -> Result<Arc<dyn Finalizer>, PlanError>) {
    finalizer_with(&|_| {}, make).await;
}

/// The same for a plugin whose changes are no cloud's: `register` adds their kinds.
pub async fn finalizer_with(
    register: &'static (impl Fn(&mut Mutations) + Sync),
    make: impl Fn(&dyn Cloud) -> Result<Arc<dyn Finalizer>, PlanError>,
) {
    let subject = Subject { register, make: &make };
    promise("it needs what it says it needs");
    says_what_it_needs(subject);
    promise("a cloud that lacks what it needs is refused by name");
    refuses_a_cloud_by_name(subject);
    promise("planning twice gives the same steps and touches nothing");
    plans_without_a_touch(subject);
    promise("images have stable names");
    names_images_stably(subject);
    promise("all that it makes can be taken back");
    can_be_taken_back(subject).await;
}

type Register = dyn Fn(&mut Mutations) + Sync;
type Make<'a> = &'a dyn Fn(&dyn Cloud) -> Result<Arc<dyn Finalizer>, PlanError>;

/// The plugin that is tried.
#[derive(Clone, Copy)]
struct Subject<'a> {
    register: &'static Register,
    make: Make<'a>,
}

impl Subject<'_> {
    fn fakes(self) -> Fakes {
        self.fakes_with(FakeCloud::new(&["base"]))
    }

    fn fakes_with(self, cloud: FakeCloud) -> Fakes {
        Fakes::with(cloud).registering(self.register)
    }
}

/// A bake whose set is the finalizer alone, or, where it comes later than registering, behind an image.
fn bake(fakes: &Fakes, subject: Subject<'_>) -> Result<(Bake, Mutations), PlanError> {
    fakes.bake(&["hello-bake"], &|cloud| {
        let finalizer = (subject.make)(cloud)?;
        let earlier = match finalizer.stage() {
            Stage::Register => vec![],
            _ => vec![FakeFinalizer::register(cloud)?.placed()],
        };
        Ok(vec![earlier, vec![placed(finalizer)]])
    })
}

/// A bake whose set is the finalizer alone.
fn lonely_bake(fakes: &Fakes, subject: Subject<'_>) -> Result<(Bake, Mutations), PlanError> {
    fakes.bake(&["hello-bake"], &|cloud| Ok(vec![vec![placed((subject.make)(cloud)?)]]))
}

fn placed(finalizer: Arc<dyn Finalizer>) -> FinalizerUse {
    FinalizerUse::new(PLACE, finalizer)
}

fn refuses_a_cloud_by_name(subject: Subject<'_>) {
    for lacks in [Lacks::Snapshots, Lacks::Images, Lacks::Copies, Lacks::Tags] {
        let fakes = subject.fakes_with(FakeCloud::new(&["base"]).lacking(lacks));
        let refused = lonely_bake(&fakes, subject).and_then(|(bake, _)| bake.plan().map(drop)).err();
        match refused {
            None => {}
            Some(PlanError::MissingKind { finalizer, cloud, .. }) => {
                assert!(!finalizer.is_empty(), "nobody is named");
                assert_eq!(cloud, "fake", "the cloud is not named");
            }
            Some(other) => panic!("a cloud that lacks {lacks:?} gives another error: {other}"),
        }
    }
}

fn describe(fakes: &Fakes, subject: Subject<'_>) -> Value {
    sure(sure(bake(fakes, subject)).0.plan()).plan.describe()
}

fn plans_without_a_touch(subject: Subject<'_>) {
    let fakes = subject.fakes();
    let [first, second] = [(); 2].map(|()| describe(&fakes, subject));
    assert_eq!(first, second, "a second plan is another one");
    assert_eq!(first["warnings"], serde_json::json!([]), "a request depends on more than earlier outputs");
    assert_eq!(fakes.cloud.calls(), Vec::<&str>::new(), "planning called the cloud");
    let steps = first["steps"].as_object().expect("a plan has steps").keys();
    let own = format!("finalize/{PLACE}/");
    assert!(steps.clone().any(|step| step.starts_with(&own)), "it has no step below `{own}`: {first:#}");
}

fn says_what_it_needs(subject: Subject<'_>) {
    let fakes = subject.fakes();
    let (bake, _) = sure(lonely_bake(&fakes, subject));
    let needs = bake.composition.finalizers[0][0].finalizer.needs();
    // Whoever uses a snapshot without having declared it gets an error here.
    assert_eq!(bake.composition.mistakes(&bake.known, None).len(), 0, "its own templates name what there is not");
    let planned = sure(bake.plan());
    assert_eq!(planned.handles.maybe_snapshot().is_some(), needs.snapshot);
    let description = planned.plan.describe();
    let steps = description["steps"].as_object().expect("a plan has steps");
    let uses = |step: &Value| step["needs"].as_array().is_some_and(|needs| needs.iter().any(|need| need == "snapshot"));
    let own = format!("finalize/{PLACE}/");
    let users = steps.iter().filter(|(path, step)| path.starts_with(&own) && uses(step)).count();
    assert_eq!(users > 0, needs.snapshot, "it declares the snapshot to be needed: {}", needs.snapshot);
}

fn names_images_stably(subject: Subject<'_>) {
    let fakes = subject.fakes();
    let [first, second] = [(); 2].map(|()| {
        let planned = sure(sure(lonely_bake(&fakes, subject)).0.plan());
        planned.handles.images.into_keys().collect::<Vec<_>>()
    });
    assert_eq!(first, second, "the second plan names its images differently");
    for name in first {
        let good = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        assert!(good, "`{name}` cannot be part of a step's name");
    }
}

async fn can_be_taken_back(subject: Subject<'_>) {
    let fakes = subject.fakes();
    let baked = fakes.run(sure(bake(&fakes, subject)), Cancel::new(), OnFailure::TakeBack).await;
    assert_eq!(baked.outcome.verdict, Verdict::Done, "{:?}", baked.outcome.failures);
    assert_eq!(baked.left, [], "after a bake that went well");
    assert_eq!(fakes.teardown(&baked).await, [], "after teardown");
    assert_eq!(fakes.cloud.alive(), Vec::<String>::new(), "teardown left something");
}
