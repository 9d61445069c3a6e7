//! From a plan to the graph that is run: every edge, or everything that is wrong.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use petgraph::graph::{DiGraph, NodeIndex};

use crate::inputs::NeedKind;
use crate::plan::{Node, Plan};

/// One thing wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanProblem {
    /// Two steps have one path.
    #[error("two steps are named `{step}`")]
    TwoSteps {
        /// The path.
        step: String,
    },
    /// A name cannot be part of a path.
    #[error("`{step}` cannot be the path of a step: no part of it is empty or has one of `#`, `$`, `{{`, `}}`, `:`")]
    BadName {
        /// The path.
        step: String,
    },
    /// A step waits for something that is not there.
    #[error("`{step}` comes after `{after}`, and there is no such step")]
    UnknownAfter {
        /// The step that waits.
        step: String,
        /// What it waits for.
        after: String,
    },
    /// A handle came from another plan.
    #[error("`{step}` uses a handle of another plan")]
    ForeignHandle {
        /// The step that uses it.
        step: String,
    },
    /// A live value was used where it is closed already.
    #[error("`{step}` uses the live value of `{live}` outside its scope")]
    LiveOutsideScope {
        /// The step that uses it.
        step: String,
        /// The step that opens it.
        live: String,
    },
    /// Steps wait for each other.
    #[error("steps wait for each other: {}", .steps.join(" → "))]
    Cycle {
        /// The steps, each waiting for the next, the first again at the end.
        steps: Vec<String>,
    },
}

/// Everything wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanErrors {
    /// The problems, in the order of the plan.
    pub problems: Vec<PlanProblem>,
}

impl fmt::Display for PlanErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.problems.iter().map(PlanProblem::to_string).collect();
        f.write_str(&lines.join("; "))
    }
}

impl std::error::Error for PlanErrors {}

/// The edges of a plan: for each step, what it waits for.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) needs: Vec<BTreeMap<usize, NeedKind>>,
}

impl Plan {
    pub(crate) fn graph(&self) -> Result<Graph, PlanErrors> {
        let mut problems = self.problems.clone();
        let by_path = self.by_path(&mut problems);
        let mut graph = Graph { needs: vec![BTreeMap::new(); self.nodes.len()] };
        let mut last_user: HashMap<usize, usize> = HashMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for (from, kind) in node.data_edges() {
                self.add(&mut graph, index, from, kind);
                if kind == NeedKind::Live {
                    self.check_live(index, from, &mut problems);
                    // A live value is held alone, so its users follow each other in the order of the plan.
                    if let Some(before) = last_user.insert(from, index).filter(|&before| before != index) {
                        self.add(&mut graph, index, before, NeedKind::After);
                    }
                }
            }
            for after in &node.after_paths {
                let found = self.steps_at(after, &by_path);
                if found.is_empty() {
                    problems.push(PlanProblem::UnknownAfter { step: node.path.to_string(), after: after.clone() });
                }
                for from in found {
                    self.add(&mut graph, index, from, NeedKind::After);
                }
            }
        }
        problems.extend(self.cycles(&graph));
        if problems.is_empty() { Ok(graph) } else { Err(PlanErrors { problems }) }
    }

    /// Adds an edge, and lifts it to the end of the scope that it comes out of: otherwise a dependant could build on a
    /// value that a crash replaces.
    fn add(&self, graph: &mut Graph, to: usize, from: usize, kind: NeedKind) {
        graph.add(to, from, kind);
        if let Some(scope) = self.nodes[from].scope.filter(|_| self.nodes[from].scope != self.nodes[to].scope) {
            let end = self.scopes[scope].end;
            if end == to {
                return;
            }
            let kind = match kind {
                NeedKind::Value | NeedKind::Live => NeedKind::Value,
                NeedKind::Maybe | NeedKind::After => NeedKind::After,
            };
            graph.add(to, end, kind);
        }
    }

    fn by_path(&self, problems: &mut Vec<PlanProblem>) -> HashMap<&str, usize> {
        let mut by_path = HashMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if by_path.insert(&*node.path, index).is_some() {
                problems.push(PlanProblem::TwoSteps { step: node.path.to_string() });
            }
        }
        by_path
    }

    /// Returns the step of that path, or all steps under it.
    fn steps_at(&self, path: &str, by_path: &HashMap<&str, usize>) -> Vec<usize> {
        if let Some(&exact) = by_path.get(path) {
            return vec![exact];
        }
        let prefix = format!("{path}/");
        (0..self.nodes.len()).filter(|&index| self.nodes[index].path.starts_with(&prefix)).collect()
    }

    fn check_live(&self, user: usize, live: usize, problems: &mut Vec<PlanProblem>) {
        let (user, live) = (&self.nodes[user], &self.nodes[live]);
        if user.scope != live.scope {
            let (step, live) = (user.path.to_string(), live.path.to_string());
            problems.push(PlanProblem::LiveOutsideScope { step, live });
        }
    }

    fn cycles(&self, graph: &Graph) -> Vec<PlanProblem> {
        let mut waits: DiGraph<(), ()> = DiGraph::with_capacity(self.nodes.len(), self.nodes.len());
        self.nodes.iter().for_each(|_| {
            waits.add_node(());
        });
        for (to, needs) in graph.needs.iter().enumerate() {
            for &from in needs.keys() {
                waits.add_edge(NodeIndex::new(to), NodeIndex::new(from), ());
            }
        }
        // Not Tarjan's way: petgraph's is recursive, and a chain of 100 000 steps is a fair plan.
        let knots = petgraph::algo::kosaraju_scc(&waits).into_iter().filter(|knot| {
            let first = knot[0];
            knot.len() > 1 || waits.contains_edge(first, first)
        });
        knots.map(|knot| PlanProblem::Cycle { steps: self.one_cycle(&waits, &knot) }).collect()
    }

    /// Walks within a knot until a step comes up again.
    fn one_cycle(&self, waits: &DiGraph<(), ()>, knot: &[NodeIndex]) -> Vec<String> {
        let mut walk = vec![knot.iter().copied().min().expect("a knot has a step")];
        loop {
            let here = walk[walk.len() - 1];
            let next = waits
                .neighbors(here)
                .filter(|next| knot.contains(next))
                .min()
                .expect("each step of a knot waits for another one of it");
            if let Some(begin) = walk.iter().position(|&step| step == next) {
                let cycle = walk[begin..].iter().chain([&next]);
                return cycle.map(|step| self.nodes[step.index()].path.to_string()).collect();
            }
            walk.push(next);
        }
    }
}

impl Node {
    /// Returns the edges that come from handles, conditions included.
    fn data_edges(&self) -> impl Iterator<Item = (usize, NeedKind)> {
        let conditions = self.settings.conditions.iter().flat_map(|condition| &condition.needs);
        self.needs.iter().chain(conditions).map(|&(place, kind)| (place.node, kind))
    }
}

impl Graph {
    /// Keeps the strictest of several edges between two steps.
    fn add(&mut self, to: usize, from: usize, kind: NeedKind) {
        let kept = self.needs[to].entry(from).or_insert(kind);
        *kept = (*kept).min(kind);
    }
}
