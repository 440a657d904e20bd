//! One checker for all histories, in O(n log n) for each key.
//!
//! | check | guarantee | file |
//! |---|---|---|
//! | C1 | no two grants of a key have the same token, except two that read | `unique.rs` |
//! | C2 | an acquire that starts after a conflicting one has completed has the greater token | `invocation.rs` |
//! | C3 | no two holders in conflict assume at the same time that they hold a key, and permits in use do not exceed the limit | `exclusion.rs` |
//! | C4 | conflicting acquires complete in the order of their tokens | `completion.rs` |
//! | C5 | the resource accepts no write or read of a superseded holder | `register.rs` |
//! | C6 | a holder that could renew was not superseded before | `renewal.rs` |
//! | C7 | no lock is left after all clients have stopped | `residue.rs` |
//! | C8 | locks are granted again after the end of a fault | `recovery.rs` |
//! | C9 | the expected events have occurred | `sometimes.rs` |
//! | C10 | a slot that is granted is one of its set, and its key has its number | `slots.rs` |
//! | C11 | several keys are granted together, and the loss of one is the loss of all | `sets.rs` |
//! | C12 | work succeeds, or starts if starts count, at most once in each window, and is reported as done only if it may have | `windows.rs` |
//! | C13 | observers of an election are notified of its terms in order, each with its value, and of a leader that stays | `elections.rs` |
//!
//! Two holds conflict if their [modes](crate::history::HoldMode::conflicts) do: a writer with every other hold, permits with those
//! of another limit, or permits that exceed the limit together. Readers need no order, and some may have the same
//! token: two of a quorum, or two tasks of one client.
//!
//! A check does not consider faults. The results do so afterwards: a fault may excuse a violation if the hold was alive
//! when the fault occurred; a control requires a violation.

mod by_mode;
mod completion;
mod elections;
mod exclusion;
mod invocation;
mod recovery;
mod register;
mod renewal;
mod residue;
mod results;
mod sets;
mod slots;
mod sometimes;
mod unique;
mod view;
mod violation;
mod windows;

pub use results::CheckResults;
pub use violation::{Check, Violation};

use crate::history::History;
use view::View;

/// Runs all checks.
pub fn check(history: &History) -> CheckResults {
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
        slots::check(key, of_key, &mut found);
        windows::check(key, of_key, &mut found);
        elections::check(key, of_key, &mut found);
    }
    sets::check(&view, &mut found);
    sometimes::check(&view.run, &mut found);
    CheckResults::of(found, &view.run, &history.lines)
}
