//! The cloud: its region, and what to bake on.

use crate::report::Report;
use crate::site::Site;
use crate::yaml::Tree;

/// The keys that are read here.
pub(crate) const KEYS: [&str; 3] = ["region", "base_ami_name", "base_ami_id"];

/// Returns the settings of `ec2`.
pub(crate) fn settings(site: &Site, report: &mut Report) -> Vec<(String, Tree)> {
    let table = site.plugin("cloud", "ec2", report);
    let [region, name, id] = KEYS.map(|key| {
        let entry = table.entry(key)?;
        let text = report.text(key, &entry.node).filter(|text| !text.is_empty())?;
        Some((text, &entry.node.origin))
    });
    if let (Some(_), Some((_, origin))) = (name, id) {
        report.note(origin, "`base_ami_id`", "left out: Aminator takes `base_ami_name`, which is written too");
    }
    let setting = |key: &str, value: Option<(&str, _)>| Some((key.to_owned(), Tree::text(value?.0)));
    [setting("region", region), setting("base", name.or(id))].into_iter().flatten().collect()
}
