//! One checker for every history, in O(n log n) for each key.
//!
//! | check | promise | file |
//! |---|---|---|
//! | C1 | no two grants of a key have the same token | `unique.rs` |
//! | C2 | an acquire that begins after another has ended has the greater token | `invocation.rs` |
//! | C3 | no two holders believe at the same time that they hold | `exclusion.rs` |
//! | C4 | acquires end in the order of their tokens | `completion.rs` |
//! | C5 | the resource takes no write of a holder that was superseded there | `register.rs` |
//! | C6 | who could renew was not overtaken before | `renewal.rs` |
//! | C7 | nothing is left when all clients are gone | `residue.rs` |
//! | C8 | when everything is whole again, locks are granted again | `recovery.rs` |
//! | C9 | what the run was meant to provoke did happen | `sometimes.rs` |
//!
//! A check knows nothing of faults. Whether a violation is one is decided afterwards: a fault may excuse it, if the
//! hold in question was alive when the fault struck; a control demands it.

mod completion;
mod exclusion;
mod invocation;
mod recovery;
mod register;
mod renewal;
mod residue;
mod sometimes;
mod unique;
mod verdict;
mod view;
mod violation;

pub use verdict::Verdict;
pub use violation::{Check, Violation};

use crate::history::History;
use view::View;

/// Checks everything.
pub fn check(history: &History) -> Verdict {
    let view = View::of(history);
    let mut found = Vec::new();
    for (key, of_key) in &view.keys {
        unique::check(key, of_key, &mut found);
        invocation::check(key, of_key, &mut found);
        exclusion::check(key, of_key, &mut found);
        completion::check(key, of_key, &mut found);
        register::check(key, of_key, &mut found);
        renewal::check(key, of_key, &mut found);
        residue::check(key, of_key, &view.run, &mut found);
        recovery::check(key, of_key, &view.run, &mut found);
    }
    sometimes::check(&view.run, &mut found);
    Verdict::of(found, &view.run)
}
