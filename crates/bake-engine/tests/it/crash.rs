//! The process dies at each point of each step; another one goes on, or takes back what was made.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bake_engine::*;
use serde::{Deserialize, Serialize};

use crate::world::{memory_folder, spec};

/// Makes files: a world that outlives a process. Each send makes one more, so that nothing but the engine keeps us from
/// two.
struct Files {
    folder: PathBuf,
    name: &'static str,
    keep: Keep,
    resend: Resend,
}

#[derive(Serialize, Deserialize)]
struct File {
    name: String,
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join("world").join(name)
    }

    fn found(&self, op: &Op) -> StepResult<Vec<String>> {
        let prefix = format!("{}-{}-", op.step().replace('/', "_"), op.id());
        let files = fs::read_dir(self.folder.join("world")).permanent()?;
        let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        Ok(names.filter(|name| name.starts_with(&prefix)).collect())
    }

    /// The first try of the snapshot fails, and it alone waits before it is tried again.
    fn fails_once(&self, op: &Op) -> bool {
        let marker = self.folder.join("failed-once");
        op.step() == "snapshot" && fs::File::create_new(marker).is_ok()
    }
}

impl Mutation for Files {
    type Request = String;
    type Made = File;
    type Result = u64;
    fn name(&self) -> &'static str {
        self.name
    }
    fn calls(&self) -> Calls {
        Calls { send: &["write"], settle: &["stat"], undo: &["unlink"] }
    }
    fn keep(&self) -> Keep {
        self.keep
    }
    fn resend(&self) -> Resend {
        self.resend
    }
    async fn send(&self, op: &Op, request: &String) -> StepResult<File> {
        if self.fails_once(op) {
            return Err(StepError::transient("hiccup"));
        }
        let before = self.found(op)?;
        if self.resend == Resend::SameAnswer
            && let Some(name) = before.first()
        {
            return Ok(File { name: name.clone() });
        }
        let name = format!("{}-{}-{}", op.step().replace('/', "_"), op.id(), before.len());
        fs::write(self.path(&name), request).permanent()?;
        Ok(File { name })
    }
    async fn find(&self, op: &Op, _: &String) -> StepResult<Found<File>> {
        let mut found = self.found(op)?;
        Ok(match found.len() {
            0 => Found::Absent,
            1 => Found::Made(File { name: found.remove(0) }),
            _ => Found::Ambiguous(found),
        })
    }
    async fn settle(&self, _: &StepContext, _: &String, made: &File) -> StepResult<u64> {
        Ok(fs::metadata(self.path(&made.name)).permanent()?.len())
    }
    async fn undo(&self, _: &Op, made: &File) -> StepResult<Undone> {
        match fs::remove_file(self.path(&made.name)) {
            Ok(()) => Ok(Undone::Gone),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Undone::Gone),
            Err(error) => Err(error).permanent(),
        }
    }
}

/// One process that works in a folder.
struct Process {
    engine: Engine,
    journal: Journal,
    volume: MutationKind<String, u64>,
    image: MutationKind<String, u64>,
    copy: MutationKind<String, u64>,
}

impl Process {
    fn new(folder: &Path) -> Process {
        let mut mutations = Mutations::new();
        let mut register =
            |name, keep, resend| mutations.register(Files { folder: folder.to_owned(), name, keep, resend });
        let volume = register("test.volume", Keep::Scaffold, Resend::OnlyIfAbsent);
        let image = register("test.image", Keep::Artifact, Resend::OnlyIfAbsent);
        let copy = register("test.copy", Keep::Artifact, Resend::SameAnswer);
        let journal = Journal::open(&folder.join("journal.db")).unwrap();
        let engine = Engine::new(journal.clone(), Arc::new(mutations), EngineOptions::default(), EventSink::none());
        Process { engine, journal, volume, image, copy }
    }

