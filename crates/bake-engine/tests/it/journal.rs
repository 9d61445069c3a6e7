//! What the journal keeps, and what of it survives.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bake_engine::*;

use crate::world::*;

fn plan(bench: &Bench) -> Plan {
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let volume = steps.step("volume").mutate(&bench.volume, |()| make("volume"));
    let work = steps.step("work").needs(volume).run((), async |(), _, volume| Ok(volume.id));
    for number in 0..3 {
        let name = format!("image-{number}");
        steps.step(&name.clone()).needs(work).mutate(&bench.image, move |_| make(&name));
    }
    plan
}

/// What must hold of every journal, however it ended.
fn check(view: &RunView) {
    let step = |path: &str| view.steps.iter().find(|step| step.path == path);
    let done = |path: &str| step(path).is_some_and(|step| step.state == Some(StepState::Done));
    for resource in &view.resources {
        match resource.state {
            ResourceState::Open => assert!(resource.made.is_none() && !done(&resource.step)),
            ResourceState::Accepted => assert!(resource.made.is_some() && !done(&resource.step)),
            ResourceState::Done => assert!(resource.result.is_some() && done(&resource.step)),
            ResourceState::Unknown | ResourceState::NotMade | ResourceState::Undoing | ResourceState::Undone => {
                panic!("{resource:?}")
            }
        }
    }
    // An output is durable before a dependant starts.
    let images = view.resources.iter().any(|resource| resource.step.starts_with("image"));
    assert!(!images || done("work"));
    assert!(step("work").is_none() || done("volume"));
}

#[tokio::test]
async fn any_prefix_of_the_log_loads() {
    let bench = Bench::new();
    assert_eq!(bench.run(plan(&bench)).await.verdict, Verdict::Done);
    let (database, log) = (bench.database(), format!("{}-wal", bench.database().display()));
    let log = fs::read(log).unwrap();
    let copy = bench.folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let (mut loaded, mut lengths) = (0, Vec::new());
    // Frames are a page and a header of 24 bytes; the log has one of 32. An odd step cuts them everywhere.
    for length in (0..=log.len()).step_by(1373).chain([log.len()]) {
        let path = copy.join("journal.db");
        fs::copy(&database, &path).unwrap();
        fs::write(copy.join("journal.db-wal"), &log[..length]).unwrap();
        let _ = fs::remove_file(copy.join("journal.db-shm"));
        let journal = Journal::open(&path).unwrap();
        if let Some(view) = journal.view(&bench.spec.id).unwrap() {
            check(&view);
            loaded += 1;
            lengths.push((view.seq, view.resources.len()));
        }
    }
    assert!(loaded > 5 && lengths.is_sorted(), "{lengths:?}");
    assert_eq!(lengths.last().unwrap().1, 4);
}

#[tokio::test]
async fn an_event_is_told_only_when_the_journal_has_it() {
    let mut bench = Bench::new();
    let reader = Journal::read_only(&bench.database()).unwrap();
    let plan = plan(&bench);
    let run = bench.engine.run(plan, bench.spec.clone(), Cancel::new());
    let listen = async {
        let mut seen = 0;
        while let Ok(Some(event)) = tokio::time::timeout(Duration::from_secs(5), bench.events.next()).await {
            let view = reader.view(&bench.spec.id).unwrap().unwrap();
            assert!(view.seq >= event.seq, "{event:?}");
            if let EventKind::ResourceMade { id, .. } = &event.kind {
                assert!(view.resources.iter().any(|resource| resource.made.as_ref() == Some(id)));
            }
            if let EventKind::StepFinished { .. } = &event.kind {
                let step = event.step.unwrap();
                assert!(view.steps.iter().any(|row| row.path == step && row.state == Some(StepState::Done)));
                seen += 1;
            }
            if seen == 5 {
                break;
            }
        }
        seen
    };
    let (outcome, seen) = tokio::join!(run, listen);
    assert_eq!((outcome.unwrap().verdict, seen), (Verdict::Done, 5));
}

#[tokio::test]
async fn two_processes_write_one_database() {
    let bench = Bench::new();
    let second = Journal::open(&bench.database()).unwrap();
    let engine = Engine::new(second, Default::default(), EngineOptions::default(), EventSink::none());
    let mut local = Plan::new();
    for number in 0..20 {
        local.steps().step(&format!("step-{number}")).run(number, give);
    }
    let other = spec();
    let (one, two) = tokio::join!(bench.run(plan(&bench)), engine.run(local, other.clone(), Cancel::new()));
    assert_eq!((one.verdict, two.unwrap().verdict), (Verdict::Done, Verdict::Done));
    let runs = bench.journal.runs().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(bench.journal.steps(&other.id).unwrap().len(), 20);
    assert_eq!(runs[0].config["environment"], "test");
}

