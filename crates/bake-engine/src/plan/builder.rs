//! The builder of one step.

use std::marker::PhantomData;
use std::time::Duration;

use crate::context::StepContext;
use crate::error::StepResult;
use crate::handle::{Handle, Live, Place};
use crate::inputs::{Data, Inputs, NeedKind, Needs, Output, encode};
use crate::live::Opened;
use crate::mutation::MutationKind;
use crate::plan::steps::condition;
use crate::plan::{MutationWork, Node, Plan, Work};
use crate::retry::Retry;
use crate::slot::Slot;

/// Marks a step outside any scope.
#[derive(Debug)]
pub struct Outside(());

/// Marks a step inside a scope.
#[derive(Debug)]
pub struct Inside(());

/// What a step is. Ends with `run`, `mutate` or `open`; until then it holds the plan, and does nothing.
#[must_use = "a step is in the plan only after `run`, `mutate` or `open`"]
pub struct StepBuilder<'p, I = (), Where = Outside> {
    plan: &'p mut Plan,
    node: Node,
    inputs: I,
    place: PhantomData<Where>,
}

impl<'p, Where> StepBuilder<'p, (), Where> {
    pub(crate) fn new(plan: &'p mut Plan, node: Node) -> StepBuilder<'p, (), Where> {
        StepBuilder { plan, node, inputs: (), place: PhantomData }
    }

    fn with_inputs<I: Inputs>(mut self, inputs: I) -> StepBuilder<'p, I, Where> {
        let mut needs = Needs::default();
        inputs.declare(&mut needs);
        self.node.needs.extend(needs.found);
        StepBuilder { plan: self.plan, node: self.node, inputs, place: PhantomData }
    }
}

impl<'p> StepBuilder<'p, (), Outside> {
    /// Says which outputs of earlier steps the step needs.
    pub fn needs<I: Data>(self, inputs: I) -> StepBuilder<'p, I, Outside> {
        self.with_inputs(inputs)
    }
}

impl<'p> StepBuilder<'p, (), Inside> {
    /// Says which outputs and live values of earlier steps the step needs.
    pub fn needs<I: Inputs>(self, inputs: I) -> StepBuilder<'p, I, Inside> {
        self.with_inputs(inputs)
    }
}

impl<I: Inputs, Where> StepBuilder<'_, I, Where> {
    /// Order only: runs also if `other` failed or was skipped.
    pub fn after<T>(mut self, other: Handle<T>) -> Self {
        self.node.needs.push((other.place, NeedKind::After));
        self
    }

    /// The same by name, from configuration: a step, or all steps under a path. The only way to make a cycle;
    /// [`Plan::check`] prints it.
    pub fn after_path(mut self, path: &str) -> Self {
        self.node.after_paths.push(path.to_owned());
        self
    }

    /// A failure is reported and the run goes on. Dependants by handle are skipped, by `maybe` and `after` they run.
    pub fn optional(mut self) -> Self {
        self.node.settings.optional = true;
        self
    }

    /// Runs only if `holds`. Journaled, so that a resumed run takes the same branch. An error is a failure, not "no".
    pub fn when<W: Data>(
        mut self,
        text: &str,
        on: W,
        holds: impl Fn(W::Values) -> StepResult<bool> + Send + Sync + 'static,
    ) -> Self {
        self.node.settings.conditions.push(condition(text, on, holds));
        self
    }

    /// Sets how it is tried again.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.node.settings.retry = retry;
        self
    }

    /// Limits each try. Ends the wait, never a call in flight: its answer is still recorded, and the next try waits
    /// for it.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.node.settings.timeout = Some(limit);
        self
    }

    /// Says what it mostly uses, which limits how many like it run at once.
    pub fn slot(mut self, slot: Slot) -> Self {
        self.node.settings.slot = slot;
        self
    }

    /// Local or read-only work. Called again on retry: keep no state but `state`, which is cloned for each try.
    pub fn run<S, T, Fut>(
        self,
        state: S,
        action: impl Fn(S, StepContext, I::Values) -> Fut + Send + Sync + 'static,
    ) -> Handle<T>
    where
        S: Clone + Send + Sync + 'static,
        T: Output,
        Fut: Future<Output = StepResult<T>> + Send + 'static,
    {
        let inputs = self.inputs.clone();
        Handle::new(self.finish(Work::Run(Box::new(move |cx, source| {
            let work = action(state.clone(), cx, inputs.read(source)?);
            Ok(Box::pin(async move { encode(&work.await?) }))
        }))))
    }

    /// Exactly one call that changes the world. `request` is pure: no clock, no random, no branch on the inputs.
    pub fn mutate<Q: Output, R: Output>(
        self,
        kind: &MutationKind<Q, R>,
        request: impl Fn(I::Values) -> Q + Send + Sync + 'static,
    ) -> Handle<R>
    where
        I: Data,
    {
        let inputs = self.inputs.clone();
        let request = Box::new(move |source: &crate::inputs::Source<'_>| encode(&request(inputs.read(source)?)));
        let mutation = kind.mutation.clone();
        Handle::new(self.finish(Work::Mutate(MutationWork { mutation, request })))
    }

    fn finish(mut self, work: Work) -> Place {
        self.node.work = work;
        let plan = self.plan.id();
        Place { plan, node: self.plan.push(self.node) }
    }
}

impl<I: Inputs> StepBuilder<'_, I, Inside> {
    /// Makes a live value; `close` runs, and may fail loudly, unless a step took it.
    pub fn open<S, T, O, C>(
        self,
        state: S,
        open: impl Fn(S, StepContext, I::Values) -> O + Send + Sync + 'static,
        close: impl Fn(S, T) -> C + Clone + Send + Sync + 'static,
    ) -> Live<T>
    where
        S: Clone + Send + Sync + 'static,
        T: Send + 'static,
        O: Future<Output = StepResult<T>> + Send + 'static,
        C: Future<Output = StepResult<()>> + Send + 'static,
    {
        let inputs = self.inputs.clone();
        Live::new(self.finish(Work::Open(Box::new(move |cx, source| {
            let opening = open(state.clone(), cx, inputs.read(source)?);
            let (state, close) = (state.clone(), close.clone());
            Ok(Box::pin(async move { Ok(Opened::new(opening.await?, move |value| close(state, value))) }))
        }))))
    }
}
