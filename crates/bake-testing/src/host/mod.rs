//! The machine the tests run on: what it must have, that it stays as it was, and that nothing is left on it.

mod canary;
mod leftovers;

pub use canary::Canary;
pub use leftovers::{Leftover, Leftovers};

/// Returns the names of the Debian packages that the fixtures are made with and from.
///
/// They are listed in `host-packages.txt`, where `scripts/test` reads them, too.
pub fn host_packages() -> Vec<&'static str> {
    let lines = include_str!("../../host-packages.txt").lines();
    lines.filter_map(|line| line.split('#').next()).map(str::trim).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_packages_of_the_host_are_names_without_comments() {
        let packages = super::host_packages();
        assert!(packages.contains(&"busybox-static") && packages.len() > 5);
        assert!(
            packages.iter().all(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')),
            "{packages:?}"
        );
    }
}
