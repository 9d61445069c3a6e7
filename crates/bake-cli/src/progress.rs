//! Watching a run: one reader of the engine's events, which shows them to people, to scripts and to log files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use bake_engine::{Event, EventKind, EventStream, StepState};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::cli::{Format, Global};
use crate::terminal::{self, plain};

/// How long a spinner rests between two pictures.
const SPIN: Duration = Duration::from_millis(120);

/// Reads events until there are no more, then gives the screen back.
pub(crate) async fn watch(mut events: EventStream, mut watcher: Watcher) {
    while let Some(event) = events.next().await {
        watcher.take(&event);
    }
    watcher.screen.clear();
}

/// Everything that listens to one run.
pub(crate) struct Watcher {
    screen: Screen,
    json: bool,
    logs: StepLogs,
}

impl Watcher {
    /// Makes the listeners that the command line asks for. Log files are always written, below `logs`.
    pub(crate) fn new(global: &Global, format: Format, logs: PathBuf) -> Self {
        Self { screen: Screen::new(global), json: format == Format::Json, logs: StepLogs::new(logs) }
    }

    fn take(&mut self, event: &Event) {
        self.logs.take(event);
        self.screen.take(event);
        if self.json
            && let Ok(line) = serde_json::to_string(event)
        {
            // A reader that went away is seen when the result is written; it must not stop the bake.
            let _gone = terminal::print_line(&line);
        }
    }
}

/// One log file for each step that says anything.
struct StepLogs {
    folder: PathBuf,
    files: BTreeMap<String, Option<File>>,
}

impl StepLogs {
    fn new(folder: PathBuf) -> Self {
        Self { folder, files: BTreeMap::new() }
    }

    fn take(&mut self, event: &Event) {
        if let (Some(step), EventKind::StepLog { line }) = (&event.step, &event.kind) {
            let folder = &self.folder;
            let file = self.files.entry(step.clone()).or_insert_with(|| {
                let path = folder.join(format!("{}.log", step.replace('/', ".")));
                std::fs::create_dir_all(folder)
                    .and_then(|()| File::options().create(true).append(true).open(&path))
                    .ok()
            });
            // A log that cannot be written must not stop the bake: what matters is in the journal.
            let _lost = file.as_mut().map(|file| writeln!(file, "{} {line}", event.at));
        }
    }
}

/// What people see on standard error.
enum Screen {
    Nothing,
    Lines { verbose: bool },
    Spinners { all: MultiProgress, running: BTreeMap<String, ProgressBar>, verbose: bool, colours: bool },
}

impl Screen {
    fn new(global: &Global) -> Self {
        use std::io::IsTerminal;
        let verbose = global.verbose > 0;
        match (global.quiet, std::io::stderr().is_terminal()) {
            (true, _) => Self::Nothing,
            (false, false) => Self::Lines { verbose },
            (false, true) => Self::Spinners {
                all: MultiProgress::new(),
                running: BTreeMap::new(),
                verbose,
                colours: terminal::colours(global),
            },
        }
    }

    fn take(&mut self, event: &Event) {
        match self {
            Self::Nothing => {}
            Self::Lines { verbose } => {
                if let Some(line) = line(event, *verbose) {
                    terminal::tell(&format!("{line}\n"));
                }
            }
            Self::Spinners { all, running, verbose, colours } => {
                spin(all, running, event);
                if let Some(line) = line(event, *verbose) {
                    let line = if *colours { coloured(event, &line) } else { line };
                    // A terminal that is gone shows nothing; the run goes on.
                    let _gone = all.println(line);
                }
            }
        }
    }

    fn clear(&mut self) {
        if let Self::Spinners { all, .. } = self {
            let _gone = all.clear();
        }
    }
}

/// The line that stays on the screen for an event, if it deserves one.
fn line(event: &Event, verbose: bool) -> Option<String> {
    let step = event.step.as_deref().unwrap_or_default();
    match &event.kind {
        EventKind::RunResumed { title, steps, ended } => {
            let (done, all) = (ended.len(), steps.len());
            Some(format!("run {} goes on, {done} of {all} steps are done: {title}", event.run))
        }
        EventKind::RunStarted { title, .. } => Some(format!("run {}: {title}", event.run)),
        EventKind::StepFinished { state, elapsed_ms, .. } if !is_plumbing(event) => {
            let word = match state {
                StepState::Done => "done",
                StepState::Failed => "FAILED",
                StepState::Warned => "failed (optional)",
                StepState::Skipped => "skipped",
                StepState::Cancelled => "cancelled",
                StepState::Unknown => "outcome UNKNOWN",
            };
            Some(format!("  {step:<40} {word:<10} {:>8.2} s", *elapsed_ms as f64 / 1000.0))
        }
        EventKind::StepRetry { error, delay_ms, .. } => {
            let reason = error.last().map_or("", String::as_str);
            Some(format!("  {step:<40} again in {:.1} s: {reason}", *delay_ms as f64 / 1000.0))
        }
        EventKind::StepLog { line } if verbose => Some(format!("  {step}: {}", plain(line))),
        EventKind::ResourceUndone { kind, .. } if verbose => Some(format!("  {step}: {kind} taken back")),
        _ => None,
    }
}

/// Steps that only hold others together say nothing to people.
fn is_plumbing(event: &Event) -> bool {
    event.step.as_deref().is_some_and(|step| step == "volume" || step.contains("/group "))
}

fn coloured(event: &Event, line: &str) -> String {
    let colour = match &event.kind {
        EventKind::StepFinished { state: StepState::Done, .. } => "32",
        EventKind::StepFinished { state: StepState::Skipped, .. } => "2",
        EventKind::StepFinished { .. } => "31",
        EventKind::StepRetry { .. } => "33",
        _ => return line.to_owned(),
    };
    format!("\x1b[{colour}m{line}\x1b[0m")
}

/// Keeps a spinner for every step that runs.
fn spin(all: &MultiProgress, running: &mut BTreeMap<String, ProgressBar>, event: &Event) {
    let Some(step) = event.step.as_deref().filter(|_| !is_plumbing(event)) else { return };
    match &event.kind {
        EventKind::StepStarted => {
            let bar = running.entry(step.to_owned()).or_insert_with(|| all.add(spinner(step)));
            bar.set_message("");
        }
        EventKind::StepProgress { done, total, unit } => {
            if let Some(bar) = running.get(step) {
                bar.set_message(amount(*done, *total, unit));
            }
        }
        EventKind::StepLog { line } => {
            if let Some(bar) = running.get(step) {
                bar.set_message(plain(line));
            }
        }
        EventKind::StepFinished { .. } | EventKind::StepSkipped { .. } => {
            if let Some(bar) = running.remove(step) {
                bar.finish_and_clear();
                all.remove(&bar);
            }
        }
        _ => {}
    }
}

fn spinner(step: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed:>4}  {wide_msg}")
        .expect("the template is a constant");
    let bar = ProgressBar::new_spinner().with_style(style).with_prefix(step.to_owned());
    bar.enable_steady_tick(SPIN);
    bar
}

fn amount(done: u64, total: Option<u64>, unit: &str) -> String {
    let show = |count: u64| match unit {
        "bytes" => indicatif::BinaryBytes(count).to_string(),
        unit => format!("{count} {unit}"),
    };
    match total {
        Some(total) => format!("{} of {}", show(done), show(total)),
        None => show(done),
    }
}
