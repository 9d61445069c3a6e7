//! What a bake came to, for people, for scripts and for the next Jenkins step.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use bake_core::{Account, BakeHandles, Image, Package, PackageChanges, PackageRequest, Renamed, Tags, Volume};
use bake_engine::{Left, ResourceRecord, RunId, SkipReason, StepFailure, Verdict};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure;
use crate::terminal::tell;

/// The whole story of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) run: String,
    pub(crate) environment: String,
    pub(crate) request: String,
    pub(crate) outcome: Outcome,
    #[serde(serialize_with = "code")]
    pub(crate) exit: Exit,
    pub(crate) elapsed_ms: u64,
    /// Whether an earlier bake of the same request was taken instead of a new one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) reused: bool,
    /// Images that exist now.
    pub(crate) images: Vec<Image>,
    /// What became of each image in each region that it was to be copied to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) copies: Vec<Copy>,
    /// Tags of the images.
    pub(crate) tags: Tags,
    /// Images that are not called what was wanted, because that was too long or not legal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) renamed: Vec<Renamed>,
    /// The requested packages as they are in the root now.
    pub(crate) packages: Vec<Package>,
    /// How many packages came, changed and went, against the base.
    pub(crate) package_changes: Changes,
    pub(crate) failures: Vec<Failure>,
    /// Failures of optional finalizers.
    pub(crate) warnings: Vec<Failure>,
    /// What could not be taken back, or was kept on purpose.
    pub(crate) left: Vec<Leftover>,
    /// Operations of which nobody knows whether they happened.
    pub(crate) unknown: Vec<String>,
    /// How to go on with what is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
}

/// An image and where it was to be copied to.
#[derive(Debug, Serialize)]
pub(crate) struct Copy {
    /// Whose the copy was to be, if not the bake's own account's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<String>,
    pub(crate) region: String,
    /// The image's name within the bake.
    pub(crate) image: String,
    pub(crate) outcome: CopyOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CopyOutcome {
    /// It is there.
    Copied,
    /// It was there already: this is where it was registered.
    AlreadyThere,
    Failed,
    /// Nobody came to it: the image was not made, or the bake ended before.
    NotTried,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Changes {
    pub(crate) added: usize,
    pub(crate) changed: usize,
    pub(crate) removed: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    pub(crate) step: String,
    /// From the outermost message to the cause.
    pub(crate) error: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) details: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Leftover {
    pub(crate) kind: String,
    pub(crate) made: serde_json::Value,
    pub(crate) reason: String,
    /// The volume that it is, if it is one and the user asked for it to be kept.
    #[serde(skip)]
    pub(crate) volume: Option<Volume>,
}

/// What a run came to, before it is told.
pub(crate) struct Ended {
    pub(crate) outcome: bake_engine::Outcome,
    pub(crate) left: Vec<Leftover>,
    pub(crate) images: Vec<Image>,
}

impl Ended {
    /// Tells whether there are images although the bake did not end well: good images are kept, and told of.
    pub(crate) fn images_outlived_the_bake(&self) -> bool {
        self.outcome.verdict != Verdict::Done && !self.images.is_empty()
    }
}

/// What a report is about.
pub(crate) struct About<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) environment: &'a str,
    pub(crate) request: &'a PackageRequest,
    pub(crate) handles: &'a BakeHandles,
}

impl Changes {
    pub(crate) fn of(changes: &PackageChanges) -> Self {
        Self { added: changes.added.len(), changed: changes.changed.len(), removed: changes.removed.len() }
    }
}

impl From<StepFailure> for Failure {
    fn from(failure: StepFailure) -> Self {
        Self { step: failure.path, error: failure.error, details: failure.details, hint: failure.hint }
    }
}

impl From<Left> for Leftover {
    fn from(left: Left) -> Self {
        Self { kind: left.kind, made: left.made.unwrap_or_default(), reason: left.reason, volume: None }
    }
}

