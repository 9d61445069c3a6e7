//! All that there is to say about a step.

use std::collections::BTreeMap;

use crate::drawing::Step;
use crate::state::State;
use crate::text::{one_line, tooltip_lines};

/// As many paths as a tooltip names; a step behind a wide copy may wait for hundreds.
const NAMED: usize = 8;

pub(crate) fn of_step(step: &Step, states: &BTreeMap<String, State>, has_run: bool) -> Vec<String> {
    let mut lines = vec![one_line(&step.path)];
    describe_work(step, &mut lines);
    if has_run && !step.plan.is_barrier() {
        describe_state(step, states, &mut lines);
    }
    describe_conditions(step, &mut lines);
    name_some("needs", &step.plan.needs, &mut lines);
    name_some("after", &step.plan.after, &mut lines);
    // The last word on length: every line is bearable, whatever it was made of.
    lines.iter().flat_map(|line| tooltip_lines(line)).collect()
}

fn describe_work(step: &Step, lines: &mut Vec<String>) {
    lines.push(match &step.plan.mutation {
        Some(mutation) => format!("changes: {mutation}"),
        None => step.plan.does().to_owned(),
    });
    let calls = &step.plan.calls;
    for (what, calls) in [("calls", &calls.send), ("waits with", &calls.settle), ("taken back with", &calls.undo)] {
        if !calls.is_empty() {
            lines.push(format!("{what}: {}", calls.join(", ")));
        }
    }
    if step.plan.optional {
        lines.push("optional: its failure is only reported".into());
    }
}

fn describe_state(step: &Step, states: &BTreeMap<String, State>, lines: &mut Vec<String>) {
    let look = step.state.look();
    let attempts = step.record.as_ref().map_or(0, |record| record.attempts);
    let tries = match attempts {
        0 => String::new(),
        1 => ", 1 try".into(),
        many => format!(", {many} tries"),
    };
    lines.push(format!("{} {}{tries}", look.mark, look.word));
    if let Some(trouble) = step.record.as_ref().and_then(|record| record.error.as_ref()) {
        for (depth, message) in trouble.chain.iter().enumerate() {
            lines.push(format!("{}{message}", if depth == 0 { "error: " } else { "caused by: " }));
        }
        lines.extend(trouble.hint.as_ref().map(|hint| format!("hint: {hint}")));
        lines.extend(trouble.details.iter().cloned());
    }
    if step.state == State::Skipped && step.unmet_condition().is_none() {
        let missing = step.plan.needs.iter().filter(|path| {
            let state = states.get(*path);
            state.is_some_and(|state| *state != State::Done && *state != State::TakenBack)
        });
        name_some("because not done", &missing.cloned().collect::<Vec<_>>(), lines);
    }
}

fn describe_conditions(step: &Step, lines: &mut Vec<String>) {
    let answers = step.record.as_ref().and_then(|record| record.conditions.as_ref());
    for condition in &step.plan.when {
        let answer = match answers.and_then(|answers| answers.get(condition)).and_then(serde_json::Value::as_bool) {
            Some(true) => " (it is so)",
            Some(false) => " (it is not so)",
            None => "",
        };
        lines.push(format!("only if: {}{answer}", one_line(condition)));
    }
}

fn name_some(what: &str, paths: &[String], lines: &mut Vec<String>) {
    if paths.is_empty() {
        return;
    }
    let named: Vec<String> = paths.iter().take(NAMED).map(|path| one_line(path)).collect();
    let more = match paths.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    lines.push(format!("{what}: {}{more}", named.join(", ")));
}
