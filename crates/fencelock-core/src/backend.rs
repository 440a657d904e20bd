use crate::{
    Acquire, Claim, Eviction, Finding, HolderId, Holding, Key, Listener, Modes, Release, Renew, Renewal, Unknown,
};
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer, or "could not tell".
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Unknown>>;

/// What differs between places where a lock can live, as data.
///
/// Begin with [`Capabilities::default`], a place that can do nothing of this, and set what is true:
///
/// ```
/// use fencelock_core::Capabilities;
///
/// let mut facts = Capabilities::default();
/// facts.expires = true;
/// facts.cross_process = true;
/// assert!(!facts.queues && facts.longest_ttl.is_none());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each read by name")]
pub struct Capabilities {
    /// The modes of locks that it has besides exclusive ones.
    pub modes: Modes,
    /// Holds end by themselves when nobody renews them.
    pub expires: bool,
    /// Waiters are served in the order of their arrival, and a release names the next holder.
    pub queues: bool,
    /// A hold can be passed to another process by its holder id.
    pub portable: bool,
    /// Locks are seen by other processes.
    pub cross_process: bool,
    /// [`Backend::evict`] can end another's hold.
    pub evicts: bool,
    /// Every claim needs a holder that was never used before: what was left of an earlier claim may be released late.
    pub fresh_holders: bool,
    /// No lease may be longer, neither claimed nor renewed; `None` where only [`crate::Ttl::MAX`] is the limit. It is how
    /// long a node that may have forgotten is kept from granting.
    pub longest_ttl: Option<Duration>,
}

/// A place where locks live: everything that a lock needs of it. A node of a quorum needs more: [`crate::QuorumNode`].
///
/// Promises of an implementation, each checked by the conformance suite:
///
/// - At most one holder has a key exclusively, from [`Acquire::Granted`] until its release, its expiry, or its eviction.
/// - A claim in a mode that the place has not is refused at once: [`Claim::supported_by`].
/// - Contention is an answer, not an error; the only error is [`Unknown`], and it means "maybe carried out".
/// - A claim that is repeated by its holder gets the same answer and changes nothing, or gives it more time.
/// - Fencing tokens of one key grow with every grant; a grant of several has them to itself.
/// - A renewal neither creates nor frees, and leaves no less than its holder was told: [`Renewal::told`].
/// - A release frees only what its holder has, and gives up its place in line.
/// - Dropping any of the futures leaves the backend sound; what was sent may still be carried out.
pub trait Backend: Debug + Send + Sync + 'static {
    /// The facts about this place. They do not change.
    fn capabilities(&self) -> Capabilities;

    /// A name for messages, without secrets: `redis://localhost:6379`, `file:/run/locks`.
    fn name(&self) -> String;

    /// From now on, events go to `listener` too, for as long as somebody else keeps it alive.
    fn listen(&self, listener: Arc<dyn Listener>);

    /// Opens what a claim would otherwise open first. A lease counts from the sending of its claim, and the time of a
    /// hand-shake before that would be lost to it. An error means that nothing was sent.
    fn ready(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Asks for a key. Begins with [`Claim::supported_by`].
    fn acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Acquire>;

    /// Asks for one [`crate::Event::Changed`] when whoever has the key now has it no more; at once if nobody has. A hint:
    /// it may be late, and may never come.
    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()>;

    /// Renews many leases at once. The answers are in the order of the renewals, and as many.
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>>;

    /// Gives up a hold or a place in line.
    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release>;

    /// Who has a key; `None` if it is free.
    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>>;

    /// The keys held now, in no order. A key taken or freed meanwhile may or may not be there.
    fn list(&self) -> Answer<'_, Vec<Holding>>;

    /// Ends the holds that were seen, if they are still those.
    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction>;

    /// The same place over connections of its own, which the next requests open on the runtime that they are made on. For
    /// releases after the end of the runtime that has the connections of this one; `None` where there are none.
    fn reconnected(&self) -> Option<Arc<dyn Backend>> {
        None
    }

    /// Looks at everything that the promises rest on.
    fn diagnose(&self) -> BoxFuture<'_, Vec<Finding>>;
}

/// The contract must stay usable behind a pointer.
const _: Option<&dyn Backend> = None;
