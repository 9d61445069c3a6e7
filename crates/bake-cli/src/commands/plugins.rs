use bake_config::{Built, PluginInfo};

use crate::cli::{Format, Output};
use crate::failure::Advice;
use crate::plugins;
use crate::terminal::print_line;

/// List the plugins that environments may name, with their settings
#[derive(Debug, clap::Args)]
pub(crate) struct PluginsArgs {
    /// Only this one
    name: Option<String>,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(arguments: PluginsArgs) -> anyhow::Result<()> {
    let catalog = plugins::catalog();
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
    let note = match info.built {
        Built::Yes => String::new(),
        Built::No { how } => format!(" ({how})"),
    };
    print_line(&format!("{:<12} {:<18} {}{note}", info.kind, info.name, info.summary))?;
    for setting in info.settings.iter().filter(|_| settings) {
        let default = setting.default.map(|default| format!(" [default: {default}]")).unwrap_or_default();
        print_line(&format!("    {}: {}{default}", setting.name, setting.takes))?;
        print_line(&format!("        {}", setting.summary))?;
    }
    Ok(())
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
    serde_json::json!({
        "kind": info.kind.key(), "name": info.name, "version": info.version, "summary": info.summary,
        "stage": info.stage.map(|stage| stage.to_string()), "built": info.built == Built::Yes, "settings": settings,
    })
}
