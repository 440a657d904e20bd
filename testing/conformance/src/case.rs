use crate::Fixture;
use crate::deadline::{again_if_too_slow, in_time};
use fencelock_core::{Backend, BoxFuture};
use std::any::type_name;
use std::time::Duration;

/// A test case for every backend with the needed features.
pub(crate) struct Case {
    /// The name of the function.
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    /// The real time within which the result is valid.
    bound: Duration,
    body: Box<dyn for<'a> Body<'a>>,
}

impl Case {
    /// Runs the case, and repeats it if the machine was too slow for a valid result.
    pub(crate) async fn run(&self, fixture: &dyn Fixture) {
        again_if_too_slow(|| in_time(self.bound, self.body.run(fixture))).await;
    }

    /// The result is valid only if the case ends within `bound` of real time; see [`in_time`].
    pub(crate) fn within(self, bound: Duration) -> Self {
        Self { bound, ..self }
    }

    /// Why the case is skipped for this fixture; `None` if it runs.
    pub(crate) fn skipped(&self, fixture: &dyn Fixture, backend: &dyn Backend) -> Option<String> {
        self.needs.iter().find_map(|need| need.missing(fixture, backend)).map(|why| format!("skipped: {why}"))
    }
}

/// A case for every backend.
pub(crate) fn case(body: impl for<'a> Body<'a> + 'static) -> Case {
    case_for(&[], body)
}

/// A case for backends with all features in `needs`.
pub(crate) fn case_for<B: for<'a> Body<'a> + 'static>(needs: &'static [Need], body: B) -> Case {
    let path = type_name::<B>();
    let name = path.rsplit("::").next().unwrap_or(path);
    Case { name, needs, bound: Duration::MAX, body: Box::new(body) }
}

/// An `async fn(&dyn Fixture)`, which cannot be named as a function pointer.
pub(crate) trait Body<'a>: Send + Sync {
    fn run(&self, fixture: &'a dyn Fixture) -> BoxFuture<'a, ()>;
}

impl<'a, F, Played> Body<'a> for F
where
    F: Fn(&'a dyn Fixture) -> Played + Send + Sync,
    Played: Future<Output = ()> + Send + 'a,
{
    fn run(&self, fixture: &'a dyn Fixture) -> BoxFuture<'a, ()> {
        Box::pin(self(fixture))
    }
}

/// A feature that a case needs and that not every backend has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A hold expires if it is not renewed.
    Expires,
    /// A hold never expires.
    Endless,
    /// Waiters form a queue.
    Queues,
    /// Another process can continue a hold with the holder id alone.
    Portable,
    /// The backend lists its locks.
    Admin,
    /// The hold of another client can be evicted.
    Evicts,
    /// The hold of another client cannot be evicted.
    NeverEvicts,
    /// The backend can be a node of a quorum.
    Node,
    /// The backend stores completions.
    Completions,
    /// The backend stores no completions.
    LacksCompletions,
    /// All nodes of the backend answer.
    AllNodesAnswer,
    /// The backend has shared locks.
    Shared,
    /// The backend has no shared locks.
    LacksShared,
    /// The backend changes the mode of a hold.
    ModeChanges,
    /// The backend has semaphores.
    Permits,
    /// Other programs use the same names.
    Foreign,
}

impl Need {
    fn missing(self, fixture: &dyn Fixture, backend: &dyn Backend) -> Option<String> {
        let capabilities = backend.capabilities();
        let (there, why) = match self {
            Self::Expires => (capabilities.expires, "locks never expire here"),
            Self::Endless => (!capabilities.expires, "locks expire here"),
            Self::Queues => (capabilities.queues, "waiters do not form a queue here"),
            Self::Portable => (capabilities.portable, "a hold cannot be passed to another process here"),
            Self::Admin => (capabilities.lists, "locks are not listed here"),
            Self::Evicts => (capabilities.evicts, "the hold of another client cannot be evicted here"),
            Self::NeverEvicts => (!capabilities.evicts, "the hold of another client can be evicted here"),
            Self::Node => (capabilities.node, "this backend cannot be a node of a quorum"),
            Self::Completions => (capabilities.completions, "completions are not stored here"),
            Self::LacksCompletions => (!capabilities.completions, "completions are stored here"),
            Self::AllNodesAnswer => match fixture.all_nodes_answer() {
                Ok(()) => (true, ""),
                Err(why) => (false, why),
            },
            Self::Shared => (capabilities.modes.shared, "this backend has no shared locks"),
            Self::LacksShared => (!capabilities.modes.shared, "this backend has shared locks"),
            Self::ModeChanges => (capabilities.mode_changes, "holds change no mode here"),
            Self::Permits => (capabilities.modes.permits, "this backend has no semaphores"),
            Self::Foreign => match fixture.foreign() {
                Ok(_) => (true, ""),
                Err(why) => (false, why),
            },
        };
        (!there).then(|| why.to_owned())
    }
}
