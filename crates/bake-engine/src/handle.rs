//! Promises of values: what steps hand to each other while a plan is built.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The place of a step in its plan, and which plan that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) plan: u64,
    pub(crate) node: usize,
}

/// The promise of a step's output. `Copy` for every `T`; good only for the plan it came from.
pub struct Handle<T> {
    pub(crate) place: Place,
    output: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    pub(crate) fn new(place: Place) -> Handle<T> {
        Handle { place, output: PhantomData }
    }

    /// Waits for the step to settle and gives `None` if it was skipped or failed.
    pub fn maybe(self) -> Maybe<T> {
        Maybe(self)
    }

    /// A part of the output: `built.map(|b| b.packages)`.
    pub fn map<U>(self, part: fn(T) -> U) -> Mapped<T, U> {
        Mapped { handle: self, part }
    }

    /// The part of the output that a JSON pointer (RFC 6901) leads to: `names.at::<String>("/ebs")`. For parts that have
    /// names which are known only when the plan is built; in a dry run they keep their address.
    pub fn at<U>(self, pointer: impl Into<Arc<str>>) -> At<U> {
        At { place: self.place, pointer: pointer.into(), part: PhantomData }
    }
}

/// A part of a step's output, by its address within it.
pub struct At<U> {
    pub(crate) place: Place,
    pub(crate) pointer: Arc<str>,
    part: PhantomData<fn() -> U>,
}

impl<U> Clone for At<U> {
    fn clone(&self) -> Self {
        At { place: self.place, pointer: Arc::clone(&self.pointer), part: PhantomData }
    }
}

impl<U> fmt::Debug for At<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "At(`{}`)", self.pointer)
    }
}

/// A [`Handle`] whose step may have failed or been skipped.
pub struct Maybe<T>(pub(crate) Handle<T>);

/// A part of a step's output.
pub struct Mapped<T, U> {
    pub(crate) handle: Handle<T>,
    pub(crate) part: fn(T) -> U,
}

/// The promise of a value of this process only, such as a mounted root. Implements [`Inputs`](crate::Inputs) and not
/// [`Data`](crate::Data): outside its scope it does not compile.
///
/// ```compile_fail
/// # use bake_engine::*;
/// let mut plan = Plan::new();
/// let mut steps = plan.steps();
/// let live = steps.scope("volume", |scope| {
///     scope.step("open").open((), async |(), _, ()| Ok(1u32), async |(), _root| Ok(()))
/// });
/// steps.step("late").needs(live).run((), async |(), _, _root| Ok(()));
/// ```
pub struct Live<T> {
    pub(crate) place: Place,
    value: PhantomData<fn() -> T>,
}

impl<T> Live<T> {
    pub(crate) fn new(place: Place) -> Live<T> {
        Live { place, value: PhantomData }
    }
}

/// `derive` would ask for `T: Clone`.
macro_rules! copy_whatever_it_promises {
    ($($name:ident<$($param:ident),+>),+) => {$(
        impl<$($param),+> Clone for $name<$($param),+> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<$($param),+> Copy for $name<$($param),+> {}
        impl<$($param),+> fmt::Debug for $name<$($param),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )+};
}
copy_whatever_it_promises!(Handle<T>, Maybe<T>, Mapped<T, U>, Live<T>);
