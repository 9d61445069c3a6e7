//! Who waits for whom, in as few arrows as say it.
//!
//! A plan has many more edges than a reader wants: each step names everything it needs, also what it would wait for
//! anyhow. An edge is left out if others say the same. `after` says only when; `needs` also says that without the one the
//! other is not run, so it is left out only if that follows as well: from other `needs`, or because without it nothing
//! would be run of all that the step comes after.

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
    drop_implied_after(waits, &order);
    let mut dissolved = vec![false; waits.len()];
    for &step in order.iter().filter(|&&step| is_barrier(step)) {
        dissolved[step] = dissolve(waits, step);
    }
    // What is implied without barriers must be known before any `needs` is left out because of it.
    drop_implied_after(waits, &order);
    drop_implied_needs(waits, &order);
    Ok(dissolved)
}

/// Returns the steps, each behind all it waits for.
fn sorted(waits: &Waits) -> Result<Vec<usize>, usize> {
    let mut graph: DiGraph<(), ()> = DiGraph::with_capacity(waits.len(), waits.len() * 2);
    for _step in waits {
        graph.add_node(());
    }
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

fn drop_implied_after(waits: &mut Waits, order: &[usize]) {
    let mut before: Vec<Bits> = vec![Bits::new(waits.len()); waits.len()];
    for &step in order {
        let mut implied = Bits::new(waits.len());
        waits[step].keys().for_each(|&from| implied.add_all(&before[from]));
        waits[step].retain(|&from, wait| *wait == Wait::Needs || !implied.has(from));
        waits[step].keys().for_each(|&from| implied.add(from));
        before[step] = implied;
    }
}

fn drop_implied_needs(waits: &mut Waits, order: &[usize]) {
    // For each step, those without any one of which it is not run.
    let mut vital: Vec<Bits> = vec![Bits::new(waits.len()); waits.len()];
    for &step in order {
        let of = |wanted: Wait| move |(&from, &wait): (&usize, &Wait)| (wait == wanted).then_some(from);
        let mut known = Bits::new(waits.len());
        waits[step].iter().filter_map(of(Wait::Needs)).for_each(|from| known.add_all(&vital[from]));
        let common = waits[step].iter().filter_map(of(Wait::After)).map(|from| vital[from].with(from));
        if let Some(common) = common.reduce(|all, next| all.and(&next)) {
            known.add_all(&common);
        }
        waits[step].retain(|&from, wait| *wait == Wait::After || !known.has(from));
        waits[step].iter().filter_map(of(Wait::Needs)).for_each(|from| known.add(from));
        vital[step] = known;
    }
}

/// A set of steps.
#[derive(Clone)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(steps: usize) -> Bits {
        Bits(vec![0; steps.div_ceil(64)])
    }

    fn has(&self, step: usize) -> bool {
        self.0[step / 64] & (1 << (step % 64)) != 0
    }

    fn add(&mut self, step: usize) {
        self.0[step / 64] |= 1 << (step % 64);
    }

    fn add_all(&mut self, others: &Bits) {
        self.0.iter_mut().zip(&others.0).for_each(|(mine, other)| *mine |= other);
    }

    fn with(&self, step: usize) -> Bits {
        let mut bits = self.clone();
        bits.add(step);
        bits
    }

    fn and(mut self, others: &Bits) -> Bits {
        self.0.iter_mut().zip(&others.0).for_each(|(mine, other)| *mine &= other);
        self
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

    /// For each step, the ones it waits for, over however many others.
    fn reaches(waits: &Waits) -> Vec<Vec<bool>> {
        let mut reach = vec![vec![false; waits.len()]; waits.len()];
        for to in 0..waits.len() {
            for &from in waits[to].keys() {
                reach[to][from] = true;
                let earlier = reach[from].clone();
                reach[to].iter_mut().zip(earlier).for_each(|(to, from)| *to |= from);
            }
        }
        reach
    }

    /// What a reader takes for run if one step is not: all that has what it needs, and something that it comes after.
    fn run_without(waits: &Waits, missing: usize) -> Vec<bool> {
        let mut run = vec![false; waits.len()];
        for step in (0..waits.len()).filter(|&step| step != missing) {
            let of = |wanted: Wait| waits[step].iter().filter(move |(_, wait)| **wait == wanted).map(|(&from, _)| from);
            let needed = of(Wait::Needs).all(|from| run[from]);
            let mut after = of(Wait::After).peekable();
            run[step] = needed && (after.peek().is_none() || after.any(|from| run[from]));
        }
        run
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_few_arrows_say_what_the_many_said((before, barriers) in graphs()) {
            let mut waits = before.clone();
            let dissolved = simplify(&mut waits, |step| barriers[step]).unwrap();
            let (was, is) = (reaches(&before), reaches(&waits));
            for (to, from) in (0..was.len()).flat_map(|to| (0..to).map(move |from| (to, from))) {
                if !dissolved[to] && !dissolved[from] {
                    prop_assert_eq!(was[to][from], is[to][from], "{} after {}", to, from);
                }
                if before[to].get(&from) == Some(&Wait::Needs) {
                    prop_assert!(!run_without(&waits, from)[to], "{} needs {}", to, from);
                }
                if waits[to].get(&from) == Some(&Wait::Needs) {
                    prop_assert_eq!(before[to].get(&from), Some(&Wait::Needs));
                }
            }
        }

        #[test]
        fn no_dashed_arrow_could_be_left_out((mut waits, barriers) in graphs()) {
            simplify(&mut waits, |step| barriers[step]).unwrap();
            for to in 0..waits.len() {
                for from in waits[to].iter().filter(|(_, wait)| **wait == Wait::After).map(|(&from, _)| from) {
                    let mut without = waits.clone();
                    without[to].remove(&from);
                    prop_assert!(!reaches(&without)[to][from], "{} after {}", to, from);
                }
            }
        }
    }

    #[test]
    fn what_everything_builds_on_needs_no_arrow_to_the_last_step() {
        // 0 is needed by 1 and 2, which 3 comes after; 3 needs 0 and 1.
        let needs = |steps: &[usize]| steps.iter().map(|&step| (step, Wait::Needs)).collect::<Vec<_>>();
        let mut waits: Waits = vec![
            BTreeMap::new(),
            needs(&[0]).into_iter().collect(),
            needs(&[0]).into_iter().collect(),
            needs(&[0, 1]).into_iter().chain([(2, Wait::After)]).collect(),
        ];
        simplify(&mut waits, |_| false).unwrap();
        assert_eq!(waits[3], BTreeMap::from([(1, Wait::Needs), (2, Wait::After)]));
    }

    #[test]
    fn a_step_that_waits_for_itself_is_told() {
        let mut waits: Waits = vec![BTreeMap::from([(1, Wait::After)]), BTreeMap::from([(0, Wait::Needs)])];
        assert!(simplify(&mut waits, |_| false).is_err());
    }
}
