//! SVG: what a browser shows. No script, nothing from elsewhere, text as text.

use std::fmt::Write;

use crate::drawing::{Drawing, Shape, Step};
use crate::groups::Item;
use crate::layout::{self, Line, Placed, Rect};
use crate::state::{Look, State};
use crate::text::{columns, xml};
use crate::waits::Wait;

/// Fonts differ; these are widths of a column in those that are wide, so that text stays in its box.
const NAME_COLUMN: f64 = 8.3;
const REMARK_COLUMN: f64 = 6.7;
const HEADING_COLUMN: f64 = 7.6;
/// Where the text of a node begins if it has a mark.
const BESIDE_MARK: f64 = 36.0;
const MARGIN: f64 = 28.0;
const TITLE_HEIGHT: f64 = 62.0;
const LEGEND_HEIGHT: f64 = 34.0;
/// Size of a bar.
const BAR: (f64, f64) = (150.0, 7.0);

const STYLE: &str = "\
text{font-family:system-ui,-apple-system,'Segoe UI','Liberation Sans',Arial,sans-serif;fill:#1f2328}\
.page{fill:#fff}.title{font-size:20px;font-weight:600}.subtitle{font-size:13px;fill:#57606a}\
.name{font-size:13px;font-weight:600}.remark{font-size:11px;fill:#57606a}\
.mark{font-size:12px;font-weight:700;text-anchor:middle;fill:#fff}\
.group rect{fill:#f6f8fa;stroke:#d0d7de}\
.heading{font-size:12px;font-weight:600;fill:#57606a;paint-order:stroke;stroke:#f6f8fa;stroke-width:5px;stroke-linejoin:round}.tally{font-weight:400;text-anchor:end}\
.node rect{stroke-width:1.5}.optional rect{stroke-dasharray:5 3}.loud rect{stroke-width:2.5}\
.bar rect,.head{fill:#57606a}.line{fill:none;stroke:#57606a;stroke-width:1.5}.after{stroke-dasharray:5 4}\
.key{font-size:12px;fill:#57606a}";

const DARK: &str = "\
text{fill:#e6edf3}.page{fill:#0d1117}.subtitle,.remark,.key,.heading{fill:#b1bac4}.mark{fill:#0d1117}\
.group rect{fill:#161b22;stroke:#30363d}.heading{stroke:#161b22}\
.bar rect,.head{fill:#8b949e}.line{stroke:#8b949e}";