impl Leftover {
    /// Says that nobody could find out what is left.
    pub(crate) fn unknown(error: &(dyn std::error::Error + 'static)) -> Self {
        let reason = format!("what is left could not be found out: {error}");
        Self { kind: "unknown".into(), made: serde_json::Value::Null, reason, volume: None }
    }

    /// Names something that stays because the user asked for it.
    pub(crate) fn kept(made: ResourceRecord) -> Self {
        let is_volume = made.kind.ends_with(".volume");
        let volume = made.result.filter(|_| is_volume).and_then(|result| serde_json::from_value(result).ok());
        Self { kind: made.kind, made: made.made.unwrap_or_default(), reason: "kept, as you asked".into(), volume }
    }
}

fn code<S: serde::Serializer>(exit: &Exit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(*exit as u8)
}

impl Report {
    /// Puts together what is known when a run has ended.
    pub(crate) fn new(
        about: About<'_>,
        ended: Ended,
        elapsed: Duration,
        advice: Option<String>,
    ) -> anyhow::Result<Self> {
        let something_left = !ended.left.is_empty() || ended.images_outlived_the_bake();
        let Ended { outcome, left, images } = ended;
        let copies = copies(about.handles, &outcome)?;
        let installed = outcome.output(about.handles.installed)?;
        let identity = outcome.output(about.handles.identity)?.unwrap_or_default();
        let how = match outcome.verdict {
            Verdict::Done if images.is_empty() => Outcome::Failed,
            verdict => Outcome::from(verdict),
        };
        let mut failures: Vec<Failure> = outcome.failures.iter().cloned().map(Failure::from).collect();
        failures.extend((outcome.verdict == Verdict::Done && images.is_empty()).then(no_image));
        let unknown = unknown(&outcome);
        let exit = exit_of(how, something_left, !unknown.is_empty(), !outcome.warnings.is_empty());
        Ok(Self {
            run: about.run.to_string(),
            environment: about.environment.to_owned(),
            request: about.request.title(),
            outcome: how,
            exit,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            reused: false,
            images,
            copies,
            tags: identity.image_tags(),
            renamed: identity.renamed,
            package_changes: installed.as_ref().map(|installed| Changes::of(&installed.changes)).unwrap_or_default(),
            packages: installed.map(|installed| installed.requested).unwrap_or_default(),
            failures,
            warnings: outcome.warnings.into_iter().map(Failure::from).collect(),
            left,
            unknown,
            advice,
        })
    }

    /// Tells of an earlier bake whose images are still there.
    pub(crate) fn reused(run: &RunId, environment: &str, request: &PackageRequest, images: Vec<Image>) -> Self {
        Self {
            run: run.to_string(),
            environment: environment.to_owned(),
            request: request.title(),
            outcome: Outcome::Baked,
            exit: Exit::Done,
            elapsed_ms: 0,
            reused: true,
            images,
            copies: Vec::new(),
            tags: Tags::new(),
            renamed: Vec::new(),
            packages: Vec::new(),
            package_changes: Changes::default(),
            failures: Vec::new(),
            warnings: Vec::new(),
            left: Vec::new(),
            unknown: Vec::new(),
            advice: None,
        }
    }

    /// Prints the end of the story to standard error.
    pub(crate) fn tell(&self, quiet: bool) {
        tell(&self.text(quiet));
    }

    fn text(&self, quiet: bool) -> String {
        let mut text = String::new();
        for (word, failures) in [("error", &self.failures), ("warning", &self.warnings)] {
            for one in failures {
                let chain: Vec<String> =
                    std::iter::once(format!("`{}` failed", one.step)).chain(one.error.clone()).collect();
                text.push_str(&failure::describe(word, &chain, &one.details, one.hint.as_deref()));
            }
        }
        for Renamed { wanted, given, .. } in self.renamed.iter().filter(|_| !quiet) {
            let _ = writeln!(text, "note: the image is called `{given}`: `{wanted}` is too long or not legal");
        }
        for unknown in &self.unknown {
            let _ = writeln!(text, "unknown: nobody can tell whether this happened: {unknown}");
        }
        for left in &self.left {
            let _ = writeln!(text, "left: {} {} ({})", left.kind, left.made, left.reason);
        }
        if let Some(advice) = &self.advice {
            let _ = writeln!(text, "hint: {advice}");
        }
        if !quiet {
            let _ = writeln!(text, "{}", self.headline());
        }
        text
    }

