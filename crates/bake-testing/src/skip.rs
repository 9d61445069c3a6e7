//! Tests that need more than every machine has: skipped on a laptop, with the reason; failed where `CI` is set.

use std::path::Path;
use std::process::Command;

/// Ends the test here if the machine lacks something: `needs!(root(), loops());`.
///
/// Takes calls of the functions of [`skip`](crate::skip). The test may return `()` or a `Result<(), E>`.
#[macro_export]
macro_rules! needs {
    ($($what:ident($($argument:expr),*)),+ $(,)?) => {
        $(if $crate::skip::skipped($crate::skip::$what($($argument),*)) {
            return $crate::skip::Skipped::skipped();
        })+
    };
}

/// Nothing, or what the machine lacks.
pub type Need = Result<(), String>;

/// Needs the rights of root.
pub fn root() -> Need {
    if nix::unistd::geteuid().is_root() { Ok(()) } else { Err("root is needed".into()) }
}

/// Needs loop devices.
pub fn loops() -> Need {
    root()?;
    if Path::new("/dev/loop-control").exists() { Ok(()) } else { Err("loop devices are needed".into()) }
}

/// Needs the Debian packages that [`host_packages`](crate::host_packages) lists.
pub fn fixtures() -> Need {
    let query =
        Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Abbrev}\n"]).args(crate::host_packages()).output();
    let states = query.map_err(|_| "a Debian host is needed".to_owned())?;
    if states.status.success() && String::from_utf8_lossy(&states.stdout).lines().all(|state| state.starts_with("ii")) {
        return Ok(());
    }
    Err(format!("these Debian packages are needed: {}", crate::host_packages().join(" ")))
}

/// Tells whether the test is to be skipped, and prints why.
///
/// # Panics
/// If something is lacking and this is CI, where a skipped test would go unseen.
#[track_caller]
pub fn skipped(need: Need) -> bool {
    let Err(lack) = need else { return false };
    assert!(!is_ci(std::env::var("CI").ok().as_deref()), "{lack}, and CI skips nothing");
    eprintln!("skipped: {lack}");
    true
}

fn is_ci(variable: Option<&str>) -> bool {
    !matches!(variable, None | Some("" | "0" | "false"))
}

/// What a test returns when it is skipped.
pub trait Skipped {
    /// The value that says "all is well".
    fn skipped() -> Self;
}

impl Skipped for () {
    fn skipped() {}
}

impl<E> Skipped for Result<(), E> {
    fn skipped() -> Self {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_lacking_skips_nothing() {
        assert!(!skipped(Ok(())));
    }

    #[test]
    fn ci_is_what_ci_systems_set() {
        assert!(is_ci(Some("true")) && is_ci(Some("1")));
        assert!(!is_ci(None) && !is_ci(Some("")) && !is_ci(Some("false")) && !is_ci(Some("0")));
    }

    #[test]
    fn a_test_with_a_result_can_have_needs() {
        fn test(reached: &mut bool) -> Result<(), String> {
            needs!(root());
            *reached = true;
            Err("reached".into())
        }
        let mut reached = false;
        // In CI this panics without root, as it should.
        assert_eq!(test(&mut reached).is_err(), reached);
        assert_eq!(reached, nix::unistd::geteuid().is_root());
    }
}
