use fencelock_core::{Backend, BoxFuture, Key};
use std::sync::Arc;
use std::time::Duration;

/// The environment of a case: one set of locks, and control over its time.
///
/// Fixtures that use real time may share one server. A fixture with a manual clock belongs to one case.
pub trait Fixture: Send + Sync {
    /// A new client of the same locks. The clients of two calls exclude each other.
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>>;

    /// Lets at least `span` pass for the locks: in real time, unless the fixture has a manual clock.
    fn let_time_pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(span))
    }

    /// Lets leases end that are shorter than `span`, also for clients that see them for the first time. A store that tells its time in
    /// seconds, or by clocks that differ, needs more than `span`.
    fn let_leases_end(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.let_time_pass(span)
    }

    /// The longest time that a case may take. A case sleeps for a few seconds at most; what takes longer on a busy machine is a hang.
    fn deadline(&self) -> Duration {
        Duration::from_secs(300)
    }

    /// The longest time that a waiter which does not poll keeps its position in the queue.
    fn waiter_life(&self) -> Duration {
        Duration::from_secs(3)
    }

    /// Whether all parts of the backend answer; or which does not. A quorum grants without some nodes, but clears a completion
    /// only on all of them.
    fn all_nodes_answer(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// Another program that uses the same names without knowing of fencelock; or why there is none.
    fn foreign(&self) -> Result<&dyn Foreign, &'static str> {
        Err("no other program uses these names")
    }
}

/// Another program that uses the same names and does not know fencelock.
pub trait Foreign: Send + Sync {
    /// Acquires the key like other lock libraries, if it does not exist. Without a TTL, it stays until deleted.
    fn take<'a>(&'a self, key: &'a Key, value: &'a str, ttl: Option<Duration>) -> BoxFuture<'a, ForeignAttempt>;

    /// Replaces the key by a value that is not a lock.
    fn put_foreign_value<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, ()>;

    /// Deletes the key, even if another client holds it.
    fn delete<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, ()>;
}

/// The result of [`Foreign::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignAttempt {
    /// The other program holds the key.
    Took,
    /// The key exists.
    Busy,
}
