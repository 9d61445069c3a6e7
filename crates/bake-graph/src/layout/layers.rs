//! Rows: everything is in the row below the last thing that it waits for.

use std::collections::{BTreeMap, BTreeSet};

use crate::groups::Item;
use crate::layout::{Block, Bundle, Connection, End};

/// A row wider than this, and wider than the picture would be as a square, is broken into several.
const WIDE_ROW: f64 = 1500.0;
/// Space that a line takes in a row that it only passes.
pub(super) const LINE_WIDTH: f64 = 6.0;

/// Something in a row.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) what: What,
    pub(super) width: f64,
    pub(super) height: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Item(Item),
    /// A port in the upper or the lower rim.
    Port(Bundle),
    /// A line that passes.
    Pass,
}

/// A line between cells of neighbouring rows.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Where it is attached, from the middle of the cell; `None` if that is free.
    pub(super) from_port: Option<f64>,
    pub(super) to_port: Option<f64>,
    pub(super) bundle: Bundle,
    pub(super) head: bool,
}

/// Cells in rows, and the lines between them.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) cells: Vec<Cell>,
    pub(super) links: Vec<Link>,
    /// The cells of each row, from left to right.
    pub(super) rows: Vec<Vec<usize>>,
    pub(super) entries: BTreeMap<Bundle, usize>,
    pub(super) exits: BTreeMap<Bundle, usize>,
    pub(super) has_entry_row: bool,
    pub(super) has_exit_row: bool,
}

pub(super) fn layer(items: &[Item], connections: &[Connection], mut block: impl FnMut(Item) -> Block) -> Rows {
    let mut rows = Rows::default();
    let blocks: BTreeMap<Item, Block> = items.iter().map(|&item| (item, block(item))).collect();
    let mut cells: BTreeMap<End, usize> = BTreeMap::new();
    let mut row_of: Vec<usize> = Vec::new();
    rows.has_entry_row = connections.iter().any(|connection| matches!(connection.from, End::Entry(_)));
    rows.has_exit_row = connections.iter().any(|connection| matches!(connection.to, End::Exit(_)));
    let first = usize::from(rows.has_entry_row);
    let (ranks, count) = ranks(items, connections, &blocks);
    for &item in items {
        cells.insert(End::Item(item), rows.cells.len());
        rows.cells.push(Cell { what: What::Item(item), width: blocks[&item].width, height: blocks[&item].height });
        row_of.push(first + ranks[&item]);
    }
    for end in connections.iter().flat_map(|connection| [connection.from, connection.to]) {
        let (bundle, row, ports) = match end {
            End::Entry(bundle) => (bundle, 0, &mut rows.entries),
            End::Exit(bundle) => (bundle, first + count, &mut rows.exits),
            End::Item(_) => continue,
        };
        cells.entry(end).or_insert_with(|| {
            ports.insert(bundle, rows.cells.len());
            rows.cells.push(Cell { what: What::Port(bundle), width: LINE_WIDTH, height: 0.0 });
            row_of.push(row);
            rows.cells.len() - 1
        });
    }
    let ends = |connection: &Connection| (cells[&connection.from], cells[&connection.to]);
    link(&mut rows, &mut row_of, connections, ends, &blocks);
    let last = row_of.iter().max().map_or(0, |row| row + 1);
    rows.rows = vec![Vec::new(); last];
    for (cell, &row) in row_of.iter().enumerate() {
        rows.rows[row].push(cell);
    }
    rows
}

/// Gives every item its row, and returns how many there are.
fn ranks(items: &[Item], connections: &[Connection], blocks: &BTreeMap<Item, Block>) -> (BTreeMap<Item, usize>, usize) {
    let mut before: BTreeMap<Item, BTreeSet<Item>> = items.iter().map(|&item| (item, BTreeSet::new())).collect();
    for connection in connections {
        if let (End::Item(from), End::Item(to)) = (connection.from, connection.to) {
            before.entry(to).or_default().insert(from);
        }
    }
    // Waves: what waits for nothing that is left.
    let mut ranks: BTreeMap<Item, usize> = BTreeMap::new();
    let mut waves: Vec<Vec<Item>> = Vec::new();
    let mut left: Vec<Item> = items.to_vec();
    while !left.is_empty() {
        let ready = |item: &Item| before[item].iter().all(|from| ranks.contains_key(from));
        let (wave, rest): (Vec<Item>, Vec<Item>) = left.iter().partition(|item| ready(item));
        // Boxes that wait for each other were taken apart before; were there any left, they would follow each other here.
        let (wave, rest) = if wave.is_empty() { (vec![rest[0]], rest[1..].to_vec()) } else { (wave, rest) };
        ranks.extend(wave.iter().map(|&item| (item, waves.len())));
        waves.push(wave);
        left = rest;
    }
    sink(items, &before, &mut ranks, &mut waves);
    let area: f64 = blocks.values().map(|block| (block.width + 30.0) * (block.height + 50.0)).sum();
    let limit = (area.sqrt() * 1.4).max(WIDE_ROW);
    let mut row = 0;
    for wave in waves {
        for part in broken(&wave, blocks, limit) {
            ranks.extend(part.iter().map(|&item| (item, row)));
            row += 1;
        }
    }
    (ranks, row)
}

