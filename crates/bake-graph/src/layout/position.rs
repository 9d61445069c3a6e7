//! Coordinates: rows from top to bottom, and in each row every cell as near to what it is linked to as its neighbours let it.

use std::collections::BTreeMap;

use crate::groups::Item;
use crate::layout::layers::{Link, Rows, What};
use crate::layout::order::Neighbours;
use crate::layout::{Block, Bundle, Frame, Line, Rect};

/// Space between things in a row.
const GAP: f64 = 26.0;
/// Space between a thing and a line that passes it.
const LINE_GAP: f64 = 14.0;
/// Space between rows, where lines hardly move to the side, and where they move far.
const ROW_GAP: (f64, f64) = (34.0, 84.0);
/// How often cells are moved: often where that is cheap, since a long chain straightens out slowly.
const SWEEPS: (usize, usize) = (16, 200);
/// Cells to be moved in all.
const WORK: usize = 20_000;

/// A box with coordinates from its own corner.
pub(super) struct Part {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) items: Vec<(Item, Rect)>,
    pub(super) lines: Vec<Line>,
    entries: BTreeMap<Bundle, f64>,
    exits: BTreeMap<Bundle, f64>,
}

impl Part {
    pub(super) fn block(&self) -> Block {
        let (entries, exits) = (self.entries.clone(), self.exits.clone());
        Block { width: self.width, height: self.height, entries, exits }
    }
}

pub(super) fn place(mut rows: Rows, frame: Frame) -> Part {
    let neighbours = Neighbours::new(&rows);
    let mut x = pack(&rows);
    spread_ports(&mut rows, &neighbours);
    let sweeps = (WORK / rows.cells.len().max(1)).clamp(SWEEPS.0, SWEEPS.1);
    for sweep in 0..sweeps {
        let down = sweep % 2 == 0;
        for step in 0..rows.rows.len() {
            let row = if down { step } else { rows.rows.len() - 1 - step };
            // At last both sides count, so that nothing ends up pulled to one of them.
            let sides = if sweep < sweeps / 2 { (down, !down) } else { (true, true) };
            settle_row(&rows, &neighbours, &mut x, row, sides);
        }
    }
    finish(&rows, &x, frame)
}

fn needed(rows: &Rows, left: usize, right: usize) -> f64 {
    let (a, b) = (&rows.cells[left], &rows.cells[right]);
    let gap = match (a.what, b.what) {
        (What::Item(_), What::Item(_)) => GAP,
        _ => LINE_GAP,
    };
    f64::midpoint(a.width, b.width) + gap
}

/// Sets every row as tight as it gets, around one middle.
fn pack(rows: &Rows) -> Vec<f64> {
    let mut x = vec![0.0; rows.cells.len()];
    for row in &rows.rows {
        let mut at = 0.0;
        for pair in row.windows(2) {
            at += needed(rows, pair[0], pair[1]);
            x[pair[1]] = at;
        }
        row.iter().for_each(|&cell| x[cell] -= at / 2.0);
    }
    x
}

/// Attaches lines of several bundles side by side, in the order of where they lead to.
fn spread_ports(rows: &mut Rows, neighbours: &Neighbours) {
    let mut places = vec![0; rows.cells.len()];
    rows.rows.iter().flat_map(|row| row.iter().enumerate()).for_each(|(place, &cell)| places[cell] = place);
    for cell in 0..rows.cells.len() {
        for down in [true, false] {
            let links = if down { &neighbours.down[cell] } else { &neighbours.up[cell] };
            let other = |link: &Link| if down { (link.to, link.to_port) } else { (link.from, link.from_port) };
            let free = |link: &Link| if down { link.from_port.is_none() } else { link.to_port.is_none() };
            let mut ends: Vec<(usize, f64, Bundle, usize)> = links
                .iter()
                .filter(|&&link| free(&rows.links[link]))
                .map(|&number| {
                    let (cell, port) = other(&rows.links[number]);
                    (places[cell], port.unwrap_or(0.0), rows.links[number].bundle, number)
                })
                .collect();
            ends.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
            // Lines of one bundle out of one cell begin as one, and so do those into one.
            let mut bundles: Vec<Bundle> = Vec::new();
            ends.iter().for_each(|end| {
                if !bundles.contains(&end.2) {
                    bundles.push(end.2)
                }
            });
            let spread = if bundles.len() < 2 { 0.0 } else { spacing(rows.cells[cell].width, bundles.len()) };
            for (_, _, bundle, number) in ends {
                let place = bundles.iter().position(|other| *other == bundle).unwrap_or(0);
                let port = (as_f64(place) - as_f64(bundles.len() - 1) / 2.0) * spread;
                let link = &mut rows.links[number];
                *(if down { &mut link.from_port } else { &mut link.to_port }) = Some(port);
            }
        }
    }
}

