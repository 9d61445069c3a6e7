//! The order within rows: as few crossings as some sweeps find.

use crate::layout::layers::{Link, Rows, What};

/// After so many sweeps without a better order there will be none.
const PATIENCE: usize = 4;
const SWEEPS: usize = 24;

/// Orders each row by the middle of what its cells are linked to, up and down, and keeps the best order seen.
pub(super) fn untangle(mut rows: Rows) -> Rows {
    let neighbours = Neighbours::new(&rows);
    let mut best = (crossings(&rows, &neighbours), rows.rows.clone());
    let mut idle = 0;
    for sweep in 0..SWEEPS {
        // The first sweep is for looks as well: it puts a line that many hang on in their middle.
        if (best.0 == 0 && sweep > 0) || idle == PATIENCE {
            break;
        }
        let count = rows.rows.len();
        let down = sweep % 2 == 0;
        for step in 1..count {
            let row = if down { step } else { count - 1 - step };
            sort_row(&mut rows, &neighbours, row, down);
        }
        let crossings = crossings(&rows, &neighbours);
        idle += 1;
        if crossings < best.0 || (sweep == 0 && crossings == best.0) {
            best = (crossings, rows.rows.clone());
            idle = 0;
        }
    }
    rows.rows = best.1;
    rows
}

/// For each cell, its links up and down.
pub(super) struct Neighbours {
    pub(super) up: Vec<Vec<usize>>,
    pub(super) down: Vec<Vec<usize>>,
}

impl Neighbours {
    pub(super) fn new(rows: &Rows) -> Neighbours {
        let mut all = Neighbours { up: vec![Vec::new(); rows.cells.len()], down: vec![Vec::new(); rows.cells.len()] };
        for (number, link) in rows.links.iter().enumerate() {
            all.down[link.from].push(number);
            all.up[link.to].push(number);
        }
        all
    }
}

/// Returns the place of each cell in its row.
fn places(rows: &Rows) -> Vec<f64> {
    let mut places = vec![0.0; rows.cells.len()];
    for row in &rows.rows {
        for (place, &cell) in (0u32..).zip(row) {
            places[cell] = f64::from(place);
        }
    }
    places
}

/// Returns the place of an end of a link; where it is attached counts for less than a whole place.
fn end(rows: &Rows, places: &[f64], cell: usize, port: Option<f64>) -> f64 {
    places[cell] + port.unwrap_or(0.0) / (rows.cells[cell].width + 1.0)
}

fn sort_row(rows: &mut Rows, neighbours: &Neighbours, row: usize, down: bool) {
    let places = places(rows);
    let middle = |cell: usize| {
        let links = if down { &neighbours.up[cell] } else { &neighbours.down[cell] };
        let mut ends: Vec<f64> = links
            .iter()
            .map(|&link| {
                let Link { from, to, from_port, to_port, .. } = &rows.links[link];
                if down { end(rows, &places, *from, *from_port) } else { end(rows, &places, *to, *to_port) }
            })
            .collect();
        ends.sort_by(f64::total_cmp);
        let (low, high) = (ends.get(ends.len().saturating_sub(1) / 2)?, ends.get(ends.len() / 2)?);
        Some((low + high) / 2.0)
    };
    let cells = rows.rows[row].clone();
    let middles: Vec<Option<f64>> = cells.iter().map(|&cell| middle(cell)).collect();
    let mut linked: Vec<(f64, usize)> =
        cells.iter().zip(&middles).filter_map(|(&cell, middle)| Some(((*middle)?, cell))).collect();
    linked.sort_by(|a, b| a.0.total_cmp(&b.0));
    linked.chunk_by_mut(|a, b| a.0.total_cmp(&b.0).is_eq()).for_each(|equal| lines_to_the_middle(rows, equal));
    let mut linked = linked.into_iter();
    // What is not linked keeps its place.
    let sorted = cells.iter().zip(&middles).map(|(&cell, middle)| {
        let next = middle.and_then(|_| linked.next());
        next.map_or(cell, |(_, cell)| cell)
    });
    rows.rows[row] = sorted.collect();
}

/// Puts lines that pass between the things that are drawn to the same place as they are.
fn lines_to_the_middle(rows: &Rows, equal: &mut [(f64, usize)]) {
    let (lines, mut things): (Vec<_>, Vec<_>) =
        equal.iter().copied().partition(|&(_, cell)| rows.cells[cell].what == What::Pass);
    let behind = things.split_off(things.len() / 2);
    let sorted = things.into_iter().chain(lines).chain(behind);
    equal.iter_mut().zip(sorted).for_each(|(place, next)| *place = next);
}

fn crossings(rows: &Rows, neighbours: &Neighbours) -> usize {
    let places = places(rows);
    let between = |row: &Vec<usize>| {
        let mut ends: Vec<(f64, f64)> = row
            .iter()
            .flat_map(|&cell| &neighbours.down[cell])
            .map(|&link| {
                let link = &rows.links[link];
                (end(rows, &places, link.from, link.from_port), end(rows, &places, link.to, link.to_port))
            })
            .collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        inversions(&mut ends.into_iter().map(|(_, to)| to).collect::<Vec<_>>())
    };
    rows.rows.iter().map(between).sum()
}

/// Counts the pairs that stand in the wrong order, by merging halves.
fn inversions(values: &mut [f64]) -> usize {
    if values.len() < 2 {
        return 0;
    }
    let middle = values.len() / 2;
    let mut count = inversions(&mut values[..middle]) + inversions(&mut values[middle..]);
    let mut merged = Vec::with_capacity(values.len());
    let (mut left, mut right) = (0, middle);
    while left < middle || right < values.len() {
        if right == values.len() || (left < middle && values[left] <= values[right]) {
            merged.push(values[left]);
            left += 1;
        } else {
            merged.push(values[right]);
            count += middle - left;
            right += 1;
        }
    }
    values.copy_from_slice(&merged);
    count
}

#[cfg(test)]
mod tests {
    #[test]
    fn pairs_in_the_wrong_order_are_counted() {
        assert_eq!(super::inversions(&mut [1.0, 2.0, 3.0]), 0);
        assert_eq!(super::inversions(&mut [3.0, 2.0, 1.0]), 3);
        assert_eq!(super::inversions(&mut [2.0, 2.0, 1.0, 3.0]), 2);
    }
}
