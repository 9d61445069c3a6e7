//! The boxes around steps: scopes, and paths above steps.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::drawing::{Shape, Step};
use crate::text::one_line;
use crate::waits::Waits;

/// A box around steps, and around other boxes.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The path above its steps; empty for the whole picture.
    pub(crate) path: String,
    /// Its path below the box that it is in, clean.
    pub(crate) name: String,
    /// The box that it is in. The whole picture is in itself.
    pub(crate) parent: usize,
    /// The step that ends it, if it is a scope.
    pub(crate) end: Option<usize>,
}

/// Puts every step in its box, and returns the boxes.
pub(crate) fn arrange(steps: &mut [Step], waits: &Waits) -> Vec<Group> {
    let mut paths = boxed_paths(steps);
    loop {
        let groups = build(steps, &paths);
        set_frames(steps, &groups, waits);
        let knotted = knotted(steps, &groups, waits);
        if knotted.is_empty() {
            return with_ends(groups, steps);
        }
        paths.retain(|path| !knotted.contains(path));
    }
}

/// Returns what is below a path, or all of it if it is somewhere else.
pub(crate) fn below<'a>(above: &str, path: &'a str) -> &'a str {
    let below = path.strip_prefix(above).and_then(|rest| rest.strip_prefix('/'));
    below.filter(|rest| !rest.is_empty()).unwrap_or(path)
}

pub(crate) fn is_inside(groups: &[Group], mut inner: usize, outer: usize) -> bool {
    while inner != outer && inner != 0 {
        inner = groups[inner].parent;
    }
    inner == outer
}

fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// Chooses what is boxed: scopes, and paths above steps. What is above boxes only, and above all of them, would be
/// a frame around half of the picture; what is above one step only is a part of its name, except for what stands for one
/// plugin, which is one below the top.
fn boxed_paths(steps: &[Step]) -> BTreeSet<String> {
    let mut inside: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.shape == Shape::Node) {
        for parent in parents(&step.path) {
            let (all, direct) = inside.entry(parent).or_default();
            *all += 1;
            *direct += usize::from(!below(parent, &step.path).contains('/'));
        }
    }
    let scopes: BTreeSet<&str> = steps.iter().filter(|step| step.plan.is_scope()).map(|step| &*step.path).collect();
    let boxed = inside.into_iter().filter(|(path, (all, direct))| match path.matches('/').count() {
        _ if scopes.contains(path) => true,
        0 => *direct > 0,
        1 => true,
        _ => *all > 1,
    });
    boxed.map(|(path, _)| path.to_owned()).collect()
}

/// Builds the boxes for these paths, which come with what is above before what is below, and assigns the steps.
fn build(steps: &mut [Step], paths: &BTreeSet<String>) -> Vec<Group> {
    let mut groups = vec![Group { path: String::new(), name: String::new(), parent: 0, end: None }];
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let innermost = |numbers: &BTreeMap<&str, usize>, path: &str| {
        parents(path).filter_map(|parent| numbers.get(parent).copied()).last().unwrap_or(0)
    };
    // In the order of the plan, so that the picture reads like it.
    for step in steps.iter().filter(|step| step.shape == Shape::Node) {
        for parent in parents(&step.path).filter(|parent| paths.contains(*parent)) {
            if numbers.contains_key(parent) {
                continue;
            }
            let outer = innermost(&numbers, parent);
            let name = one_line(below(&groups[outer].path, parent)).replace('/', " / ");
            numbers
                .insert(paths.get(parent).map(String::as_str).expect("it was just found to be in there"), groups.len());
            groups.push(Group { path: parent.to_owned(), name, parent: outer, end: None });
        }
    }
    // The name of the topmost boxes says all that is not boxed above them, but for the one word all of them share.
    let tops = groups.iter().skip(1).filter(|group| group.parent == 0);
    let shared: BTreeSet<&str> = tops.filter_map(|group| group.path.split_once('/')).map(|(first, _)| first).collect();
    if let (1, Some(first)) = (shared.len(), shared.first().map(|first| (*first).to_owned())) {
        for group in groups.iter_mut().skip(1).filter(|group| group.parent == 0) {
            group.name = one_line(below(&first, &group.path)).replace('/', " / ");
        }
    }
    let places: Vec<usize> = steps.iter().map(|step| innermost(&numbers, &step.path)).collect();
    let own: Vec<Option<usize>> = steps.iter().map(|step| numbers.get(&*step.path).copied()).collect();
    for ((step, place), own) in steps.iter_mut().zip(places).zip(own) {
        // The end of a scope is in its own box, whether it is drawn as its frame or as a bar.
        step.group = if step.plan.is_scope() { own.unwrap_or(place) } else { place };
    }
    groups
}

