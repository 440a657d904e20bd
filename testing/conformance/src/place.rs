use fencelock_core::{Backend, BoxFuture, Key, QuorumNode};
use std::sync::Arc;
use std::time::Duration;

/// Where a case runs: one set of locks, and the power over its time.
///
/// Places with real time may share one server; a place whose time is moved by hand belongs to one case alone.
pub trait Place: Send + Sync {
    /// A new client of the same locks: two calls give two parties that exclude each other.
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>>;

    /// At least `span` passes for the locks. Real time, unless the place has a clock to move.
    fn let_time_pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(span))
    }

    /// How long a waiter that gives no sign of itself keeps its place in line, at most.
    fn waiter_life(&self) -> Duration {
        Duration::from_secs(3)
    }

    /// A new client of the same locks, as a node of a quorum; or why this place cannot be one.
    fn node(&self) -> Result<BoxFuture<'_, Arc<dyn QuorumNode>>, &'static str> {
        Err("this place cannot be a node of a quorum")
    }

    /// Another program that uses the same names without knowing of fencelock; or why there is none.
    fn foreign(&self) -> Result<&dyn Foreign, &'static str> {
        Err("no other program uses these names")
    }
}

/// Another program at the same place: it follows its own rules.
pub trait Foreign: Send + Sync {
    /// Takes the key the way other lock libraries do, if nothing is there. Without a TTL it stays until deleted.
    fn take<'a>(&'a self, key: &'a Key, value: &'a str, ttl: Option<Duration>) -> BoxFuture<'a, ForeignTry>;

    /// Puts something there that is no lock at all, over whatever is there.
    fn put_oddity<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, ()>;

    /// Deletes the key, whoever has it.
    fn delete<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, ()>;
}

/// What came of [`Foreign::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignTry {
    /// It has the key now.
    Took,
    /// Something was there.
    Busy,
}
