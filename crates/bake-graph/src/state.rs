//! How a step stands, and how that looks.

use bake_engine::{RunView, StepRecord, StepState};

/// How a step stands. What is drawn of it is a mark as well as a colour, since not everybody sees both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum State {
    /// There is no run, only a plan.
    Planned,
    /// It has not begun.
    Waiting,
    /// It is under way.
    Running,
    /// A try failed, and the next one is waited for.
    Retrying,
    /// It ended well.
    Done,
    /// It failed, and was optional.
    Warned,
    /// It failed.
    Failed,
    /// It failed, and whether it changed the world is not known.
    Unknown,
    /// It was not run.
    Skipped,
    /// A cancel ended it.
    Cancelled,
    /// What it had made was taken back.
    TakenBack,
    /// The run ended before it began.
    NotRun,
}

/// How a state looks.
pub(crate) struct Look {
    pub(crate) mark: char,
    pub(crate) word: &'static str,
    pub(crate) class: &'static str,
    pub(crate) fill: &'static str,
    pub(crate) line: &'static str,
    pub(crate) dark_fill: &'static str,
    pub(crate) dark_line: &'static str,
}

const ALL: [State; 12] = [
    State::Planned,
    State::Waiting,
    State::Running,
    State::Retrying,
    State::Done,
    State::Warned,
    State::Failed,
    State::Unknown,
    State::Skipped,
    State::Cancelled,
    State::TakenBack,
    State::NotRun,
];

impl State {
    /// Returns all states, in the order of the legend.
    pub(crate) fn all() -> impl Iterator<Item = State> {
        ALL.into_iter()
    }

    pub(crate) fn is_mark(char: char) -> bool {
        !char.is_ascii() && ALL.iter().any(|state| state.look().mark == char)
    }

    /// Returns how the state looks. Names are legible on every fill at 7:1 or better, the rest at 4.5:1.
    pub(crate) fn look(self) -> Look {
        let look = |mark, word, class, [fill, line, dark_fill, dark_line]: [&'static str; 4]| Look {
            mark,
            word,
            class,
            fill,
            line,
            dark_fill,
            dark_line,
        };
        match self {
            State::Planned => look('•', "planned", "planned", ["#ffffff", "#57606a", "#161b22", "#8b949e"]),
            State::Waiting => look('○', "waiting", "waiting", ["#ffffff", "#6e7781", "#161b22", "#8b949e"]),
            State::Running => look('▶', "running", "running", ["#ddf4ff", "#0969da", "#0c2d4d", "#58a6ff"]),
            State::Retrying => look('↻', "waiting to retry", "retrying", ["#fff8c5", "#9a6700", "#341a00", "#d29922"]),
            State::Done => look('✓', "done", "done", ["#dafbe1", "#1a7f37", "#0b2e16", "#3fb950"]),
            State::Warned => look('!', "failed, but optional", "warned", ["#fff1e5", "#bc4c00", "#3d1300", "#f0883e"]),
            State::Failed => look('✗', "failed", "failed", ["#ffebe9", "#cf222e", "#4a0e10", "#ff7b72"]),
            State::Unknown => look('?', "outcome unknown", "unknown", ["#fbefff", "#8250df", "#2b1652", "#bc8cff"]),
            State::Skipped => look('↷', "skipped", "skipped", ["#eaeef2", "#6e7781", "#21262d", "#8b949e"]),
            State::Cancelled => look('■', "cancelled", "cancelled", ["#eaeef2", "#24292f", "#21262d", "#c9d1d9"]),
            State::TakenBack => look('↶', "taken back", "taken-back", ["#f6f8fa", "#57606a", "#1c2128", "#8b949e"]),
            State::NotRun => look('–', "not run", "not-run", ["#f6f8fa", "#6e7781", "#1c2128", "#8b949e"]),
        }
    }
}

/// Reads how a step stands from a run. `taken_back` says that it made something, and nothing of it is left.
pub(crate) fn of_step(view: &RunView, record: Option<&StepRecord>, taken_back: bool) -> State {
    let Some(record) = record else {
        return if view.run.finished.is_some() { State::NotRun } else { State::Waiting };
    };
    match record.state {
        None if record.retry.is_some() => State::Retrying,
        None => State::Running,
        Some(StepState::Done) if taken_back => State::TakenBack,
        Some(StepState::Done) => State::Done,
        Some(StepState::Failed) => State::Failed,
        Some(StepState::Warned) => State::Warned,
        Some(StepState::Skipped) => State::Skipped,
        Some(StepState::Cancelled) => State::Cancelled,
        Some(StepState::Unknown) => State::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contrast of two colours, as the accessibility guidelines of the web reckon it.
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |colour: &str| -> f64 {
            let channel = |at: usize| {
                let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
                if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
        };
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn every_state_is_legible_in_light_and_in_dark() {
        for look in State::all().map(State::look) {
            let word = look.word;
            assert!(contrast(look.fill, "#1f2328") >= 7.0, "name, {word}");
            assert!(contrast(look.dark_fill, "#e6edf3") >= 7.0, "name in dark, {word}");
            assert!(contrast(look.fill, "#57606a") >= 4.5, "remark, {word}");
            assert!(contrast(look.dark_fill, "#b1bac4") >= 4.5, "remark in dark, {word}");
            assert!(contrast(look.line, "#ffffff") >= 4.5, "mark, {word}");
            assert!(contrast(look.dark_line, "#0d1117") >= 4.5, "mark in dark, {word}");
        }
    }

    #[test]
    fn no_two_states_have_one_mark() {
        let marks: std::collections::BTreeSet<char> = State::all().map(|state| state.look().mark).collect();
        assert_eq!(marks.len(), State::all().count());
    }
}
