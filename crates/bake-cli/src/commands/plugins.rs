use std::fmt::Write as _;

use bake_config::{Built, Catalog, PluginInfo, PluginKind};
use bake_core::NAMES;

use crate::cli::{Format, Output};
use crate::failure::Advice;
use crate::plugins;
use crate::terminal::print_line;

/// List the plugins that environments may name, with their settings
#[derive(Debug, clap::Args)]
pub(crate) struct PluginsArgs {
    /// Only this one
    name: Option<String>,
    /// Write the reference of all plugins, settings and names in templates, as Markdown
    #[arg(long, conflicts_with = "name")]
    reference: bool,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(arguments: PluginsArgs) -> anyhow::Result<()> {
    let catalog = plugins::catalog();
    if arguments.reference {
        return print_line(reference(&catalog).trim_end());
    }
    let wanted = |info: &&PluginInfo| arguments.name.as_deref().is_none_or(|name| info.name == name);
    if let Some(name) = arguments.name.as_deref().filter(|_| !catalog.iter().any(|info| wanted(&info))) {
        let names: Vec<_> = catalog.iter().map(|info| info.name).collect();
        return Err(Advice::usage(format!("there is no plugin `{name}`"))
            .hint(format!("known: {}", names.join(", ")))
            .into());
    }
    for info in catalog.iter().filter(wanted) {
        match arguments.output.format {
            Format::Json => print_line(&json(info).to_string())?,
            Format::Text => print_text(info, arguments.name.is_some())?,
        }
    }
    Ok(())
}

fn print_text(info: &PluginInfo, settings: bool) -> anyhow::Result<()> {
    print_line(&format!("{} {}: {}{}", info.kind, info.name, info.summary, note(info)))?;
    if !settings {
        return Ok(());
    }
    for setting in info.settings {
        let default = setting.default.map(|default| format!(" [default: {default}]")).unwrap_or_default();
        print_line(&format!("    {}: {}{default}", setting.name, setting.takes))?;
        print_line(&format!("        {}", setting.summary))?;
    }
    for (key, value) in info.usual {
        print_line(&format!("    {key}: {value} unless you say otherwise"))?;
    }
    Ok(())
}

fn note(info: &PluginInfo) -> String {
    match info.built {
        Built::Yes => String::new(),
        Built::No { how } => format!(" (not in this build: {how})"),
    }
}

fn json(info: &PluginInfo) -> serde_json::Value {
    let settings: Vec<_> = info
        .settings
        .iter()
        .map(|setting| {
            serde_json::json!({
                "name": setting.name, "takes": setting.takes.to_string(), "default": setting.default, "summary": setting.summary,
            })
        })
        .collect();
    let usual: serde_json::Map<_, _> =
        info.usual.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    serde_json::json!({
        "kind": info.kind.key(), "name": info.name, "version": info.version, "summary": info.summary,
        "stage": info.stage.map(|stage| stage.to_string()), "built": info.built == Built::Yes, "settings": settings, "usual": usual,
    })
}

/// The reference of everything that environments may say, from what the code says of itself.
fn reference(catalog: &Catalog) -> String {
    let mut text = String::from(
        "# Reference: plugins, settings, names in templates\n\nMade by `bake plugins --reference`; a test keeps it so. \
         How environments are written: [environments](../design/0004-environments.md).\n",
    );
    for kind in PluginKind::ALL {
        let _ = writeln!(text, "\n## {kind}");
        catalog.plugins(kind).for_each(|info| text.push_str(&about(info)));
    }
    text.push_str(EVERYWHERE);
    text.push_str("\n## Names in templates and predicates\n\n| name | known | what it is |\n|---|---|---|\n");
    for name in NAMES {
        let _ = writeln!(text, "| `{}` | {} | {} |", name.path, name.moment.words(), cell(name.summary));
    }
    text
}

/// What environments may say whatever plugins they choose.
const EVERYWHERE: &str = "
## Every finalizer of a set

| key | takes | |
|---|---|---|
| `name` | letters, digits, `._-` | Its name in the set; the plugin's unless one plugin stands in the set twice |
| `optional` | `true` or `false` | Its failure is reported, and the bake succeeds (exit code 10) |
| `when` | an expression | It runs only if that holds: `\"arch == 'x86_64'\"`. Decided once, in `identity`; one about `images` once there are images |
| `else` | a finalizer or a list | What runs if `when` does not hold |
| `after` | a name or a list | Members of its stage that end before it starts, well or not |
| `timeout` | a time | How long each try of each of its steps may take |
| `retry` | a whole number | How often a step is tried again after a failure that may pass; 5 times if nothing is said |

An environment's `steps: { PATH: { timeout, retry, after } }` says the same of any step of the plan, or of all below a path;
`bake plan` names them.
";

fn about(info: &PluginInfo) -> String {
    // Which plugins are in is a matter of the build; that one is still to come is not.
    let missing = if info.version.is_empty() { " Not there yet." } else { "" };
    let stage = info.stage.map(|stage| format!(" Stage: {stage}.")).unwrap_or_default();
    let mut text = format!("\n### `{}`\n\n{}.{stage}{missing}\n", info.name, info.summary.trim_end_matches('.'));
    if !info.settings.is_empty() {
        text.push_str("\n| setting | takes | default | |\n|---|---|---|---|\n");
    }
    for setting in info.settings {
        let default = setting.default.map(|default| format!("`{default}`")).unwrap_or_default();
        let (takes, default, summary) = (cell(&setting.takes.to_string()), cell(&default), cell(setting.summary));
        let _ = writeln!(text, "| `{}` | {takes} | {default} | {summary} |", setting.name);
    }
    if !info.usual.is_empty() {
        let usual: Vec<_> = info.usual.iter().map(|(key, value)| format!("`{key}: {value}`")).collect();
        let _ = writeln!(text, "\nUsual unless you say otherwise: {}.", usual.join(", "));
    }
    text
}

/// A text as the cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_what_the_code_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/plugins.md");
        let (made, kept) = (reference(&plugins::catalog()), std::fs::read_to_string(path).unwrap_or_default());
        assert!(made == kept, "run `bake plugins --reference >docs/reference/plugins.md`:\n{made}");
    }
}
