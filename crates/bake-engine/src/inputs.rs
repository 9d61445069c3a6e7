//! What a step needs: handles and groups of handles, read as typed values when the step starts.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{StepError, StepResult};
use crate::handle::{At, Handle, Live, Mapped, Maybe, Place};
use crate::live::LiveGuard;
use crate::plan::standin::StandIns;
use crate::values::RunValues;

/// A value that is kept in the journal: `Serialize + DeserializeOwned + Send + Sync + 'static`.
///
/// Secrets do not implement `Serialize`, so they never get in.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a step's output",
    label = "not a value that the journal can keep",
    note = "an output needs `serde::Serialize` and `serde::Deserialize`; a value of this process only is made with `open`"
)]
pub trait Output: Serialize + DeserializeOwned + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Output for T {}

/// What a step can need: `()`, handles, [`Maybe`], [`Mapped`], [`At`], [`Live`]; tuples up to six, `Vec`, `Option` and
/// `BTreeMap<K, _>` of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be needed by a step",
    note = "a step needs handles: `Handle<T>`, `.maybe()`, `.map(…)`, `Live<T>`, or tuples, lists and maps of them"
)]
pub trait Inputs: Clone + Send + Sync + 'static {
    /// What the action gets.
    type Values: Send + 'static;

    #[doc(hidden)]
    fn declare(&self, needs: &mut Needs);

    #[doc(hidden)]
    fn read(&self, source: &Source<'_>) -> StepResult<Self::Values>;
}

/// [`Inputs`] that come from the journal, so that another process can read them too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a value that the journal keeps",
    note = "a live value exists only inside its scope, and a mutation's request is made from outputs alone"
)]
pub trait Data: Inputs {}

/// The edges that a group of inputs asks for.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Needs {
    pub(crate) found: Vec<(Place, NeedKind)>,
}

/// What must be true of an earlier step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum NeedKind {
    /// It succeeded.
    Value,
    /// It made a live value, which is held alone.
    Live,
    /// It settled; its value is taken if there is one.
    Maybe,
    /// It settled: order only.
    After,
}

/// Where values are read from: a run, or the stand-ins of a dry run.
#[doc(hidden)]
pub struct Source<'a>(pub(crate) SourceKind<'a>);

pub(crate) enum SourceKind<'a> {
    Run(&'a RunValues),
    DryRun(&'a StandIns<'a>),
}

impl Source<'_> {
    fn value<T: DeserializeOwned>(&self, place: Place) -> StepResult<Option<T>> {
        match self.0 {
            SourceKind::Run(values) => values.get(place.node).map(|json| decode(&json)).transpose(),
            SourceKind::DryRun(stand_ins) => stand_ins.value(place.node).map(Some),
        }
    }

    fn wanted<T: DeserializeOwned>(&self, place: Place) -> StepResult<T> {
        self.value(place)?.ok_or_else(|| StepError::bug("a step started before the value that it needs was there"))
    }
}

/// Reads a value in its journal form.
pub(crate) fn decode<T: DeserializeOwned>(json: &str) -> StepResult<T> {
    serde_json::from_str(json).map_err(|error| {
        StepError::bug(format!("a `{}` cannot be read back from the journal", std::any::type_name::<T>()))
            .because(error)
    })
}

/// Writes a value in its journal form.
pub(crate) fn encode<T: Serialize>(value: &T) -> StepResult<String> {
    serde_json::to_string(value).map_err(|error| {
        StepError::bug(format!("a `{}` cannot be written to the journal", std::any::type_name::<T>())).because(error)
    })
}

impl<T: Output> Inputs for Handle<T> {
    type Values = T;

    fn declare(&self, needs: &mut Needs) {
        needs.found.push((self.place, NeedKind::Value));
    }

    fn read(&self, source: &Source<'_>) -> StepResult<T> {
        source.wanted(self.place)
    }
}
impl<T: Output> Data for Handle<T> {}

impl<T: Output> Inputs for Maybe<T> {
    type Values = Option<T>;

    fn declare(&self, needs: &mut Needs) {
        needs.found.push((self.0.place, NeedKind::Maybe));
    }

