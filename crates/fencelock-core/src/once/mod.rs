//! Work that succeeds at most once in each window of time, without I/O.
//!
//! The work runs under an exclusive lock. Next to the lock is one [`Completion`], which states when the latest run that counts got
//! the lock, by the clock of the backend. [`judge`] decides whether it lies in the [`Window`] of a caller.

mod completion;
mod judge;
mod utc;
mod window;

pub use completion::{ClearCompletion, Completion, CompletionRead, WriteCompletion};
pub use judge::{CountedSuccess, Doubt, Judgement, judge};
pub use utc::Utc;
pub use window::{Runs, Window};

use crate::{Fault, Key, Unknown};

/// The refusal of a backend that stores no completions. Nothing was sent.
pub fn unsupported(backend: impl Into<String>, key: &Key) -> Unknown {
    let detail =
        format!("it does not store completions, and {key} needs one to run once per window: use another backend");
    Unknown::new(backend, Fault::Unsupported, detail)
}