impl Drawing {
    /// Writes the picture as SVG. It follows the reader's choice of light or dark, and scales.
    pub fn to_svg(&self) -> String {
        let placed = layout::lay_out(self, |step| self.size(&self.steps[step]));
        let legend = self.legend();
        let titles = as_f64(columns(&self.title)) * 12.5;
        let titles = titles.max(as_f64(columns(&self.subtitle)) * 7.5);
        let wide = placed.width.max(titles.min(900.0)).max(420.0);
        let (legend, legend_height) = write_legend(&legend, wide);
        let (width, height) = (wide + 2.0 * MARGIN, TITLE_HEIGHT + placed.height + legend_height + 2.0 * MARGIN);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
             role=\"img\" aria-labelledby=\"title\">\n<title id=\"title\">{}</title>\n",
            xml(&self.title),
            w = number(width),
            h = number(height),
        );
        let _infallible = writeln!(
            out,
            "<style>{STYLE}{}@media(prefers-color-scheme:dark){{{DARK}{}}}</style>",
            self.state_styles(|look| (look.fill, look.line)),
            self.state_styles(|look| (look.dark_fill, look.dark_line))
        );
        let _infallible =
            writeln!(out, "<rect class=\"page\" width=\"{}\" height=\"{}\"/>", number(width), number(height));
        self.write_titles(&mut out, wide);
        let left = MARGIN + (wide - placed.width) / 2.0;
        let _infallible =
            writeln!(out, "<g transform=\"translate({} {})\">", number(left), number(MARGIN + TITLE_HEIGHT));
        self.write_placed(&mut out, &placed);
        out.push_str("</g>\n");
        let y = MARGIN + TITLE_HEIGHT + placed.height + LEGEND_HEIGHT;
        let _infallible =
            writeln!(out, "<g class=\"legend\" transform=\"translate({} {})\">", number(MARGIN), number(y));
        out.push_str(&legend);
        out.push_str("</g>\n</svg>\n");
        out
    }

    fn size(&self, step: &Step) -> (f64, f64) {
        if step.shape == Shape::Bar {
            return BAR;
        }
        let lines = self.label(step);
        let (remark, name) = lines.split_last().expect("a label has a remark");
        let name_width = name.iter().map(|line| as_f64(columns(line)) * NAME_COLUMN).fold(0.0, f64::max);
        let text = name_width.max(as_f64(columns(remark)) * REMARK_COLUMN);
        ((text + self.text_x() + 14.0).max(112.0), 34.0 + 17.0 * as_f64(name.len()))
    }

    fn text_x(&self) -> f64 {
        if self.has_run { BESIDE_MARK } else { 14.0 }
    }

    fn state_styles(&self, colours: impl Fn(&Look) -> (&'static str, &'static str)) -> String {
        let shown = |state: &State| self.steps.iter().any(|step| step.state == *state);
        let style = |state: State| {
            let look = state.look();
            let (fill, line) = colours(&look);
            let class = look.class;
            format!(
                ".node.{class} rect{{fill:{fill};stroke:{line}}}.{class} circle{{fill:{line}}}.group.{class} rect{{stroke:{line}}}"
            )
        };
        State::all().filter(shown).map(style).collect()
    }

    fn write_titles(&self, out: &mut String, wide: f64) {
        // The title bears what fits; all of it is the title of the document.
        let room = |column: f64| columns_in(wide, column);
        for (class, y, text) in [
            ("title", MARGIN + 16.0, crate::text::cut(&self.title, room(12.5))),
            ("subtitle", MARGIN + 38.0, crate::text::cut(&self.subtitle, room(7.5))),
        ] {
            if !text.is_empty() {
                let (x, y) = (number(MARGIN), number(y));
                let _infallible = writeln!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", xml(&text));
            }
        }
    }

    /// Writes boxes, then lines, then what lines may not cover.
    fn write_placed(&self, out: &mut String, placed: &Placed) {
        for group in 1..self.groups.len() {
            let rect = &placed.items[&Item::Group(group)];
            let frame = self.frame(group);
            let state = frame.filter(|_| self.has_run).map_or("", |frame| frame.state.look().class);
            let class = format!("group {state}");
            let tooltip = frame.map_or_else(|| self.groups[group].name.clone(), |frame| frame.tooltip.join("\n"));
            let _infallible = writeln!(
                out,
                "<g id=\"g{group}\" class=\"{}\" data-in=\"g{}\"><title>{}</title>{}</g>",
                class.trim_end(),
                self.groups[group].parent,
                xml(&tooltip),
                rounded(rect, 10.0)
            );
        }
        placed.lines.iter().for_each(|line| write_line(out, line));
        for group in 1..self.groups.len() {
            self.write_heading(out, group, &placed.items[&Item::Group(group)]);
        }
        for (index, step) in self.drawn() {
            self.write_node(out, index, step, &placed.items[&Item::Step(index)]);
        }
    }

    fn write_heading(&self, out: &mut String, group: usize, rect: &Rect) {
        let (left, right) = (number(rect.x + 14.0), number(rect.x + rect.width - 14.0));
        let (y, name, tally) = (number(rect.y + 20.0), xml(&heading(self, group)), xml(&self.tally(group)));
        let _infallible = writeln!(out, "<text class=\"heading\" x=\"{left}\" y=\"{y}\">{name}</text>");
        if !tally.is_empty() {
            let _infallible = writeln!(out, "<text class=\"heading tally\" x=\"{right}\" y=\"{y}\">{tally}</text>");
        }
    }

    fn write_node(&self, out: &mut String, index: usize, step: &Step, rect: &Rect) {
        let tooltip = xml(&step.tooltip.join("\n"));
        if step.shape == Shape::Bar {
            let bar = rounded(rect, 3.0);
            let _infallible = writeln!(
                out,
                "<g id=\"n{index}\" class=\"bar\" data-in=\"g{}\"><title>{tooltip}</title>{bar}</g>",
                step.group
            );
            return;
        }
        let look = step.state.look();
        let loud = matches!(step.state, State::Running | State::Failed | State::Unknown);
        let class = format!(
            "node {}{}{}",
            look.class,
            if step.plan.optional { " optional" } else { "" },
            if loud { " loud" } else { "" }
        );
        let _infallible = write!(
            out,
            "<g id=\"n{index}\" class=\"{class}\" data-in=\"g{}\"><title>{tooltip}</title>{}",
            step.group,
            rounded(rect, 7.0)
        );
        if self.has_run {
            out.push_str(&mark(&look, rect.x + 19.0, rect.y + rect.height / 2.0));
        }
        let lines = self.label(step);
        let last = lines.len() - 1;
        for (number_of_line, line) in lines.iter().enumerate() {
            let class = if number_of_line == last { "remark" } else { "name" };
            let (x, y) = (number(rect.x + self.text_x()), number(rect.y + 21.0 + 17.0 * as_f64(number_of_line)));
            let _infallible = write!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", xml(line));
        }
        out.push_str("</g>\n");
    }

    /// Returns what the picture shows that needs a word: a drawing 30 wide, and the word.
    fn legend(&self) -> Vec<(String, &'static str)> {
        let mut legend: Vec<(String, &'static str)> = Vec::new();
        for look in self.states().iter().map(|state| state.look()) {
            legend.push((format!("<g class=\"{}\">{}</g>", look.class, mark(&look, 15.0, 0.0)), look.word));
        }
        let line = |class: &str| {
            format!("<path class=\"line{class}\" d=\"M0 0H22\"/><path class=\"head\" d=\"M30 0L21 -4.5V4.5Z\"/>")
        };
        if self.has(Wait::Needs) {
            legend.push((line(""), "needs"));
        }
        if self.has(Wait::After) {
            legend.push((line(" after"), "only after"));
        }
        if self.has_bars() {
            legend.push((
                "<g class=\"bar\"><rect x=\"0\" y=\"-3\" width=\"30\" height=\"6\" rx=\"3\"/></g>".into(),
                "all before all",
            ));
        }
        if self.steps.iter().any(|step| step.plan.optional) {
            let frame = "<g class=\"node optional planned\"><rect x=\"1\" y=\"-8\" width=\"28\" height=\"16\" rx=\"4\" style=\"fill:none;stroke:#8c959f\"/></g>";
            legend.push((frame.into(), "optional"));
        }
        legend
    }
}