    fn read(&self, source: &Source<'_>) -> StepResult<Option<T>> {
        source.value(self.0.place)
    }
}
impl<T: Output> Data for Maybe<T> {}

impl<T: Output, U: Send + 'static> Inputs for Mapped<T, U> {
    type Values = U;

    fn declare(&self, needs: &mut Needs) {
        self.handle.declare(needs);
    }

    fn read(&self, source: &Source<'_>) -> StepResult<U> {
        self.handle.read(source).map(self.part)
    }
}
impl<T: Output, U: Send + 'static> Data for Mapped<T, U> {}

impl<U: Output> Inputs for At<U> {
    type Values = U;

    fn declare(&self, needs: &mut Needs) {
        needs.found.push((self.place, NeedKind::Value));
    }

    fn read(&self, source: &Source<'_>) -> StepResult<U> {
        match source.0 {
            SourceKind::Run(_) => part(source.wanted(self.place)?, &self.pointer),
            SourceKind::DryRun(stand_ins) => stand_ins.part(self.place.node, &self.pointer),
        }
    }
}
impl<U: Output> Data for At<U> {}

fn part<U: DeserializeOwned>(mut output: serde_json::Value, pointer: &str) -> StepResult<U> {
    let found = output.pointer_mut(pointer).map(serde_json::Value::take);
    let found = found.ok_or_else(|| StepError::bug(format!("the output of an earlier step has no `{pointer}`")))?;
    serde_json::from_value(found).map_err(|error| {
        StepError::bug(format!("`{pointer}` of an earlier step's output is not what was wanted")).because(error)
    })
}

impl<T: Send + 'static> Inputs for Live<T> {
    type Values = LiveGuard<T>;

    fn declare(&self, needs: &mut Needs) {
        needs.found.push((self.place, NeedKind::Live));
    }

    fn read(&self, source: &Source<'_>) -> StepResult<LiveGuard<T>> {
        match source.0 {
            SourceKind::Run(values) => values.lives().lend(self.place.node),
            SourceKind::DryRun(_) => Err(StepError::bug("a dry run has no live values")),
        }
    }
}

impl<I: Inputs> Inputs for Vec<I> {
    type Values = Vec<I::Values>;

    fn declare(&self, needs: &mut Needs) {
        self.iter().for_each(|input| input.declare(needs));
    }

    fn read(&self, source: &Source<'_>) -> StepResult<Self::Values> {
        self.iter().map(|input| input.read(source)).collect()
    }
}
impl<I: Data> Data for Vec<I> {}

impl<I: Inputs> Inputs for Option<I> {
    type Values = Option<I::Values>;

    fn declare(&self, needs: &mut Needs) {
        self.iter().for_each(|input| input.declare(needs));
    }

    fn read(&self, source: &Source<'_>) -> StepResult<Self::Values> {
        self.as_ref().map(|input| input.read(source)).transpose()
    }
}
impl<I: Data> Data for Option<I> {}

impl<K: Ord + Clone + Send + Sync + 'static, I: Inputs> Inputs for BTreeMap<K, I> {
    type Values = BTreeMap<K, I::Values>;

    fn declare(&self, needs: &mut Needs) {
        self.values().for_each(|input| input.declare(needs));
    }

    fn read(&self, source: &Source<'_>) -> StepResult<Self::Values> {
        self.iter().map(|(key, input)| Ok((key.clone(), input.read(source)?))).collect()
    }
}
impl<K: Ord + Clone + Send + Sync + 'static, I: Data> Data for BTreeMap<K, I> {}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*))+) => {$(
        impl<$($name: Inputs),*> Inputs for ($($name,)*) {
            type Values = ($($name::Values,)*);

            #[allow(unused_variables, reason = "the empty tuple needs nothing")]
            fn declare(&self, needs: &mut Needs) {
                $(self.$index.declare(needs);)*
            }

            #[allow(unused_variables, clippy::unused_unit, reason = "the empty tuple reads nothing")]
            fn read(&self, source: &Source<'_>) -> StepResult<Self::Values> {
                Ok(($(self.$index.read(source)?,)*))
            }
        }
        impl<$($name: Data),*> Data for ($($name,)*) {}
    )+};
}
tuples! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}
