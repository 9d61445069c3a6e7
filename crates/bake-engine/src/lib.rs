//! Steps, graph, scheduler, journal, events: runs a plan and remembers what it changed.
//!
//! The engine knows nothing of images. Others build a [`Plan`] out of steps (start with [`Plan::steps`]); an [`Engine`]
//! runs it. A step is local work (`run`), a live value of this process (`open`), or exactly one call that changes the
//! world (`mutate`), whose kind is a registered [`Mutation`]. The [`Journal`] holds each mutation's intent before it is
//! sent, what was made before anything waits for it, and each result before a dependant starts; so that another process
//! can go on with it ([`Engine::resume`]), or take it back with nothing but the journal ([`Engine::undo`]).
//!
//! ```
//! use bake_engine::{Plan, StepContext, StepResult};
//!
//! async fn resolve(name: String, cx: StepContext, (): ()) -> StepResult<String> {
//!     cx.log("looking for the base image");
//!     Ok(format!("ami-of-{name}"))
//! }
//!
//! let mut plan = Plan::new();
//! let mut steps = plan.steps();
//! let base = steps.step("base").run("debian".to_owned(), resolve);
//! let size = steps.step("size").needs(base).run((), async |(), _cx, base| Ok(base.len()));
//! steps.step("report").needs((base, size.maybe())).optional().run((), async |(), _cx, (_base, _size)| Ok(()));
//! assert!(plan.check().is_ok());
//! ```
//!
//! Inside, `plan` builds and prints the graph, `engine` runs it and takes runs back, `journal` writes and reads the
//! database. Design: `docs/design/0002-engine.md`.

mod cancel;
mod context;
mod crash;
mod engine;
mod error;
mod event;
mod handle;
mod id;
mod inputs;
mod journal;
mod live;
mod mutation;
mod plan;
mod retry;
mod slot;
mod values;

pub use cancel::Cancel;
pub use context::StepContext;
pub use engine::{
    Engine, EngineError, EngineOptions, Left, Outcome, PlanDifference, RunSpec, Skipped, StepFailure, Undo,
    UnknownOperation, Unsaved,
};
pub use error::{Class, Classify, Failure, StepError, StepResult};
pub use event::{Event, EventKind, EventSink, EventStream, SkipReason, StepState, Verdict};
pub use handle::{At, Handle, Live, Mapped, Maybe};
pub use id::{BadRunId, RunId};
pub use inputs::{Data, Inputs, Output};
pub use journal::{Journal, JournalError, ResourceRecord, ResourceState, RunRecord, RunView, StepRecord, StepTrouble};
pub use live::LiveGuard;
pub use mutation::{Calls, Found, Keep, Mutation, MutationKind, Mutations, Op, Patience, Resend, Undone};
pub use plan::{Inside, Outside, Plan, PlanErrors, PlanProblem, Scope, StepBuilder, StepDefaults, Steps};
pub use retry::Retry;
pub use slot::{Slot, SlotLimits, SlotRange};
