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
