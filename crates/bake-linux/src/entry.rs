//! The way in: how a program becomes the sandbox.

use std::sync::OnceLock;

/// The name under which a program is executed again to become the sandbox.
pub(crate) const SANDBOX_NAME: &str = "bake-sandbox";

static ENTRY: OnceLock<Entry> = OnceLock::new();

/// How this program reaches [`enter_if_sandbox`] when it is executed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Its `main` begins with it.
    Main,
    /// It is a test program, whose `main` is not ours; this (ignored) test calls it. See [`sandbox_test_entry!`](crate::sandbox_test_entry).
    Test(&'static str),
}

/// Becomes the sandbox if this process was started as one, and then never returns. First line of `main`, before any thread exists.
pub fn enter_if_sandbox() {
    if std::env::args_os().next().is_some_and(|name| name == SANDBOX_NAME) {
        crate::init::run();
    }
    ENTRY.get_or_init(|| Entry::Main);
}

/// Tells how this program becomes the sandbox, if not by its `main`. The first call counts.
pub fn set_entry(entry: Entry) {
    ENTRY.get_or_init(|| entry);
}

pub(crate) fn entry() -> Option<&'static Entry> {
    ENTRY.get()
}

/// Lets a test program be the sandbox of its own tests: defines the way in, and `use_sandbox()`, to be called first by each test.
///
/// ```
/// bake_linux::sandbox_test_entry!();
///
/// # #[cfg(any())]
/// #[tokio::test]
/// async fn a_root_opens() {
///     use_sandbox();
///     let sandbox = bake_linux::Sandbox::start(Default::default()).await.unwrap();
/// }
/// ```
#[macro_export]
macro_rules! sandbox_test_entry {
    () => {
        #[test]
        #[ignore = "not a test: the way in for the sandbox"]
        fn bake_sandbox() {
            $crate::enter_if_sandbox();
        }

        #[allow(dead_code, reason = "a program whose tests are all skipped does not call it")]
        fn use_sandbox() {
            $crate::set_entry($crate::Entry::Test(concat!(module_path!(), "::bake_sandbox")));
        }
    };
}
