//! The process dies at each point of the protocol; another one takes back what was made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bake_engine::*;
use serde::{Deserialize, Serialize};

use crate::world::spec;

/// Makes a file: a world that outlives a process.
struct Files {
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct File {
    path: PathBuf,
}

impl Files {
    fn path(&self, op: &Op) -> PathBuf {
        self.folder.join(format!("{}-{}", op.step().replace('/', "_"), op.id()))
    }
}

impl Mutation for Files {
    type Request = String;
    type Made = File;
    type Result = u64;
    fn name(&self) -> &'static str {
        "test.file"
    }
    fn calls(&self) -> Calls {
        Calls { send: &["write"], settle: &["stat"], undo: &["unlink"] }
    }
    fn keep(&self) -> Keep {
        Keep::Artifact
    }
    fn resend(&self) -> Resend {
        Resend::OnlyIfAbsent
    }
    async fn send(&self, op: &Op, request: &String) -> StepResult<File> {
        fs::write(self.path(op), request).permanent()?;
        Ok(File { path: self.path(op) })
    }
    async fn find(&self, op: &Op, _: &String) -> StepResult<Found<File>> {
        let path = self.path(op);
        Ok(if path.exists() { Found::Made(File { path }) } else { Found::Absent })
    }
    async fn settle(&self, _: &StepContext, _: &String, made: &File) -> StepResult<u64> {
        Ok(fs::metadata(&made.path).permanent()?.len())
    }
    async fn undo(&self, _: &Op, made: &File) -> StepResult<Undone> {
        match fs::remove_file(&made.path) {
            Ok(()) => Ok(Undone::Gone),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Undone::Gone),
            Err(error) => Err(error).permanent(),
        }
    }
}

fn engine(folder: &Path) -> (Engine, Journal, MutationKind<String, u64>) {
    let mut mutations = Mutations::new();
    let kind = mutations.register(Files { folder: folder.join("world") });
    let journal = Journal::open(&folder.join("journal.db")).unwrap();
    let engine = Engine::new(journal.clone(), Arc::new(mutations), EngineOptions::default(), EventSink::none());
    (engine, journal, kind)
}

/// Not a test by itself: the process that dies.
#[tokio::test]
async fn child() {
    let Some(folder) = std::env::var_os("BAKE_TEST_CRASH_FOLDER") else { return };
    let (engine, _, kind) = engine(Path::new(&folder));
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let first = steps.step("first").mutate(&kind, |()| "one".into());
    let held = steps.scope("scope", |scope| {
        let live = scope.step("open").open((), async |(), _, ()| Ok(1u32), async |(), _| Ok(()));
        scope.step("inside").needs((live, first)).run((), async |(), _, (live, size)| Ok(size + u64::from(*live)))
    });
    steps.step("second").needs(held).mutate(&kind, |size| format!("{size}"));
    let run = spec();
    engine.run(plan, run.clone(), Cancel::new()).await.unwrap();
    engine.undo(&run.id, Undo::Everything, Cancel::new()).await.unwrap();
    panic!("the process should have died before");
}

fn die_at(folder: &Path, at: &str) {
    fs::create_dir(folder.join("world")).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child"])
        .env("BAKE_TEST_CRASH_FOLDER", folder)
        .env("BAKE_CRASH_AT", at)
        .output()
        .unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(child.status.signal(), Some(6), "{at}: {}", String::from_utf8_lossy(&child.stdout));
}

#[tokio::test]
async fn whatever_the_moment_another_process_takes_it_back() {
    let mutation = ["start", "before_intent", "intent", "sent", "accepted", "settled", "done", "undo", "undone"];
    let mut cases: Vec<_> = mutation.iter().flat_map(|at| [format!("first:{at}"), format!("second:{at}")]).collect();
    cases.extend(
        ["scope/open:done", "scope/inside:settled", "scope:close", "scope:closed", "scope:done"].map(String::from),
    );
    for case in cases {
        let folder = tempfile::tempdir().unwrap();
        die_at(folder.path(), &case);
        let (engine, journal, _) = engine(folder.path());
        let run = journal.runs().unwrap().remove(0);
        assert_eq!(run.verdict, None, "{case}: the run is open");

        let before = fs::read_dir(folder.path().join("world")).unwrap().count();
        let resources = journal.resources(&run.id).unwrap();
        assert!(before <= resources.len(), "{case}: everything that is there has an intent");
        for resource in &resources {
            assert_eq!(resource.made.is_some(), !resource.state.is_pending(), "{case}: {resource:?}");
        }
        assert_eq!(engine.undo(&run.id, Undo::Everything, Cancel::new()).await.unwrap(), [], "{case}");
        assert_eq!(fs::read_dir(folder.path().join("world")).unwrap().count(), 0, "{case}");
        engine.close(&run.id, Verdict::Failed).await.unwrap();
        assert_eq!(journal.run(&run.id).unwrap().unwrap().verdict, Some(Verdict::Failed));
    }
}