/// Returns how wide a box must be for what is written on it. Where that is not much more, its name and its tally are on
/// either side of the middle, where most arrows come in.
pub(crate) fn least_width(drawing: &Drawing, group: usize) -> f64 {
    let name = as_f64(columns(&heading(drawing, group))) * HEADING_COLUMN;
    let tally = as_f64(columns(&drawing.tally(group))) * HEADING_COLUMN;
    (name + tally + 48.0).max((2.0 * name + 40.0).min(300.0))
}

fn heading(drawing: &Drawing, group: usize) -> String {
    crate::text::cut(&drawing.heading(group), 44)
}

fn mark(look: &Look, x: f64, y: f64) -> String {
    let (x, y, text_y) = (number(x), number(y), number(y + 4.3));
    let mark = xml(&look.mark.to_string());
    format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"9\"/><text class=\"mark\" x=\"{x}\" y=\"{text_y}\">{mark}</text>")
}

fn rounded(rect: &Rect, radius: f64) -> String {
    let [x, y, width, height, radius] = [rect.x, rect.y, rect.width, rect.height, radius].map(number);
    format!("<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{radius}\"/>")
}

/// Writes a line: straight down through rows, an S between them.
fn write_line(out: &mut String, line: &Line) {
    let class = if line.wait == Wait::After { "line after" } else { "line" };
    let mut points = line.points.clone();
    let tip = points.last().copied().unwrap_or_default();
    if line.head {
        // The line ends inside of the head.
        let last = points.len() - 1;
        points[last].1 -= 6.0;
        if points[last - 1].1 > points[last].1 {
            points[last - 1].1 = points[last].1;
        }
    }
    let mut path = String::new();
    let mut at = points[0];
    let _infallible = write!(path, "M{} {}", number(at.0), number(at.1));
    for &(x, y) in &points[1..] {
        if (x - at.0).abs() < 0.05 {
            let _infallible = write!(path, "V{}", number(y));
        } else {
            let middle = number(f64::midpoint(at.1, y));
            let (from, to, y) = (number(at.0), number(x), number(y));
            let _infallible = write!(path, "C{from} {middle} {to} {middle} {to} {y}");
        }
        at = (x, y);
    }
    let _infallible = writeln!(out, "<path class=\"{class}\" d=\"{path}\"/>");
    if line.head {
        let (x, y) = tip;
        let [x, y, left, right, back] = [x, y, x - 4.5, x + 4.5, y - 9.0].map(number);
        let _infallible = writeln!(out, "<path class=\"head\" d=\"M{x} {y}L{left} {back}H{right}Z\"/>");
    }
}

/// Sets the legend in lines; returns it with its height.
fn write_legend(legend: &[(String, &'static str)], wide: f64) -> (String, f64) {
    let mut out = String::new();
    let (mut x, mut y) = (0.0, 0.0);
    for (picture, word) in legend {
        let width = 30.0 + 8.0 + as_f64(columns(word)) * 6.9 + 16.0;
        if x > 0.0 && x + width > wide {
            (x, y) = (0.0, y + 26.0);
        }
        let (left, top) = (number(x), number(y));
        let _infallible = writeln!(
            out,
            "<g transform=\"translate({left} {top})\">{picture}<text class=\"key\" x=\"38\" y=\"4\">{word}</text></g>"
        );
        x += width;
    }
    (out, if legend.is_empty() { 0.0 } else { y + LEGEND_HEIGHT + 8.0 })
}

/// Writes a coordinate, in tenths.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".into(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn columns_in(width: f64, column: f64) -> usize {
    // Bounded by the width of the picture, and positive.
    let mut fitting = 0;
    while as_f64(fitting + 1) * column <= width {
        fitting += 1;
    }
    fitting
}
