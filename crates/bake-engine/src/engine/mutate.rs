//! The protocol of a mutation: intent, send, accepted, settle, done; and a look whenever an answer was lost.

use std::sync::{Arc, PoisonError};

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::context::StepContext;
use crate::crash;
use crate::engine::outcome::{UnknownOperation, Unsaved};
use crate::engine::schedule::Shared;
use crate::engine::step::{Running, caught, unpanicking};
use crate::error::{Class, StepError, StepResult};
use crate::event::EventKind;
use crate::id::RunId;
use crate::inputs::decode;
use crate::journal::{Intent, Record, ResourceRecord, ResourceState, Told};
use crate::mutation::{AnyMutation, Found, Op, Resend};
use crate::plan::MutationWork;

/// One operation across all tries of its step.
pub(super) struct Operation<'a> {
    work: &'a MutationWork,
    intended: Option<Intended>,
    made: Option<Arc<str>>,
    in_flight: Option<JoinHandle<StepResult<Arc<str>>>>,
    /// Something may have been made of which we have no ids.
    unknown: bool,
    result: Option<Arc<str>>,
    /// The journal says that nothing was made, which must not stand there while it is sent once more.
    closed: bool,
}

/// What the intent froze.
#[derive(Clone)]
struct Intended {
    op: Op,
    request: Arc<str>,
}

