//! Where everything is: a layered layout of each box, from the inside out.
//!
//! A box is laid out alone (`layers` makes rows, `order` untangles them, `position` gives coordinates) and then stands as
//! one item in the box around it. So nothing can overlap, and everything is inside of its box, by construction. An arrow
//! that leaves a box ends at a port on the box's rim, and goes on from there outside.

mod layers;
mod order;
mod position;

use std::collections::{BTreeMap, BTreeSet};

use crate::drawing::{Arrow, Drawing, Shape};
use crate::groups::{Item, chain, place};
use crate::waits::Wait;

/// The margin between a box and what is in it.
const PADDING: f64 = 18.0;
/// The height of a box's title.
const HEADING: f64 = 30.0;

/// A rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rect {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// A line from top to bottom, through these points; it is vertical in all of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) wait: Wait,
    /// Whether it ends in what waits, and not in a port or in another line.
    pub(crate) head: bool,
}

/// A picture with coordinates.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    pub(crate) items: BTreeMap<Item, Rect>,
    pub(crate) lines: Vec<Line>,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// Arrows that share a line as long as they go the same way: those out of one step, or those into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Bundle {
    From(usize, Wait),
    Into(usize, Wait),
}

impl Bundle {
    pub(crate) fn wait(self) -> Wait {
        match self {
            Bundle::From(_, wait) | Bundle::Into(_, wait) => wait,
        }
    }
}

/// An end of a connection within one box: something in it, or a port in its rim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Entry(Bundle),
    Item(Item),
    Exit(Bundle),
}

/// What leads from one end to another within one box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Connection {
    pub(crate) from: End,
    pub(crate) to: End,
    pub(crate) bundle: Bundle,
    pub(crate) head: bool,
}

/// A box that was laid out: its size, and where its ports are, from its left.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) entries: BTreeMap<Bundle, f64>,
    pub(crate) exits: BTreeMap<Bundle, f64>,
}

/// Lays out a drawing; `size` tells how large a step is.
pub(crate) fn lay_out(drawing: &Drawing, size: impl Fn(usize) -> (f64, f64)) -> Placed {
    let mut connections = connect(drawing);
    let mut members: Vec<Vec<Item>> = vec![Vec::new(); drawing.groups.len()];
    for (index, step) in drawing.steps.iter().enumerate() {
        if matches!(step.shape, Shape::Node | Shape::Bar) {
            members[step.group].push(Item::Step(index));
        }
    }
    let mut inner: Vec<Block> = Vec::new();
    inner.resize_with(drawing.groups.len(), Block::default);
    let mut parts: Vec<Option<position::Part>> = Vec::new();
    parts.resize_with(drawing.groups.len(), || None);
    for group in (0..drawing.groups.len()).rev() {
        // The order of the plan is where untangling begins.
        members[group].sort_by_key(|item| first_step(drawing, *item));
        let rows = layers::layer(&members[group], &connections[group], |item| match item {
            Item::Step(step) => Block { width: size(step).0, height: size(step).1, ..Block::default() },
            Item::Group(group) => std::mem::take(&mut inner[group]),
        });
        connections[group].clear();
        let part = position::place(order::untangle(rows), frame(drawing, group));
        inner[group] = part.block();
        parts[group] = Some(part);
        if group != 0 {
            members[drawing.groups[group].parent].push(Item::Group(group));
        }
    }
    assemble(drawing, parts)
}

fn first_step(drawing: &Drawing, item: Item) -> usize {
    match item {
        Item::Step(step) => step,
        Item::Group(group) => {
            let inside = |step: &crate::drawing::Step| crate::groups::is_inside(&drawing.groups, step.group, group);
            drawing.steps.iter().position(inside).unwrap_or(usize::MAX)
        }
    }
}

/// The space around what is in a box.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) padding: f64,
    pub(crate) heading: f64,
    pub(crate) least_width: f64,
}