#[tokio::test]
async fn a_retry_is_in_the_journal_while_it_waits() {
    let bench = Bench::new();
    bench.world.fault("image", [Fault::Transient; 9]);
    let mut plan = Plan::new();
    let slow = Retry { attempts: 2, base: Duration::from_secs(3600), cap: Duration::from_secs(3600) };
    plan.steps().step("image").retry(slow).mutate(&bench.image, |()| make("image"));
    let cancel = Cancel::new();
    let look = async {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let steps = bench.journal.steps(&bench.spec.id).unwrap();
            if let Some(retry) = steps.first().and_then(|step| step.retry.clone()) {
                cancel.raise();
                return retry;
            }
        }
    };
    let (outcome, retry) = tokio::join!(bench.run_with(plan, cancel.clone()), look);
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!(retry["class"], "transient");
    assert!(retry["not_before"].is_string() && retry["delay_ms"].is_u64());
}

#[test]
fn a_newer_journal_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    drop(Journal::open(&path).unwrap());
    drop(Journal::open(&path).unwrap());
    execute(&path, "PRAGMA user_version = 99");
    for opened in [Journal::open(&path), Journal::read_only(&path)] {
        let error = opened.err().unwrap().to_string();
        assert!(error.ends_with("has version 99, and this program knows versions up to 2"), "{error}");
    }
}

/// Journals of every version load for ever, and what they say was made can be taken back for ever.
#[tokio::test]
async fn a_journal_of_version_1_is_read_and_taken_back() {
    let folder = memory_folder();
    let path = folder.path().join("journal.db");
    execute(&path, include_str!("journal_1.sql"));
    let run: RunId = "20260301-101500-k3f9".parse().unwrap();
    let before = Journal::read_only(&path).unwrap().view(&run).unwrap().unwrap();
    assert_eq!((before.run.format, before.steps.len(), before.resources.len(), before.seq), (1, 2, 2, 4));
    assert_eq!(before.steps[0].skipped, None);

    let bench = Bench::found(folder, run.as_str());
    assert_eq!(bench.journal.view(&run).unwrap().unwrap(), before, "a new version adds, and changes nothing");
    let error = bench.engine.resume(Plan::new(), &run, Cancel::new()).await.unwrap_err();
    assert!(matches!(error, EngineError::TooOld { .. }), "{error}");
    bench.world.keep("volume-0", "volume");
    assert_eq!((bench.undo(Undo::Everything).await, bench.world.names()), (vec![], vec![]));
    bench.engine.close(&run, Verdict::Failed).await.unwrap();
    let events = bench.journal.events(&run).unwrap();
    assert_eq!(events.last().unwrap().seq, 6);
}

/// Not a test by itself: the process that may write nothing.
#[test]
fn nobody() {
    let Some(path) = std::env::var_os("BAKE_TEST_NOBODY_READS") else { return };
    assert_eq!(Journal::read_only(Path::new(&path)).unwrap().runs().unwrap(), []);
}

#[test]
fn a_journal_that_nobody_writes_is_read_where_nothing_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    // A name that holds what a URI would take for its own.
    let path = folder.path().join("a?b%c#d.db");
    drop(Journal::open(&path).unwrap());
    let entries = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(entries(), ["a?b%c#d.db"], "closing leaves one file");
    let Some(uid) = other_user(folder.path()) else { return };

    let exe = folder.path().join("reader");
    fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    let mut command = std::process::Command::new(exe);
    std::os::unix::process::CommandExt::uid(&mut command, uid);
    let reader = command.args(["--exact", "journal::nobody"]).env("BAKE_TEST_NOBODY_READS", &path).output().unwrap();
    let said = String::from_utf8_lossy(&reader.stdout);
    assert!(reader.status.success() && said.contains("1 passed"), "{said}");
}

/// Opens the folder to a user who may read it and not write. Only root can become another user.
fn other_user(folder: &Path) -> Option<u32> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    if fs::metadata(folder).unwrap().uid() != 0 {
        assert!(std::env::var_os("CI").is_none(), "this test needs root");
        println!("skipped: only root can become another user");
        return None;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    Some(65534)
}

/// Between making the file and making its tables there is a moment in which somebody may look.
#[test]
fn a_journal_that_is_just_being_made_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    std::fs::write(&path, "").unwrap();
    assert_eq!(Journal::read_only(&path).unwrap().runs().unwrap(), []);
    assert_eq!(std::fs::read(&path).unwrap(), b"", "a reader changes nothing");
}
