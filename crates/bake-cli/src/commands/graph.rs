use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use bake_engine::{Journal, RunId, RunView};
use bake_graph::Drawing;
use clap::ValueEnum;

use crate::asked::Asked;
use crate::cli::Global;
use crate::configuration::Configuration;
use crate::failure::Advice;
use crate::preparation::Prepared;
use crate::report::Report;
use crate::terminal::print_line;

/// How long a picture that is watched stays as it is.
const PACE: Duration = Duration::from_millis(500);

/// Draw the steps of a bake, or of a run and how far it is
///
/// Name packages to see what would be done, or a run to see what was. For example: `bake graph hello --to plan.svg`
#[derive(Debug, clap::Args)]
pub(crate) struct GraphArgs {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// How to draw it; the ending of the file's name says so too
    #[arg(long = "as", value_enum, value_name = "FORM")]
    form: Option<Form>,
    /// Write it to this file; standard output if it is left out
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Draw it again and again until the run has ended
    #[arg(long, requires = "to")]
    watch: bool,
}

/// A language of drawings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A picture that any browser shows
    Svg,
    /// For Graphviz
    Dot,
    /// For Markdown
    Mermaid,
}

pub(crate) async fn run(global: &Global, arguments: GraphArgs) -> anyhow::Result<()> {
    let GraphArgs { asked, form, to, watch } = arguments;
    let configuration = Configuration::load(global)?;
    let form = form.or_else(|| form_of(to.as_deref()?)).unwrap_or(Form::Svg);
    let Some(run) = named_run(&configuration, &asked)? else {
        if watch {
            return Err(Advice::usage("`--watch` watches a run, and none was named")
                .hint("`bake runs` lists them")
                .into());
        }
        let started = jiff::Timestamp::now();
        let prepared = Prepared::new(&configuration, asked.here()?, RunId::new(started), started)?;
        let drawing = Drawing::of_plan(&prepared.planned.plan.describe())?.titled(&prepared.title());
        return deliver(&drawing, form, to.as_deref());
    };
    loop {
        let view = look(&configuration, &run)?;
        deliver(&Drawing::of_run(&view)?, form, to.as_deref())?;
        if !watch || view.run.verdict.is_some() || !configuration.places.is_locked(&view.run.request_key) {
            return Ok(());
        }
        tokio::time::sleep(PACE).await;
    }
}

/// A single word that is the name of a run the journal knows means that run.
fn named_run(configuration: &Configuration, asked: &Asked) -> anyhow::Result<Option<RunId>> {
    let [word] = asked.packages.as_slice() else { return Ok(None) };
    let Ok(run) = word.parse::<RunId>() else { return Ok(None) };
    let journal = configuration.places.journal();
    if !journal.exists() {
        return Ok(None);
    }
    Ok(Journal::read_only(&journal)?.run(&run)?.map(|_| run))
}

fn look(configuration: &Configuration, run: &RunId) -> anyhow::Result<RunView> {
    let view = Journal::read_only(&configuration.places.journal())?.view(run)?;
    view.with_context(|| format!("the journal knows the run `{run}` no more"))
}

fn form_of(file: &std::path::Path) -> Option<Form> {
    match file.extension()?.to_str()? {
        "svg" => Some(Form::Svg),
        "dot" | "gv" => Some(Form::Dot),
        "mmd" | "mermaid" | "md" => Some(Form::Mermaid),
        _ => None,
    }
}

fn deliver(drawing: &Drawing, form: Form, to: Option<&std::path::Path>) -> anyhow::Result<()> {
    let text = match form {
        Form::Svg => drawing.to_svg(),
        Form::Dot => drawing.to_dot(),
        Form::Mermaid => drawing.to_mermaid(),
    };
    match to {
        Some(file) => Report::write(file, &text),
        None => print_line(text.trim_end()),
    }
}