impl<'a> Operation<'a> {
    pub(super) fn new(work: &'a MutationWork) -> Operation<'a> {
        Operation { work, intended: None, made: None, in_flight: None, unknown: false, result: None, closed: false }
    }

    /// Goes on with what another process began: its request, its token, and its ids if they are known.
    pub(super) fn resumed(work: &'a MutationWork, run: &RunId, before: &ResourceRecord) -> Operation<'a> {
        let op = Op::new(run, &before.step, before.generation, before.intended);
        let text = |value: &Option<serde_json::Value>| value.as_ref().map(|value| Arc::from(value.to_string()));
        Operation {
            work,
            intended: Some(Intended { op, request: before.request.to_string().into() }),
            made: text(&before.made),
            in_flight: None,
            unknown: before.state.is_pending(),
            result: text(&before.result),
            closed: before.state == ResourceState::NotMade,
        }
    }

    /// Tries to get it done. A later try goes on where this one ended.
    pub(super) async fn attempt(&mut self, step: &Running<'_>) -> StepResult<()> {
        let deadline = step.deadline();
        let cx = step.context(deadline);
        let intended = self.intend(step).await?;
        let made = self.make(step, &cx, deadline, &intended).await?;
        let result = match &self.result {
            Some(result) => Arc::clone(result),
            None => {
                let settling = unpanicking(self.work.mutation.settle(&cx, &intended.request, &made));
                self.result.insert(step.limited(deadline, Class::Transient, settling).await?.into()).clone()
            }
        };
        crash::point(&step.node.path, "settled");
        let settled = Record::Settled { operation: intended.op.id().to_owned(), result: Arc::clone(&result) };
        step.finish(vec![settled], Some(result)).await
    }

    /// Makes the intent durable, once. Nothing is ever sent before.
    async fn intend(&mut self, step: &Running<'_>) -> StepResult<Intended> {
        if let Some(intended) = &self.intended {
            return Ok(intended.clone());
        }
        let request: Arc<str> = caught(|| (self.work.request)(&step.source()))?.into();
        let now = jiff::Timestamp::now();
        let op = Op::new(step.shared.log.run(), &step.node.path, step.generation, now);
        crash::point(&step.node.path, "before_intent");
        let intent = Intent {
            op: op.clone(),
            kind: self.work.mutation.name(),
            keep: self.work.mutation.keep(),
            request: Arc::clone(&request),
        };
        step.shared.log.write(vec![Record::Intent(intent)], Vec::new()).await?;
        crash::point(&step.node.path, "intent");
        Ok(self.intended.insert(Intended { op, request }).clone())
    }

    /// Returns the ids: known, on their way, found, or by sending.
    async fn make(
        &mut self,
        step: &Running<'_>,
        cx: &StepContext,
        deadline: Option<Instant>,
        intended: &Intended,
    ) -> StepResult<Arc<str>> {
        if let Some(made) = &self.made {
            return Ok(Arc::clone(made));
        }
        if self.in_flight.is_none() {
            if self.unknown && self.work.mutation.resend() == Resend::OnlyIfAbsent {
                let looking = self.look(step, cx, intended);
                if let Some(made) = step.limited(deadline, Class::Transient, looking).await? {
                    return Ok(self.accept(made));
                }
                self.unknown = false;
            }
            self.reopen(step, intended).await?;
            self.in_flight = Some(self.send(step.shared, intended));
        }
        let in_flight = self.in_flight.as_mut().expect("it was just sent");
        // Dropping the wait does not drop the call: its answer is recorded, and the next try waits for it.
        let answer = step.limited(deadline, Class::Transient, async { Ok(in_flight.await) }).await?;
        self.in_flight = None;
        self.answered(answer)
    }

    async fn reopen(&mut self, step: &Running<'_>, intended: &Intended) -> StepResult<()> {
        if std::mem::take(&mut self.closed) {
            let operation = intended.op.id().to_owned();
            let record = Record::Resource { operation, state: ResourceState::Open };
            step.shared.log.write(vec![record], Vec::new()).await?;
        }
        Ok(())
    }

    fn answered(&mut self, answer: Result<StepResult<Arc<str>>, tokio::task::JoinError>) -> StepResult<Arc<str>> {
        let answer = answer.unwrap_or_else(|error| Err(StepError::bug("the task of a call ended").because(error)));
        match answer {
            Ok(made) => Ok(self.accept(made)),
            Err(error) => {
                // Another class says "not done" of this try alone; an earlier one may still have got through.
                self.unknown |= matches!(error.class(), Class::Unknown | Class::Bug);
                Err(error)
            }
        }
    }

    fn accept(&mut self, made: Arc<str>) -> Arc<str> {
        self.unknown = false;
        self.made.insert(made).clone()
    }

    /// Sends in a task of its own, which outlives every wait for it and records the answer.
    fn send(&self, shared: &Arc<Shared>, intended: &Intended) -> JoinHandle<StepResult<Arc<str>>> {
        let (mutation, shared) = (Arc::clone(&self.work.mutation), Arc::clone(shared));
        let Intended { op, request } = intended.clone();
        tokio::spawn(async move {
            let made: Arc<str> = unpanicking(mutation.send(&op, &request)).await?.into();
            crash::point(op.step(), "sent");
            record_made(&shared, &*mutation, &op, &made).await?;
            Ok(made)
        })
    }

    /// Looks for what a lost answer may have made, for as long as the mutation's patience says.
    async fn look(&self, step: &Running<'_>, cx: &StepContext, intended: &Intended) -> StepResult<Option<Arc<str>>> {
        let mutation = &*self.work.mutation;
        let Intended { op, request } = intended;
        let pause = |time| cx.pause(time);
        let Some(made) = find_patiently(mutation, op, request, pause).await? else { return Ok(None) };
        record_made(step.shared, mutation, op, &made).await?;
        Ok(Some(made))
    }

    /// Ends the operation of a step that has ended: waits for a call in flight, takes a last look for a lost answer,
    /// and records what is known. Returns the operation if its outcome is not known.
    pub(super) async fn give_up(&mut self, step: &Running<'_>, well: bool) -> Option<UnknownOperation> {
        let intended = self.intended.clone().filter(|_| !well)?;
        if let Some(in_flight) = &mut self.in_flight {
            let abandon = step.shared.cancel.abandon();
            let answer = tokio::select! {
                biased;
                answer = in_flight => Some(answer),
                () = abandon.cancelled() => None,
            };
            // Its error changes nothing any more, but whether something was made does.
            match answer {
                Some(answer) => drop(self.answered(answer)),
                None => self.unknown = true,
            }
        }
        if self.unknown && step.shared.cancel.level() == 0 {
            self.last_look(step, &intended).await;
        }
        if self.made.is_some() {
            return None;
        }
        let operation = intended.op.id().to_owned();
        let state = if self.unknown { ResourceState::Unknown } else { ResourceState::NotMade };
        // Who left a call in flight does not say how it ended: it stays open.
        if self.in_flight.is_none() || !self.unknown {
            step.shared.log.post(vec![Record::Resource { operation: operation.clone(), state }], Vec::new());
        }
        self.unknown.then(|| step.unknown_operation(self.work.mutation.name(), &operation, &intended.request))
    }

    async fn last_look(&mut self, step: &Running<'_>, intended: &Intended) {
        let cx = step.context(None);
        let looked = step.limited(None, Class::Transient, self.look(step, &cx, intended)).await;
        match looked {
            Ok(Some(made)) => drop(self.accept(made)),
            Ok(None) => self.unknown = false,
            Err(error) => tracing::debug!(step = &*step.node.path, %error, "a last look found out nothing"),
        }
    }
}

/// Makes the ids durable, before anything waits on what they name.
async fn record_made(shared: &Shared, mutation: &dyn AnyMutation, op: &Op, made: &Arc<str>) -> StepResult<()> {
    let (step, kind) = (Arc::from(op.step()), mutation.name().to_owned());
    let id: serde_json::Value = decode(made)?;
    let record = Record::Made { operation: op.id().to_owned(), made: Arc::clone(made) };
    let told = Told::step(&step, None, EventKind::ResourceMade { kind: kind.clone(), id: id.clone() });
    if let Err(error) = shared.log.write(vec![record], vec![told]).await {
        let unsaved = Unsaved { step: step.to_string(), kind, made: id };
        shared.unsaved.lock().unwrap_or_else(PoisonError::into_inner).push(unsaved);
        return Err(error.into());
    }
    crash::point(op.step(), "accepted");
    Ok(())
}

/// Looks until it is found or was absent for long enough, counted from the first look of this process: the intent may
/// be old, and the call of a minute ago.
pub(super) async fn find_patiently<P>(
    mutation: &dyn AnyMutation,
    op: &Op,
    request: &str,
    pause: impl Fn(std::time::Duration) -> P,
) -> StepResult<Option<Arc<str>>>
where
    P: Future<Output = StepResult<()>>,
{
    let patience = mutation.patience();
    let first = Instant::now();
    let mut looks = 0;
    loop {
        match unpanicking(mutation.find(op, request)).await? {
            Found::Made(made) => return Ok(Some(made.into())),
            Found::Ambiguous(ids) => return Err(ambiguous(mutation.name(), op, &ids)),
            Found::Absent => looks += 1,
        }
        if looks >= patience.looks && first.elapsed() >= patience.time {
            return Ok(None);
        }
        pause(patience.pace()).await?;
    }
}

fn ambiguous(kind: &str, op: &Op, ids: &[String]) -> StepError {
    let message = format!("cannot tell which of {} `{kind}` is the one of `{}`", ids.len(), op.step());
    StepError::permanent(message)
        .details(ids.iter().cloned())
        .hint(format!("look for the tag `bake:op` = `{}`, and remove what is not wanted", op.id()))
}