fn spacing(width: f64, lines: usize) -> f64 {
    (width * 0.7 / as_f64(lines - 1)).min(24.0)
}

fn as_f64(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Moves the cells of a row to where their links want them, keeping order and distance: the least squares solution, found
/// by merging neighbours that would push each other.
fn settle_row(rows: &Rows, neighbours: &Neighbours, x: &mut [f64], row: usize, (up, down): (bool, bool)) {
    struct Pool {
        weight: f64,
        sum: f64,
        cells: usize,
    }
    let mut pools: Vec<Pool> = Vec::new();
    let mut offsets = Vec::with_capacity(rows.rows[row].len());
    let mut offset = 0.0;
    let mut before: Option<usize> = None;
    for &cell in &rows.rows[row] {
        offset += before.map_or(0.0, |before| needed(rows, before, cell));
        before = Some(cell);
        offsets.push(offset);
        let (weight, wish) = wish(rows, neighbours, x, cell, up, down);
        pools.push(Pool { weight, sum: weight * (wish - offset), cells: 1 });
        while let [.., left, right] = &pools[..] {
            if left.sum / left.weight <= right.sum / right.weight {
                break;
            }
            let right = pools.pop().expect("there are two");
            let left = pools.last_mut().expect("there is another");
            left.weight += right.weight;
            left.sum += right.sum;
            left.cells += right.cells;
        }
    }
    let settled = pools.iter().flat_map(|pool| std::iter::repeat_n(pool.sum / pool.weight, pool.cells));
    for ((&cell, offset), at) in rows.rows[row].iter().zip(offsets).zip(settled) {
        x[cell] = at + offset;
    }
}

/// Returns where the links of a cell want it, and how much.
fn wish(rows: &Rows, neighbours: &Neighbours, x: &[f64], cell: usize, up: bool, down: bool) -> (f64, f64) {
    let (mut weight, mut sum) = (0.0, 0.0);
    let is_pass = |cell: usize| rows.cells[cell].what == What::Pass;
    let mut count = |own: Option<f64>, other: usize, port: Option<f64>, links: usize| {
        // Long lines are to be straight, more than short ones; and however many hang on one, it is not for them to bend it.
        let pull = match (is_pass(cell), is_pass(other)) {
            (true, true) => 30.0,
            (true, false) => 1.0 / as_f64(links),
            (false, _) => 1.0,
        };
        weight += pull;
        sum += pull * (x[other] + port.unwrap_or(0.0) - own.unwrap_or(0.0));
    };
    let (above, below) = (&neighbours.up[cell], &neighbours.down[cell]);
    if up {
        for link in above.iter().map(|&link| &rows.links[link]) {
            count(link.to_port, link.from, link.from_port, above.len());
        }
    }
    if down {
        for link in below.iter().map(|&link| &rows.links[link]) {
            count(link.from_port, link.to, link.to_port, below.len());
        }
    }
    // What is not linked stays, but gives way.
    if weight == 0.0 { (0.01, x[cell]) } else { (weight, sum / weight) }
}

fn finish(rows: &Rows, x: &[f64], frame: Frame) -> Part {
    let cells = || rows.cells.iter().zip(x);
    let left = cells().map(|(cell, x)| x - cell.width / 2.0).fold(f64::INFINITY, f64::min);
    let right = cells().map(|(cell, x)| x + cell.width / 2.0).fold(f64::NEG_INFINITY, f64::max);
    let inside = if left.is_finite() { right - left } else { 0.0 };
    let width = (inside + 2.0 * frame.padding).max(frame.least_width);
    let shift = (width - inside) / 2.0 - if left.is_finite() { left } else { 0.0 };
    let x: Vec<f64> = x.iter().map(|x| x + shift).collect();
    let (tops, bottoms, height) = heights(rows, &x, frame);
    let mut items = Vec::new();
    let mut span = vec![(0.0, 0.0); rows.cells.len()];
    for (row, cells) in rows.rows.iter().enumerate() {
        for &cell in cells {
            let Rect { y, height, .. } = Rect {
                x: 0.0,
                y: f64::midpoint(tops[row], bottoms[row]) - rows.cells[cell].height / 2.0,
                width: 0.0,
                height: rows.cells[cell].height,
            };
            span[cell] = (y, y + height);
            if let What::Item(item) = rows.cells[cell].what {
                let width = rows.cells[cell].width;
                items.push((item, Rect { x: x[cell] - width / 2.0, y, width, height }));
            } else {
                span[cell] = (tops[row], bottoms[row]);
            }
        }
    }
    let mut row_of = vec![0; rows.cells.len()];
    rows.rows.iter().enumerate().for_each(|(row, cells)| cells.iter().for_each(|&cell| row_of[cell] = row));
    let line = |link: &Link| {
        let from = x[link.from] + link.from_port.unwrap_or(0.0);
        let to = x[link.to] + link.to_port.unwrap_or(0.0);
        // Through its own row a line is straight: only between rows is there room to turn.
        let to_row = row_of[link.to];
        let passes = rows.cells[link.to].what == What::Pass;
        let end = if passes { bottoms[to_row] } else { span[link.to].0 };
        let points = vec![(from, span[link.from].1), (from, bottoms[row_of[link.from]]), (to, tops[to_row]), (to, end)];
        Line { points, wait: link.bundle.wait(), head: link.head }
    };
    let lines = rows.links.iter().map(line).collect();
    let ports = |ports: &BTreeMap<Bundle, usize>| ports.iter().map(|(&bundle, &cell)| (bundle, x[cell])).collect();
    Part { width, height, items, lines, entries: ports(&rows.entries), exits: ports(&rows.exits) }
}

/// Returns the top and the bottom of each row, and how high all is. Where lines go far to the side, rows are further apart.
fn heights(rows: &Rows, x: &[f64], frame: Frame) -> (Vec<f64>, Vec<f64>, f64) {
    let count = rows.rows.len();
    let mut far = vec![0.0f64; count];
    let mut row_of = vec![0; rows.cells.len()];
    rows.rows.iter().enumerate().for_each(|(row, cells)| cells.iter().for_each(|&cell| row_of[cell] = row));
    for link in &rows.links {
        let (from, to) = (x[link.from] + link.from_port.unwrap_or(0.0), x[link.to] + link.to_port.unwrap_or(0.0));
        let row = row_of[link.from];
        far[row] = far[row].max((from - to).abs());
    }
    let (mut tops, mut bottoms) = (Vec::with_capacity(count), Vec::with_capacity(count));
    // Ports are in the rim itself.
    let mut y = if rows.has_entry_row { 0.0 } else { frame.heading + frame.padding / 2.0 };
    for (row, cells) in rows.rows.iter().enumerate() {
        let height = cells.iter().map(|&cell| rows.cells[cell].height).fold(0.0, f64::max);
        tops.push(y);
        bottoms.push(y + height);
        y += height;
        let is_rim = row == 0 && rows.has_entry_row;
        let to_rim = row + 2 == count && rows.has_exit_row;
        if row + 1 < count {
            let least = match (is_rim, to_rim) {
                (true, _) => frame.heading + frame.padding,
                (_, true) => frame.padding,
                (false, false) => ROW_GAP.0,
            };
            y += (far[row] / 7.0).clamp(least, least.max(ROW_GAP.1));
        }
    }
    let height = if rows.has_exit_row { y } else { y + frame.padding };
    (tops, bottoms, height)
}