/// Lets the end of a scope be the frame of its box, where that says the same.
fn set_frames(steps: &mut [Step], groups: &[Group], waits: &Waits) {
    for end in 0..steps.len() {
        if !steps[end].plan.is_scope() {
            continue;
        }
        let group = steps[end].group;
        let scope = Some(&*steps[end].path);
        let own_box = groups[group].path == steps[end].path;
        let only_members = steps.iter().enumerate().all(|(other, step)| {
            let inside = is_inside(groups, step.group, group) && step.shape != Shape::Gone;
            other == end || !inside || step.plan.scope.as_deref() == scope && !waits[other].contains_key(&end)
        });
        steps[end].shape = if own_box && only_members { Shape::Frame(group) } else { Shape::Bar };
    }
}

/// Finds boxes that would wait for each other: one has steps before and steps behind some of another. Neither can be
/// drawn above the other, so their steps are drawn without them.
fn knotted(steps: &[Step], groups: &[Group], waits: &Waits) -> BTreeSet<String> {
    // A node of this graph is a group or a step; an edge leads from one to another in the same box.
    let mut graph: DiGraph<(), ()> = DiGraph::new();
    for _item in 0..groups.len() + steps.len() {
        graph.add_node(());
    }
    for (to, waits) in waits.iter().enumerate() {
        for &from in waits.keys() {
            if let Some((from, to)) = siblings(groups, place(steps, from), place(steps, to)) {
                let number = |item: Item| match item {
                    Item::Group(group) => NodeIndex::new(group),
                    Item::Step(step) => NodeIndex::new(groups.len() + step),
                };
                graph.update_edge(number(from), number(to), ());
            }
        }
    }
    let knots = tarjan_scc(&graph).into_iter().filter(|knot| knot.len() > 1);
    let members = knots.flatten().map(NodeIndex::index).filter(|&item| item < groups.len());
    members.map(|group| groups[group].path.clone()).collect()
}

/// What is drawn in a box: a step, or another box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Item {
    Step(usize),
    Group(usize),
}

/// Returns where a step is, from the inside out: itself, or the box whose frame it is, then the boxes around that.
pub(crate) fn place(steps: &[Step], step: usize) -> (Item, usize) {
    (if let Shape::Frame(group) = steps[step].shape { Item::Group(group) } else { Item::Step(step) }, steps[step].group)
}

/// Returns the boxes or steps, of one and the same box, that hold the two; `None` if one holds the other.
pub(crate) fn siblings(groups: &[Group], from: (Item, usize), to: (Item, usize)) -> Option<(Item, Item)> {
    let (from, to) = (chain(groups, from), chain(groups, to));
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    Some((*from.get(common)?, *to.get(common)?))
}

/// Returns an item with all boxes that it is in, from the outside in.
pub(crate) fn chain(groups: &[Group], (item, home): (Item, usize)) -> Vec<Item> {
    let (mut chain, mut group) = match item {
        Item::Step(_) => (vec![item], home),
        Item::Group(group) => (Vec::new(), group),
    };
    while group != 0 {
        chain.push(Item::Group(group));
        group = groups[group].parent;
    }
    chain.reverse();
    chain
}

fn with_ends(mut groups: Vec<Group>, steps: &[Step]) -> Vec<Group> {
    for (index, step) in steps.iter().enumerate() {
        if let Shape::Frame(group) = step.shape {
            groups[group].end = Some(index);
        }
    }
    groups
}