    /// A scope with two mutations and a live value, a snapshot, two images at once, a tag, something optional, and
    /// something that a condition leaves out.
    fn plan(&self) -> Plan {
        let mut plan = Plan::new();
        let quick = Retry { attempts: 3, base: Duration::from_millis(60), cap: Duration::from_millis(60) };
        let steps = plan.steps();
        let mut steps = steps.with(StepDefaults::new().retry(quick));
        let size = steps.step("size").run((), async |(), _, ()| Ok(7u64));
        let sealed = steps.scope("volume", |scope| {
            let disk = scope.step("create").needs(size).mutate(&self.volume, |size| format!("{size} GiB"));
            let attached = scope.step("attach").needs(disk).mutate(&self.volume, |disk| format!("disk {disk}"));
            let root = scope.step("mount").needs(attached).open((), async |(), _, n| Ok(n), async |(), _| Ok(()));
            scope.step("install").needs(root).run((), async |(), _, root| Ok(*root));
            scope.step("seal").needs((root, disk)).run((), async |(), _, (_, disk)| Ok(disk))
        });
        let snapshot = steps.step("snapshot").needs(sealed).mutate(&self.image, |disk| format!("of {disk}"));
        let one = steps.step("one").needs(snapshot).mutate(&self.image, |n| format!("one {n}"));
        let two = steps.step("two").needs(snapshot).mutate(&self.copy, |n| format!("two {n}"));
        steps.step("tag").needs((one, two)).mutate(&self.copy, |(one, two)| format!("tag {one} {two}"));
        steps.step("note").needs(two).optional().mutate(&self.image, |_| "note".into());
        steps.step("never").needs(size).when("size > 9", size, |n| Ok(n > 9)).mutate(&self.image, |_| "no".into());
        steps.step("report").needs((one, two)).run((), async |(), _, (one, two)| Ok(one + two));
        plan
    }

    fn run_id(&self) -> Option<RunId> {
        self.journal.runs().unwrap().into_iter().next().map(|run| run.id)
    }

    async fn act(&self, act: &str) {
        let outcome = match (act, self.run_id()) {
            ("run", _) => self.engine.run(self.plan(), spec(), Cancel::new()).await.unwrap(),
            ("resume", Some(run)) => self.engine.resume(self.plan(), &run, Cancel::new()).await.unwrap(),
            ("teardown", Some(run)) => {
                assert_eq!(self.engine.undo(&run, Undo::Everything, Cancel::new()).await.unwrap(), []);
                return self.engine.close(&run, Verdict::Failed).await.unwrap();
            }
            // It died before it had begun, which leaves nothing to do.
            (_, None) => return,
            (other, _) => panic!("nobody knows how to `{other}`"),
        };
        assert_eq!(outcome.verdict, Verdict::Done, "{:?}", outcome.failures);
        assert_eq!(self.engine.undo(&outcome.run, Undo::Scaffolds, Cancel::new()).await.unwrap(), []);
        self.engine.close(&outcome.run, outcome.verdict).await.unwrap();
    }
}

/// Not a test by itself: the process that dies.
#[tokio::test]
async fn child() {
    let Some(folder) = std::env::var_os("BAKE_TEST_CRASH_FOLDER") else { return };
    Process::new(Path::new(&folder)).act(&std::env::var("BAKE_TEST_CRASH_ACT").unwrap()).await;
}

/// Lets another process act, and die at a point if it comes by.
fn act_until(folder: &Path, act: &str, point: &str) -> ExitStatus {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child"])
        .env("BAKE_TEST_CRASH_FOLDER", folder)
        .env("BAKE_TEST_CRASH_ACT", act)
        .env("BAKE_CRASH_AT", point)
        .output()
        .unwrap();
    let fine = child.status.success() || child.status.signal() == Some(6);
    assert!(fine, "{act} until {point}: {}", String::from_utf8_lossy(&child.stdout));
    child.status
}

fn die_at(folder: &Path, act: &str, point: &str) {
    assert_eq!(act_until(folder, act, point).signal(), Some(6), "{act}: nothing came by {point}");
}

fn new_folder() -> tempfile::TempDir {
    let folder = memory_folder();
    fs::create_dir(folder.path().join("world")).unwrap();
    folder
}

fn copy_of(folder: &Path) -> tempfile::TempDir {
    let copy = new_folder();
    for from in [folder.to_owned(), folder.join("world")] {
        for entry in fs::read_dir(&from).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            fs::copy(&entry, copy.path().join(entry.strip_prefix(folder).unwrap())).unwrap();
        }
    }
    copy
}

