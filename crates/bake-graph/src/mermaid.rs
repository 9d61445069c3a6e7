//! Mermaid.

use std::fmt::Write;

use crate::drawing::{Drawing, Shape, Step};
use crate::text::mermaid as quoted;
use crate::waits::Wait;

/// What mermaid reads unless it is told to read more.
const LONGEST: usize = 50_000;

impl Drawing {
    /// Writes the picture as a mermaid flowchart.
    ///
    /// Mermaid refuses texts of more than 50,000 characters, so a picture that would be longer comes without tooltips; and
    /// unless it is configured otherwise it refuses more than 500 arrows. For large plans there is SVG.
    pub fn to_mermaid(&self) -> String {
        let full = self.mermaid(true);
        if full.len() > LONGEST { self.mermaid(false) } else { full }
    }

    fn mermaid(&self, with_tooltips: bool) -> String {
        let titles = [&self.title, &self.subtitle];
        let title = titles.into_iter().filter(|line| !line.is_empty()).cloned().collect::<Vec<_>>().join(" · ");
        let mut out = format!("---\ntitle: {}\n---\nflowchart TB\n", quoted([&*title]));
        self.write_mermaid_group(&mut out, 0, 1);
        for arrow in &self.arrows {
            let line = match (arrow.wait, self.steps[arrow.to].shape) {
                (Wait::Needs, Shape::Bar) => "---",
                (Wait::Needs, _) => "-->",
                (Wait::After, Shape::Bar) => "-.-",
                (Wait::After, _) => "-.->",
            };
            let _infallible = writeln!(out, "  {} {line} {}", self.id(arrow.from), self.id(arrow.to));
        }
        self.write_mermaid_legend(&mut out);
        self.write_classes(&mut out);
        if with_tooltips {
            for (number, step) in self.drawn() {
                let tooltip = quoted(step.tooltip.iter().map(String::as_str));
                // Only what can be clicked has a tooltip; there is no such function, so that nothing happens.
                let _infallible = writeln!(out, "  click n{number} nothing {tooltip}");
            }
        }
        out
    }

    fn id(&self, step: usize) -> String {
        match self.steps[step].shape {
            Shape::Frame(group) => format!("g{group}"),
            Shape::Node | Shape::Bar | Shape::Gone => format!("n{step}"),
        }
    }

    fn write_mermaid_group(&self, out: &mut String, group: usize, depth: usize) {
        let pad = "  ".repeat(depth);
        for (number, step) in self.drawn().filter(|(_, step)| step.group == group) {
            let _infallible = match step.shape {
                Shape::Bar => writeln!(out, "{pad}n{number}[\" \"]:::bar"),
                Shape::Node | Shape::Frame(_) | Shape::Gone => {
                    writeln!(out, "{pad}n{number}[{}]:::{}", self.mermaid_label(step), class(step))
                }
            };
        }
        for inner in (1..self.groups.len()).filter(|&inner| self.groups[inner].parent == group) {
            let heading = quoted([&*self.heading_with_tally(inner)]);
            let _infallible = writeln!(out, "{pad}subgraph g{inner}[{heading}]");
            self.write_mermaid_group(out, inner, depth + 1);
            let _infallible = writeln!(out, "{pad}end");
        }
    }

    fn mermaid_label(&self, step: &Step) -> String {
        let mut lines = self.label(step);
        if self.has_run {
            lines[0] = format!("{} {}", step.state.look().mark, lines[0]);
        }
        quoted(lines.iter().map(String::as_str))
    }

    fn write_mermaid_legend(&self, out: &mut String) {
        let states = self.states();
        if states.is_empty() {
            return;
        }
        out.push_str("  subgraph legend[\"legend\"]\n    direction LR\n");
        for (number, look) in states.iter().map(|state| state.look()).enumerate() {
            let label = quoted([&*format!("{} {}", look.mark, look.word)]);
            let _infallible = writeln!(out, "    legend{number}[{label}]:::{}", class_name(look.class));
        }
        out.push_str("  end\n");
    }

    fn write_classes(&self, out: &mut String) {
        let used = self.steps.iter().filter(|step| step.shape == Shape::Node).map(|step| step.state);
        let used: std::collections::BTreeSet<_> = used.chain(self.states()).collect();
        for look in used.iter().map(|state| state.look()) {
            let (name, fill, line) = (class_name(look.class), look.fill, look.line);
            let _infallible = writeln!(out, "  classDef {name} fill:{fill},stroke:{line},color:#1f2328");
        }
        if self.has_bars() {
            out.push_str("  classDef bar fill:#57606a,stroke:#57606a,color:#57606a,font-size:1px\n");
        }
    }
}

fn class(step: &Step) -> String {
    class_name(step.state.look().class)
}

/// Some words are mermaid's own, and more may become so.
fn class_name(class: &str) -> String {
    format!("is-{class}")
}
