use crate::{
    Admin, Claim, ClaimReply, Completions, Fault, HolderId, Holding, Invalid, Key, Listener, ModeChanges, Modes,
    Release, Renew, Renewal, RetryPlan, Span, Ttl, Unknown,
};
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A boxed future for trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer, or the error that it is unknown.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Unknown>>;

/// The differences between backends, as data.
///
/// Start with [`Capabilities::default`], which has no capability, and set those that apply:
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
    /// The supported modes other than exclusive.
    pub modes: Modes,
    /// Holds expire if they are not renewed: every store with leases.
    pub expires: bool,
    /// Waiters are served in the order of arrival, and a release grants the lock to the next one.
    pub queues: bool,
    /// How often a waiter that nothing wakes claims again: always without `queues`, and while the backend fails.
    pub polls: RetryPlan,
    /// A hold can be passed to another process by its holder id.
    pub portable: bool,
    /// Other processes see the locks.
    pub cross_process: bool,
    /// [`Admin::evict`] can end the hold of another client.
    pub evicts: bool,
    /// Every claim needs an unused holder id, because remains of an earlier claim may be released late.
    pub fresh_holders: bool,
    /// The maximum TTL of a claim or renewal; `None` if only [`crate::Ttl::MAX`] applies. It is how
    /// long a node that may have lost data grants nothing.
    pub longest_ttl: Option<Duration>,
    /// The minimum TTL of a claim or renewal; `None` if only [`crate::Ttl::MIN`] applies. A client keeps to it, and the backend does
    /// not check it.
    pub shortest_ttl: Option<Duration>,
    /// Below this TTL, a client warns that answers which are slower than usual end leases.
    pub advised_ttl: Option<Duration>,
}

impl Capabilities {
    /// Checks a TTL of a client.
    ///
    /// # Errors
    /// [`Invalid`] with the limit that it exceeds.
    pub fn check_ttl(&self, ttl: Ttl) -> Result<(), Invalid> {
        match self.shortest_ttl {
            Some(shortest) if ttl.get() < shortest => Err(Invalid::new(format!(
                "a TTL of {} is shorter than the {} that this backend needs: a slow answer would end the lease",
                Span(ttl.get()),
                Span(shortest)
            ))),
            _ => ttl.within(self.longest_ttl),
        }
    }
}

/// A backend of locks: what every lock needs. What some backends have beside that are traits of their own: [`Backend::admin`],
/// [`Backend::completions`] and [`Backend::mode_changes`]. A node of a quorum needs more: [`crate::QuorumNode`].
///
/// Guarantees of an implementation, each checked by the conformance suite:
///
/// - At most one holder has a key exclusively, from [`Acquire::Granted`](crate::Acquire::Granted) until its release, its expiry, or its eviction. Shared
///   holders and holders of permits never coexist with an exclusive holder, and permits in use never exceed their limit.
/// - A claim whose mode [conflicts](crate::Mode::conflicts) with that of a holder or a waiter is answered with
///   [`Acquire::Conflict`](crate::Acquire::Conflict), and is in no queue afterwards.
/// - Contention and a conflict of modes are answers, not errors; the only error is [`Unknown`]: the request may have been executed,
///   unless [`Unknown::changed_nothing`].
/// - A repeated claim of a holder, also a poll, has the same answer, and the lease lasts for at least its TTL from then on: the client
///   counts from its last claim. With [`Capabilities::fresh_holders`] its tokens may be greater: a node may answer that did not answer
///   before.
/// - Fencing tokens of one key increase with every grant; the tokens of a block belong to one grant.
/// - A renewal neither acquires nor releases, and leaves at least the lease that its holder knows: [`Renewal::assumed`].
/// - A release frees only the hold of its holder, and removes it from the queue.
/// - Dropping a future leaves the backend in a consistent state. Its request may still be executed, but a claim not after a later
///   release of the same holder.
pub trait Backend: Debug + Send + Sync + 'static {
    /// The capabilities of this backend. They do not change.
    fn capabilities(&self) -> Capabilities;

    /// A name for messages, without secrets: `redis://localhost:6379`, `file:/run/locks`.
    fn name(&self) -> String;

    /// Sends events to `listener` as long as it is alive; the backend keeps a weak reference.
    fn listen(&self, listener: Arc<dyn Listener>);

    /// Claims a key, in one of [`Capabilities::modes`]. An implementation that opens a connection first says when it has sent the claim,
    /// or that it has not: [`ClaimReply`].
    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, ClaimReply>;

    /// Requests one [`crate::Event::Changed`] when the current hold of the key ends; immediately if it is free. The event
    /// is a hint: it may be late or missing. By default the backend cannot do this, and the client inspects the key once a second.
    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        let _ = key;
        let refusal = Unknown::new(self.name(), Fault::Unsupported, "this backend sends no events");
        Box::pin(std::future::ready(Err(refusal)))
    }

    /// Renews many leases in one request. The answers have the order of the renewals. They come together, so a caller sends the
    /// renewals of each [group](Backend::renewal_group) in a request of their own.
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>>;

    /// Whether the backend now sends [`crate::Event::Queued`] when a client enters the queue of this key, after a renewal that has
    /// reported no waiters. It may depend on the connection, so a client reads it with the reply to each renewal.
    fn announces_waiters(&self, key: &Key) -> bool {
        let _ = key;
        false
    }

    /// Which renewals can be sent in one request: those of keys with the same number. Keys that are stored on different servers
    /// have different numbers, so that no renewal waits for a server that it does not need. The number of a key may change.
    fn renewal_group(&self, key: &Key) -> u32 {
        let _ = key;
        0
    }

    /// Releases a hold, or leaves the queue.
    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release>;

    /// The holding of a key; `None` if it is free.
    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>>;

    /// What operators need beside the locks. Without it, locks are neither listed nor broken, and nothing is diagnosed.
    fn admin(&self) -> Option<&dyn Admin> {
        None
    }

    /// The completions next to the locks. Without them, work does not run once per window.
    fn completions(&self) -> Option<&dyn Completions> {
        None
    }

    /// Changes of holds in one step. Without them, no hold is downgraded, and no semaphore is resized.
    fn mode_changes(&self) -> Option<&dyn ModeChanges> {
        None
    }

    /// The same backend with separate connections, which open on the runtime of their first request: for
    /// releases after the end of the runtime of this one; `None` if the backend has no connections.
    fn reconnected(&self) -> Option<Arc<dyn Backend>> {
        None
    }

    /// Copies of the open files that this hold consists of; empty where a hold is a lease. The kernel ends such a hold at its release,
    /// or when the last copy is closed: so a process that has one keeps the hold after the death of this process.
    ///
    /// # Errors
    /// The error of the system, for example if this process has too many open files.
    #[cfg(unix)]
    fn descriptors(&self, key: &Key, holder: &HolderId) -> std::io::Result<Vec<std::os::fd::OwnedFd>> {
        let _ = (key, holder);
        Ok(Vec::new())
    }
}

/// The trait must stay object safe.
const _: Option<&dyn Backend> = None;