    /// One line that says how it ended; its form stays, for those who search logs for it.
    fn headline(&self) -> String {
        let seconds = self.elapsed_ms as f64 / 1000.0;
        // Copies have the names of what they are copies of; how many there are says enough on one line.
        let copies = self.copies.iter().filter(|copy| copy.outcome == CopyOutcome::Copied).count();
        let originals = &self.images[..self.images.len().saturating_sub(copies)];
        let mut names: Vec<_> = originals.iter().map(|image| format!("{} ({})", image.name, image.id)).collect();
        names.extend((copies > 0).then(|| format!("{copies} {}", if copies == 1 { "copy" } else { "copies" })));
        if self.reused {
            return format!("already baked {}: {} [run {}]", self.request, names.join(", "), self.run);
        }
        match names.is_empty() {
            true => format!("{} {} in {seconds:.1} s [run {}]", self.outcome.word(), self.request, self.run),
            false => {
                let outcome = self.outcome.word();
                format!("{outcome} {} in {seconds:.1} s: {} [run {}]", self.request, names.join(", "), self.run)
            }
        }
    }

    /// The lines for standard output: `region account kind id name`. A cloud without accounts has a dash there.
    pub(crate) fn id_lines(&self) -> impl Iterator<Item = String> {
        self.images.iter().map(|image| {
            let account = image.account.as_ref().map_or("-", Account::as_str);
            format!("{} {account} {} {} {}", image.region, image.store, image.id, image.name)
        })
    }

    /// The report as `KEY=VALUE` lines, as Jenkins' EnvInject reads them.
    pub(crate) fn properties(&self) -> String {
        let image = self.images.first();
        let package = self.packages.first();
        let ids = self.images.iter().map(|image| image.id.as_str()).collect::<Vec<_>>().join(" ");
        let fields = [
            ("BAKE_RUN", self.run.clone()),
            ("BAKE_OUTCOME", self.outcome.word().to_owned()),
            ("BAKE_EXIT", (self.exit as u8).to_string()),
            ("BAKE_ENVIRONMENT", self.environment.clone()),
            ("BAKE_REQUEST", self.request.clone()),
            ("BAKE_IMAGE_ID", image.map(|image| image.id.to_string()).unwrap_or_default()),
            ("BAKE_IMAGE_NAME", image.map(|image| image.name.clone()).unwrap_or_default()),
            ("BAKE_IMAGE_REGION", image.map(|image| image.region.to_string()).unwrap_or_default()),
            ("BAKE_IMAGE_IDS", ids),
            ("BAKE_PACKAGE_NAME", package.map(|package| package.name.clone()).unwrap_or_default()),
            ("BAKE_PACKAGE_VERSION", package.map(|package| package.version.clone()).unwrap_or_default()),
            ("BAKE_PACKAGE_RELEASE", package.map(|package| package.release.clone()).unwrap_or_default()),
        ];
        let mut text = String::new();
        for (key, value) in fields {
            // A line that an image smuggled in would be a property of its own; a backslash begins an escape there.
            let value = value.replace(char::is_control, " ").replace('\\', r"\\");
            let _ = writeln!(text, "{key}={value}");
        }
        text
    }