fn frame(drawing: &Drawing, group: usize) -> Frame {
    if group == 0 {
        return Frame { padding: 0.0, heading: 0.0, least_width: 0.0 };
    }
    let least_width = crate::svg::least_width(drawing, group);
    Frame { padding: PADDING, heading: HEADING, least_width }
}

/// Cuts every arrow where it goes through the rim of a box. Returns the connections of each box.
fn connect(drawing: &Drawing) -> Vec<Vec<Connection>> {
    let bundles = bundles(&drawing.arrows);
    let mut connections: Vec<BTreeSet<Connection>> = vec![BTreeSet::new(); drawing.groups.len()];
    for arrow in &drawing.arrows {
        let bundle = bundles(arrow);
        let from = chain(&drawing.groups, place(&drawing.steps, arrow.from));
        let to = chain(&drawing.groups, place(&drawing.steps, arrow.to));
        let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        let (Some((&out, leaving)), Some((&into, entering))) =
            (from[common..].split_first(), to[common..].split_first())
        else {
            continue; // from a frame to what is inside it, or the other way: being inside says it
        };
        let home = |depth: usize, chain: &[Item]| match depth.checked_sub(1).map(|above| chain[above]) {
            Some(Item::Group(group)) => group,
            Some(Item::Step(_)) | None => 0,
        };
        let mut add = |group: usize, from: End, to: End, head: bool| {
            connections[group].insert(Connection { from, to, bundle, head });
        };
        for (depth, &item) in leaving.iter().enumerate() {
            add(home(common + 1 + depth, &from), End::Item(item), End::Exit(bundle), false);
        }
        let to_bar = drawing.steps[arrow.to].shape == Shape::Bar;
        add(home(common, &from), End::Item(out), End::Item(into), entering.is_empty() && !to_bar);
        for (depth, &item) in entering.iter().enumerate() {
            let last = depth + 1 == entering.len() && !to_bar;
            add(home(common + 1 + depth, &to), End::Entry(bundle), End::Item(item), last);
        }
    }
    connections.into_iter().map(|connections| connections.into_iter().collect()).collect()
}

/// Bundles an arrow with the others of its source or of its target, whichever are more.
fn bundles(arrows: &[Arrow]) -> impl Fn(&Arrow) -> Bundle {
    let mut out: BTreeMap<(usize, Wait), usize> = BTreeMap::new();
    let mut into: BTreeMap<(usize, Wait), usize> = BTreeMap::new();
    for arrow in arrows {
        *out.entry((arrow.from, arrow.wait)).or_default() += 1;
        *into.entry((arrow.to, arrow.wait)).or_default() += 1;
    }
    move |arrow| {
        if out[&(arrow.from, arrow.wait)] >= into[&(arrow.to, arrow.wait)] {
            Bundle::From(arrow.from, arrow.wait)
        } else {
            Bundle::Into(arrow.to, arrow.wait)
        }
    }
}

/// Puts the boxes into each other, from the outside in.
fn assemble(drawing: &Drawing, parts: Vec<Option<position::Part>>) -> Placed {
    let mut placed = Placed::default();
    let mut corners = vec![(0.0, 0.0); drawing.groups.len()];
    for (group, part) in parts.into_iter().enumerate() {
        let Some(part) = part else { continue };
        let (left, top) = corners[group];
        if group == 0 {
            (placed.width, placed.height) = (part.width, part.height);
        }
        for (item, rect) in part.items {
            let rect = Rect { x: rect.x + left, y: rect.y + top, ..rect };
            if let Item::Group(inner) = item {
                corners[inner] = (rect.x, rect.y);
            }
            placed.items.insert(item, rect);
        }
        placed.lines.extend(part.lines.into_iter().map(|mut line| {
            line.points.iter_mut().for_each(|(x, y)| (*x, *y) = (*x + left, *y + top));
            line
        }));
    }
    placed
}