/// Returns the steps whose things are there, each as often as it is.
fn there(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder.join("world")).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut steps: Vec<_> = names.map(|name| name.split('-').next().unwrap().to_owned()).collect();
    steps.sort();
    steps
}

/// Acts in this process, and checks the world and the journal.
fn finish(folder: &Path, act: &str, after: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let process = Process::new(folder);
    runtime.block_on(process.act(act));
    let Some(run) = process.run_id() else { return assert_eq!(there(folder), Vec::<String>::new(), "{after}") };
    let expected: &[&str] = if act == "resume" { &["note", "one", "snapshot", "tag", "two"] } else { &[] };
    assert_eq!(there(folder), expected, "{act} after {after}");
    let resources = process.journal.resources(&run).unwrap();
    let left = resources.iter().filter(|made| !matches!(made.state, ResourceState::Undone | ResourceState::NotMade));
    let left: BTreeSet<_> = left.map(|made| &*made.step).collect();
    assert_eq!(left, expected.iter().copied().collect(), "{act} after {after}: the journal says the same");
    assert!(process.journal.run(&run).unwrap().unwrap().verdict.is_some());
}

const MUTATIONS: [&str; 7] = ["volume/create", "volume/attach", "snapshot", "one", "two", "tag", "note"];

/// Returns every point that a run passes, as `step:point`.
fn points() -> Vec<String> {
    let of = |steps: &[&str], points: &[&str]| -> Vec<String> {
        steps.iter().flat_map(|step| points.iter().map(move |point| format!("{step}:{point}"))).collect()
    };
    [
        of(&["run"], &["begun", "ended", "closed"]),
        of(&MUTATIONS, &["start", "before_intent", "intent", "sent", "accepted", "settled", "done"]),
        of(&["size", "volume/mount", "volume/install", "volume/seal", "report"], &["start", "settled", "done"]),
        of(&["volume"], &["close", "closed", "done"]),
        of(&["snapshot"], &["retry"]),
        of(&["volume/create", "volume/attach"], &["undo", "undoing", "undone"]),
    ]
    .concat()
}

/// Does something with each, in as many threads as there are cores.
fn with_each<T: Sync>(cases: &[T], check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
                    check(case);
                }
            });
        }
    });
}

#[test]
fn whatever_the_moment_another_process_finishes_it_or_takes_it_back() {
    with_each(&points(), |point| {
        let folder = new_folder();
        die_at(folder.path(), "run", point);
        finish(copy_of(folder.path()).path(), "resume", point);
        finish(folder.path(), "teardown", point);
    });
}

#[test]
fn taking_back_may_die_too_and_is_finished_or_made_good() {
    let points: Vec<_> = MUTATIONS[2..]
        .iter()
        .flat_map(|step| ["undo", "undoing", "undone"].map(|point| format!("{step}:{point}")))
        .collect();
    let done = new_folder();
    finish_first(done.path());
    with_each(&points, |point| {
        let folder = copy_of(done.path());
        die_at(folder.path(), "teardown", point);
        finish(copy_of(folder.path()).path(), "resume", point);
        finish(folder.path(), "teardown", point);
    });
}

fn finish_first(folder: &Path) {
    assert!(act_until(folder, "run", "nowhere:never").success());
}

#[test]
fn who_goes_on_may_die_as_well() {
    let mut points = points();
    points.extend(["run:resumed".to_owned()]);
    // Each point comes first twice and second twice; all pairs would take ten minutes.
    let seconds = |first: usize| [7 * first + 3, 13 * first + 31].map(|second| second % points.len());
    let pairs: Vec<_> = (0..points.len()).flat_map(|first| seconds(first).map(|second| (first, second))).collect();
    let died_twice = AtomicUsize::new(0);
    with_each(&pairs, |&(first, second)| {
        let (first, second) = (&points[first], &points[second]);
        let folder = new_folder();
        if act_until(folder.path(), "run", first).success() {
            return;
        }
        if !act_until(folder.path(), "resume", second).success() {
            died_twice.fetch_add(1, Ordering::SeqCst);
        }
        let after = format!("{first}, then {second}");
        finish(copy_of(folder.path()).path(), "resume", &after);
        finish(folder.path(), "teardown", &after);
    });
    assert!(died_twice.into_inner() > pairs.len() / 3);
}
