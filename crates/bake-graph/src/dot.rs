//! Graphviz.

use std::fmt::Write;

use crate::drawing::{Drawing, Shape, Step};
use crate::state::State;
use crate::text::dot as quoted;
use crate::waits::Wait;

impl Drawing {
    /// Writes the picture in the language of Graphviz.
    pub fn to_dot(&self) -> String {
        let mut out = String::from("digraph bake {\n");
        out.push_str("  graph [compound=true, rankdir=TB, newrank=true, fontname=\"sans-serif\", labelloc=t, ");
        let titles = [&self.title, &self.subtitle];
        let titles = quoted(titles.into_iter().filter(|line| !line.is_empty()).map(String::as_str));
        let _infallible = writeln!(out, "label={titles}];");
        out.push_str("  node [shape=box, style=\"filled,rounded\", margin=\"0.2,0.08\", fontname=\"sans-serif\", fontcolor=\"#1f2328\"];\n");
        out.push_str("  edge [color=\"#57606a\"];\n");
        self.write_group(&mut out, 0, 1);
        for arrow in &self.arrows {
            self.write_arrow(&mut out, arrow);
        }
        self.write_legend(&mut out);
        out.push_str("}\n");
        out
    }

    fn write_group(&self, out: &mut String, group: usize, depth: usize) {
        let pad = "  ".repeat(depth);
        for (number, step) in self.drawn().filter(|(_, step)| step.group == group) {
            let _infallible = writeln!(out, "{pad}n{number} [{}];", self.node(step));
        }
        for inner in (1..self.groups.len()).filter(|&inner| self.groups[inner].parent == group) {
            let heading = quoted([&*self.heading_with_tally(inner)]);
            let state = self.frame(inner).map(|frame| frame.state).filter(|_| self.has_run);
            let color = state.map_or("#8c959f", |state| state.look().line);
            let _infallible = writeln!(out, "{pad}subgraph cluster_{inner} {{");
            let _infallible = writeln!(
                out,
                "{pad}  graph [label={heading}, labeljust=l, style=rounded, color=\"{color}\", tooltip={}];",
                self.frame(inner).map_or_else(|| quoted([&*self.groups[inner].name]), tooltip),
            );
            self.write_group(out, inner, depth + 1);
            let _infallible = writeln!(out, "{pad}}}");
        }
    }

    fn node(&self, step: &Step) -> String {
        let tooltip = tooltip(step);
        if step.shape == Shape::Bar {
            return format!(
                "label=\"\", shape=box, style=filled, fillcolor=\"#57606a\", height=0.06, width=1.6, fixedsize=true, tooltip={tooltip}"
            );
        }
        let look = step.state.look();
        let mark = if self.has_run { format!("{} ", look.mark) } else { String::new() };
        let label = self.label(step);
        let lines = std::iter::once(format!("{mark}{}", label[0])).chain(label.into_iter().skip(1));
        let lines = quoted(lines.collect::<Vec<_>>().iter().map(String::as_str));
        let style = if step.plan.optional { ", style=\"filled,rounded,dashed\"" } else { "" };
        format!("label={lines}, fillcolor=\"{}\", color=\"{}\"{style}, tooltip={tooltip}", look.fill, look.line)
    }

    fn write_arrow(&self, out: &mut String, arrow: &crate::drawing::Arrow) {
        let mut attributes: Vec<String> = Vec::new();
        if arrow.wait == Wait::After {
            attributes.push("style=dashed".into());
        }
        let (from, to) = (self.representative(arrow.from, true), self.representative(arrow.to, false));
        for (end, name) in [(arrow.from, "ltail"), (arrow.to, "lhead")] {
            if let Shape::Frame(group) = self.steps[end].shape {
                attributes.push(format!("{name}=cluster_{group}"));
            }
        }
        if matches!(self.steps[arrow.to].shape, Shape::Bar) {
            attributes.push("arrowhead=none".into());
        }
        let attributes = if attributes.is_empty() { String::new() } else { format!(" [{}]", attributes.join(", ")) };
        let _infallible = writeln!(out, "  n{from} -> n{to}{attributes};");
    }

    /// Graphviz has no arrows between boxes: they lead from the last or to the first step inside, and are cut at the rim.
    fn representative(&self, step: usize, last: bool) -> usize {
        let Shape::Frame(group) = self.steps[step].shape else { return step };
        let mut inside = self.drawn().filter(|(_, step)| crate::groups::is_inside(&self.groups, step.group, group));
        let found = if last { inside.last() } else { inside.next() };
        found.expect("a box is only drawn around a node").0
    }

    fn write_legend(&self, out: &mut String) {
        let states = self.states();
        if states.is_empty() {
            return;
        }
        out.push_str("  subgraph cluster_legend {\n    graph [label=\"legend\", style=rounded, color=\"#8c959f\"];\n");
        for (number, state) in states.iter().map(|state: &State| state.look()).enumerate() {
            let label = quoted([&*format!("{} {}", state.mark, state.word)]);
            let (fill, line) = (state.fill, state.line);
            let _infallible =
                writeln!(out, "    legend_{number} [label={label}, fillcolor=\"{fill}\", color=\"{line}\"];");
        }
        out.push_str("  }\n");
    }

    pub(crate) fn heading_with_tally(&self, group: usize) -> String {
        let tally = self.tally(group);
        let dot = if tally.is_empty() { "" } else { " · " };
        format!("{}{dot}{tally}", self.heading(group))
    }

    /// Returns the lines of a node: its name, then a remark.
    pub(crate) fn label(&self, step: &Step) -> Vec<String> {
        let mut lines = crate::text::wrap(&step.name(&self.groups), NAME_COLUMNS);
        lines.push(crate::text::cut(&step.remark(), REMARK_COLUMNS));
        lines
    }
}

/// Longest line of a name, in columns.
pub(crate) const NAME_COLUMNS: usize = 20;
/// Longest remark; it is written smaller.
pub(crate) const REMARK_COLUMNS: usize = 24;

fn tooltip(step: &Step) -> String {
    quoted(step.tooltip.iter().map(String::as_str))
}