    /// Writes a file so that a reader sees the old one or the whole new one. What is no plain file (a pipe, `/dev/stderr`)
    /// is written to and never replaced.
    pub(crate) fn write(path: &Path, content: &str) -> anyhow::Result<()> {
        let is_special = std::fs::metadata(path).is_ok_and(|there| !there.is_file());
        if is_special {
            let written =
                std::fs::File::options().write(true).open(path).and_then(|mut file| file.write_all(content.as_bytes()));
            return written.with_context(|| format!("cannot write to `{}`", path.display()));
        }
        // A link stays: what it points to is replaced.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let write = || -> std::io::Result<()> {
            // As any file that somebody writes: who may read it is for the umask to say.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
            let mut file = tempfile::Builder::new().permissions(mode).tempfile_in(folder)?;
            file.write_all(content.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().with_context(|| format!("cannot write `{}`", path.display()))
    }
}

fn no_image() -> Failure {
    Failure {
        step: "finalize".into(),
        error: vec!["no image was made: the conditions of every finalizer that registers one were not met".into()],
        details: Vec::new(),
        hint: Some("`bake env eval PREDICATE --run RUN` shows why; `else` says what to do instead".into()),
    }
}

/// Tells what became of each copy. Its name among the images is its region and the image's own name.
fn copies(handles: &BakeHandles, outcome: &bake_engine::Outcome) -> anyhow::Result<Vec<Copy>> {
    let copy = |(name, &handle): (&String, &bake_engine::Handle<Image>)| -> anyhow::Result<Option<Copy>> {
        let parts: Vec<&str> = name.split('/').collect();
        let (account, region, image) = match parts[..] {
            [region, image] => (None, region, image),
            [account, region, image] => (Some(account.to_owned()), region, image),
            _ => return Ok(None),
        };
        let made = outcome.output(handle)?;
        // Steps are `finalize/FINALIZER/NAME`.
        let ends_so = |path: &str| path.splitn(3, '/').nth(2) == Some(name);
        let failed = outcome.failures.iter().chain(&outcome.warnings).any(|failure| ends_so(&failure.path));
        let passed_over = |skipped: &bake_engine::Skipped| {
            ends_so(&skipped.path) && matches!(skipped.reason, SkipReason::Condition(_))
        };
        let how = match &made {
            Some(_) => CopyOutcome::Copied,
            None if failed => CopyOutcome::Failed,
            None if outcome.skipped.iter().any(passed_over) => CopyOutcome::AlreadyThere,
            None => CopyOutcome::NotTried,
        };
        let (region, image) = (region.to_owned(), image.to_owned());
        Ok(Some(Copy { account, region, image, outcome: how, id: made.map(|made| made.id.to_string()) }))
    };
    handles.images.iter().filter_map(|image| copy(image).transpose()).collect()
}

/// Lists operations of which nobody knows whether they happened, or whether it is written down that they did.
fn unknown(outcome: &bake_engine::Outcome) -> Vec<String> {
    let unknown = outcome.unknown.iter().map(|one| format!("{} of `{}`: {}", one.kind, one.step, one.request));
    let unsaved = outcome.unsaved.iter();
    let unsaved = unsaved.map(|one| format!("{} of `{}`, not in the journal: {}", one.kind, one.step, one.made));
    unknown.chain(unsaved).collect()
}

/// Chooses the exit code: what happened, made worse by what is left and by what is not known.
pub(crate) fn exit_of(outcome: Outcome, left: bool, unknown: bool, optional_failed: bool) -> Exit {
    match (outcome, unknown, left) {
        (Outcome::Poisoned, ..) => Exit::Journal,
        (Outcome::Baked, _, true) => Exit::DoneWithLeftovers,
        (Outcome::Baked, ..) if optional_failed => Exit::DoneOptionalFailed,
        (Outcome::Baked, ..) => Exit::Done,
        (Outcome::Failed, true, _) => Exit::FailedUnknown,
        (Outcome::Failed, false, true) => Exit::FailedWithLeftovers,
        (Outcome::Failed, false, false) => Exit::Failed,
        (Outcome::Cancelled, true, _) => Exit::CancelledUnknown,
        (Outcome::Cancelled, false, true) => Exit::CancelledWithLeftovers,
        (Outcome::Cancelled, false, false) => Exit::Cancelled,
    }
}

/// How a run ended, as far as exit codes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Baked,
    Failed,
    Cancelled,
    /// Nothing is known to be written down any more.
    #[serde(rename = "failed")]
    Poisoned,
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Done => Self::Baked,
            Verdict::Failed => Self::Failed,
            Verdict::Cancelled => Self::Cancelled,
            Verdict::Poisoned => Self::Poisoned,
        }
    }
}

impl Outcome {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Baked => "baked",
            Self::Failed | Self::Poisoned => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_replaces_files_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "old").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        Report::write(&path("link"), "new").unwrap();
        assert!(path("link").is_symlink());
        assert_eq!(std::fs::read_to_string(path("file")).unwrap(), "new");

        Report::write(&path("fresh"), "new").unwrap();
        assert_eq!(std::fs::read_to_string(path("fresh")).unwrap(), "new");

        // A device: if it were replaced, this would be a plain file afterwards.
        std::os::unix::fs::symlink("/dev/full", path("full")).unwrap();
        assert!(Report::write(&path("full"), "new").is_err());
        assert!(!std::fs::metadata("/dev/full").unwrap().is_file());
    }

    #[test]
    fn every_end_has_its_exit_code() {
        let codes = |outcome| {
            let code = |left, unknown| exit_of(outcome, left, unknown, false) as u8;
            [code(false, false), code(true, false), code(false, true), code(true, true)]
        };
        assert_eq!(codes(Outcome::Baked), [0, 11, 0, 11]);
        assert_eq!(codes(Outcome::Failed), [20, 21, 22, 22]);
        assert_eq!(codes(Outcome::Cancelled), [30, 31, 32, 32]);
        assert_eq!(codes(Outcome::Poisoned), [74; 4]);
        assert_eq!(exit_of(Outcome::Baked, false, false, true), Exit::DoneOptionalFailed);
    }
}
