//! How the crate behaves as its users see it, on a clock that stands still.

mod calls;
mod polls;

use api_manners::Place;

/// Returns a place to call.
fn place(account: &str, region: &str) -> Place {
    Place { account: Some(account.into()), region: region.into() }
}
