//! Process 1 of the sandbox.
pub(crate) fn run() -> ! {
    unimplemented!()
}
