//! Who waits for whom, in as few arrows as say it.
//!
//! A plan has many more edges than a reader wants: each step names everything it needs, also what it would wait for
//! anyhow. An edge is left out if a longer way says the same. `needs` says more than `after` (a failure follows it), so
//! it is only left out for a way of nothing but `needs`.

use std::collections::BTreeMap;

use petgraph::algo::toposort;
use petgraph::graph::{DiGraph, NodeIndex};

/// How a step waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Wait {
    /// For what it gives: without that, it is not run.
    Needs,
    /// Until it has ended, well or not.
    After,
}

/// For each step, what it waits for.
pub(crate) type Waits = Vec<BTreeMap<usize, Wait>>;

/// Takes out barriers that say less than the arrows they stand for, then all arrows that say nothing new.
/// `Err` is a step that waits for itself.
pub(crate) fn simplify(waits: &mut Waits, is_barrier: impl Fn(usize) -> bool) -> Result<Vec<bool>, usize> {
    let order = sorted(waits)?;
    reduce(waits, &order);
    let mut dissolved = vec![false; waits.len()];
    for &step in order.iter().filter(|&&step| is_barrier(step)) {
        dissolved[step] = dissolve(waits, step);
    }
    reduce(waits, &order);
    Ok(dissolved)
}

/// Returns the steps, each behind all it waits for.
fn sorted(waits: &Waits) -> Result<Vec<usize>, usize> {
    let mut graph: DiGraph<(), ()> = DiGraph::with_capacity(waits.len(), waits.len() * 2);
    waits.iter().for_each(|_| drop(graph.add_node(())));
    for (to, waits) in waits.iter().enumerate() {
        for &from in waits.keys() {
            graph.add_edge(NodeIndex::new(from), NodeIndex::new(to), ());
        }
    }
    let order = toposort(&graph, None).map_err(|cycle| cycle.node_id().index())?;
    Ok(order.into_iter().map(NodeIndex::index).collect())
}

/// Replaces a barrier by arrows from each step before it to each one behind it, unless they are more than its own.
fn dissolve(waits: &mut Waits, barrier: usize) -> bool {
    let before = waits[barrier].clone();
    let behind: Vec<usize> = (0..waits.len()).filter(|&step| waits[step].contains_key(&barrier)).collect();
    if before.len() * behind.len() > before.len() + behind.len() {
        return false;
    }
    for step in behind {
        waits[step].remove(&barrier);
        for &from in before.keys() {
            waits[step].entry(from).or_insert(Wait::After);
        }
    }
    waits[barrier].clear();
    true
}

fn reduce(waits: &mut Waits, order: &[usize]) {
    let mut needed = Ancestors::new(waits.len());
    let mut awaited = Ancestors::new(waits.len());
    for &step in order {
        let needs = waits[step].iter().filter(|(_, wait)| **wait == Wait::Needs).map(|(&from, _)| from);
        needed.inherit(step, needs);
        awaited.inherit(step, waits[step].keys().copied());
        waits[step].retain(|&from, wait| match wait {
            Wait::Needs => !needed.contains(step, from),
            Wait::After => !awaited.contains(step, from),
        });
        needed.close(step, waits[step].iter().filter(|(_, wait)| **wait == Wait::Needs).map(|(&from, _)| from));
        awaited.close(step, waits[step].keys().copied());
    }
}

/// For each step, the steps before it, a bit for each.
struct Ancestors {
    words: usize,
    bits: Vec<u64>,
}

impl Ancestors {
    fn new(steps: usize) -> Ancestors {
        let words = steps.div_ceil(64);
        Ancestors { words, bits: vec![0; words * steps] }
    }

    /// Gives a step the ancestors of those it waits for, but not yet these themselves.
    fn inherit(&mut self, step: usize, from: impl Iterator<Item = usize>) {
        for from in from {
            for word in 0..self.words {
                self.bits[step * self.words + word] |= self.bits[from * self.words + word];
            }
        }
    }

    fn close(&mut self, step: usize, from: impl Iterator<Item = usize>) {
        from.for_each(|from| self.bits[step * self.words + from / 64] |= 1 << (from % 64));
    }

    fn contains(&self, step: usize, ancestor: usize) -> bool {
        self.bits[step * self.words + ancestor / 64] & (1 << (ancestor % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Steps wait for earlier ones only; what is drawn twice is the stronger one.
    fn graphs() -> impl Strategy<Value = (Waits, Vec<bool>)> {
        (2usize..14).prop_flat_map(|steps| {
            let edges = prop::collection::vec((0..steps, 0..steps, any::<bool>()), 0..40);
            (edges, prop::collection::vec(prop::bool::weighted(0.2), steps)).prop_map(move |(edges, barriers)| {
                let mut waits = vec![BTreeMap::new(); steps];
                for (a, b, needs) in edges.into_iter().filter(|(a, b, _)| a != b) {
                    let needs = needs && !barriers[a] && !barriers[b];
                    waits[a.max(b)].insert(a.min(b), if needs { Wait::Needs } else { Wait::After });
                }
                (waits, barriers)
            })
        })
    }

    fn reaches(waits: &Waits, kinds: &[Wait]) -> Vec<Vec<bool>> {
        let mut reach = vec![vec![false; waits.len()]; waits.len()];
        for to in 0..waits.len() {
            for (&from, _) in waits[to].iter().filter(|(_, wait)| kinds.contains(wait)) {
                reach[to][from] = true;
                (0..waits.len()).for_each(|step| reach[to][step] |= reach[from][step]);
            }
        }
        reach
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_few_arrows_say_what_the_many_said((before, barriers) in graphs()) {
            let mut waits = before.clone();
            let dissolved = simplify(&mut waits, |step| barriers[step]).unwrap();
            for kinds in [&[Wait::Needs][..], &[Wait::Needs, Wait::After]] {
                let (was, is) = (reaches(&before, kinds), reaches(&waits, kinds));
                for (to, from) in (0..was.len()).flat_map(|to| (0..to).map(move |from| (to, from))) {
                    if !dissolved[to] && !dissolved[from] {
                        prop_assert_eq!(was[to][from], is[to][from], "{} after {}", to, from);
                    }
                }
            }
        }

        #[test]
        fn no_arrow_could_be_left_out((mut waits, barriers) in graphs()) {
            simplify(&mut waits, |step| barriers[step]).unwrap();
            let all = reaches(&waits, &[Wait::Needs, Wait::After]);
            for (to, from) in (0..waits.len()).flat_map(|to| waits[to].keys().map(move |&from| (to, from)).collect::<Vec<_>>()) {
                let mut without = waits.clone();
                let wait = without[to].remove(&from).unwrap();
                let kinds: &[Wait] = if wait == Wait::Needs { &[Wait::Needs] } else { &[Wait::Needs, Wait::After] };
                prop_assert!(!reaches(&without, kinds)[to][from]);
                prop_assert!(all[to][from]);
            }
        }
    }

    #[test]
    fn a_step_that_waits_for_itself_is_told() {
        let mut waits: Waits = vec![BTreeMap::from([(1, Wait::After)]), BTreeMap::from([(0, Wait::Needs)])];
        assert!(simplify(&mut waits, |_| false).is_err());
    }
}