/// Lets what waits for nothing come down to the row above the first that waits for it.
fn sink(
    items: &[Item],
    before: &BTreeMap<Item, BTreeSet<Item>>,
    ranks: &mut BTreeMap<Item, usize>,
    waves: &mut [Vec<Item>],
) {
    let mut behind: BTreeMap<Item, usize> = BTreeMap::new();
    for (to, from) in before.iter().flat_map(|(to, before)| before.iter().map(move |from| (to, from))) {
        let row = ranks[to];
        behind.entry(*from).and_modify(|first| *first = row.min(*first)).or_insert(row);
    }
    for item in items.iter().filter(|item| before[item].is_empty()) {
        let Some(&first) = behind.get(item).filter(|&&first| first > 1) else { continue };
        waves[ranks[item]].retain(|other| other != item);
        waves[first - 1].push(*item);
        ranks.insert(*item, first - 1);
    }
}

/// Breaks a row into parts of about the same width.
fn broken(wave: &[Item], blocks: &BTreeMap<Item, Block>, limit: f64) -> Vec<Vec<Item>> {
    let total: f64 = wave.iter().map(|item| blocks[item].width).sum();
    let share = total / (total / limit).ceil().max(1.0);
    let mut parts: Vec<Vec<Item>> = vec![Vec::new()];
    let mut used = 0.0;
    for &item in wave {
        let part = parts.last_mut().expect("there is a part from the start");
        if used > 0.0 && used + blocks[&item].width > share + 1.0 {
            parts.push(vec![item]);
            used = 0.0;
        } else {
            part.push(item);
        }
        used += blocks[&item].width;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Leads every connection from row to row. Those of one bundle share what they can.
fn link(
    rows: &mut Rows,
    row_of: &mut Vec<usize>,
    connections: &[Connection],
    ends: impl Fn(&Connection) -> (usize, usize),
    blocks: &BTreeMap<Item, Block>,
) {
    let mut passes: BTreeMap<(Bundle, Option<usize>, usize), usize> = BTreeMap::new();
    let mut seen: BTreeSet<(usize, usize, Bundle, bool)> = BTreeSet::new();
    for connection in connections {
        let bundle = connection.bundle;
        let (from, to) = ends(connection);
        // Lines may only be joined where they come from or go to one place: two that leave a box apart stay so.
        let shared = match bundle {
            Bundle::From(..) => from,
            Bundle::Into(..) => to,
        };
        let mut last = from;
        for row in row_of[from] + 1..=row_of[to] {
            let next = if row == row_of[to] {
                to
            } else {
                *passes.entry((bundle, Some(shared), row)).or_insert_with(|| {
                    rows.cells.push(Cell { what: What::Pass, width: LINE_WIDTH, height: 0.0 });
                    row_of.push(row);
                    rows.cells.len() - 1
                })
            };
            let head = connection.head && next == to;
            if seen.insert((last, next, bundle, head)) {
                let from_port = port(&rows.cells[last], blocks, |block| block.exits.get(&bundle).copied());
                let to_port = port(&rows.cells[next], blocks, |block| block.entries.get(&bundle).copied());
                rows.links.push(Link { from: last, to: next, from_port, to_port, bundle, head });
            }
            last = next;
        }
    }
}

/// Returns where in a cell a line is attached, from its middle.
fn port(cell: &Cell, blocks: &BTreeMap<Item, Block>, of: impl Fn(&Block) -> Option<f64>) -> Option<f64> {
    match cell.what {
        What::Item(item) => of(&blocks[&item]).map(|x| x - cell.width / 2.0),
        What::Port(_) | What::Pass => Some(0.0),
    }
}
