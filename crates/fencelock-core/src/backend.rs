use crate::{
    BackendReport, Claim, ClaimReply, ClearCompletion, Completion, CompletionRead, CountedSuccess, Downgrade, Eviction,
    Fault, Finding, HolderId, Holding, Key, Listener, Mode, Modes, Release, Renew, Renewal, Resize, Unknown,
    WriteCompletion, once, resize,
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
    /// Holds expire if they are not renewed.
    pub expires: bool,
    /// Waiters are served in the order of arrival, and a release grants the lock to the next one.
    pub queues: bool,
    /// After a renewal that reports no waiters, the backend sends [`crate::Event::Queued`] when one enters the queue.
    pub announces_waiters: bool,
    /// A hold can be passed to another process by its holder id.
    pub portable: bool,
    /// Other processes see the locks.
    pub cross_process: bool,
    /// [`Backend::evict`] can end the hold of another client.
    pub evicts: bool,
    /// Stores a [`Completion`] next to each lock: [`Backend::write_completion`].
    pub completions: bool,
    /// Every claim needs an unused holder id, because remains of an earlier claim may be released late.
    pub fresh_holders: bool,
    /// The maximum TTL of a claim or renewal; `None` if only [`crate::Ttl::MAX`] applies. It is how
    /// long a node that may have lost data grants nothing.
    pub longest_ttl: Option<Duration>,
}

/// A backend of locks, with all operations that a lock needs. A node of a quorum needs more: [`crate::QuorumNode`].
///
/// Guarantees of an implementation, each checked by the conformance suite:
///
/// - At most one holder has a key exclusively, from [`Acquire::Granted`](crate::Acquire::Granted) until its release, its expiry, or its eviction. Shared
///   holders and holders of permits never coexist with an exclusive holder, and permits in use never exceed their limit.
/// - A claim whose mode [conflicts](Mode::conflicts) with that of a holder or a waiter is refused with
///   [`Fault::ModeConflict`] and is in no queue afterwards.
/// - A claim in an unsupported mode is refused immediately: [`Claim::supported_by`].
/// - Contention is an answer, not an error; the only error is [`Unknown`], which means "may have been executed".
/// - A repeated claim of the same holder has the same answer, and changes nothing or extends the lease. With
///   [`Capabilities::fresh_holders`] its tokens may be greater: a node may answer that did not answer before.
/// - Fencing tokens of one key increase with every grant; the tokens of a block belong to one grant.
/// - A renewal neither acquires nor releases, and leaves at least the lease that its holder knows: [`Renewal::assumed`].
/// - A release frees only the hold of its holder, and removes it from the queue.
/// - Dropping a future leaves the backend in a consistent state; its request may still be executed.
pub trait Backend: Debug + Send + Sync + 'static {
    /// The capabilities of this backend. They do not change.
    fn capabilities(&self) -> Capabilities;

    /// A name for messages, without secrets: `redis://localhost:6379`, `file:/run/locks`.
    fn name(&self) -> String;

    /// Sends events to `listener` as long as it is alive; the backend keeps a weak reference.
    fn listen(&self, listener: Arc<dyn Listener>);

    /// Claims a key. An implementation first calls [`Claim::supported_by`]. One that opens a connection first says when it has
    /// sent the claim, or that it has not: [`ClaimReply`].
    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, ClaimReply>;

    /// Requests one [`crate::Event::Changed`] when the current hold of the key ends; immediately if it is free. The event
    /// is a hint: it may be late or missing.
    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()>;

    /// Renews many leases in one request. The answers have the order of the renewals. They come together, so a caller sends the
    /// renewals of each [group](Backend::renewal_group) in a request of their own.
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>>;

    /// Which renewals can be sent in one request: those of keys with the same number. Keys that are stored on different servers
    /// have different numbers, so that no renewal waits for a server that it does not need. The number of a key may change.
    fn renewal_group(&self, key: &Key) -> u32 {
        let _ = key;
        0
    }

    /// Releases a hold, or leaves the queue.
    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release>;

    /// Turns an exclusive hold into a shared one with a new fencing token, without a moment in which the key is free. Shared
    /// claims at the head of the queue are granted with it. The holder must treat its hold as shared from the moment at which it
    /// sends the request, and use the old token for nothing after that.
    fn downgrade<'a>(&'a self, renewal: &'a Renewal) -> Answer<'a, Downgrade> {
        Box::pin(std::future::ready(Err(no_downgrade(self.name(), renewal))))
    }

    /// Changes the limit of a semaphore that is in use, in one step. All holders stay, even if they use more permits than the new
    /// limit: then nothing is granted until enough are returned. Where waiters form a queue, they wait for permits of the resized
    /// semaphore from then on, and those that now fit are granted; a waiter that wants more permits than the new limit
    /// leaves the queue. A new claim with the old limit is refused like any other limit. Nothing but a semaphore that is
    /// in use is changed.
    fn resize<'a>(&'a self, key: &'a Key, limit: u32) -> Answer<'a, Resize> {
        Box::pin(std::future::ready(Err(resize::unsupported(&self.name(), key, limit))))
    }

    /// Reads the completion of a key, and the time of the backend.
    fn read_completion<'a>(&'a self, key: &'a Key) -> Answer<'a, CompletionRead> {
        no_completions(self.name(), key)
    }

    /// [Merges](Completion::merge) a completion into the stored one, if `holder` holds the key exclusively, in one step. It stays
    /// until [`Completion::KEPT`] after its end at least. Anything else that is stored there is an error, and is not changed.
    fn write_completion<'a>(
        &'a self,
        key: &'a Key,
        holder: &'a HolderId,
        completion: &'a Completion,
    ) -> Answer<'a, WriteCompletion> {
        let _ = (holder, completion);
        no_completions(self.name(), key)
    }

    /// Makes sure that no later read before the end of `done` misses its completion. A backend with one node stores it again if it
    /// would [forget it before](CountedSuccess::outlasts_its_completion); one that never forgets needs nothing for that.
    fn confirm_completion<'a>(&'a self, key: &'a Key, done: &'a CountedSuccess) -> Answer<'a, ()> {
        let _ = (key, done);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Removes the completion that was read, or that of an earlier run. One of a later run is not changed.
    fn clear_completion<'a>(&'a self, key: &'a Key, seen: &'a Completion) -> Answer<'a, ClearCompletion> {
        let _ = seen;
        no_completions(self.name(), key)
    }

    /// The holding of a key; `None` if it is free.
    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>>;

    /// The held keys, in any order. A key that is acquired or released concurrently may or may not be included.
    fn list(&self) -> Answer<'_, Vec<Holding>>;

    /// Ends the holds that `seen` lists, if they have not changed. `seen` may list one of several shared holders; then
    /// the others keep the key.
    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction>;

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

    /// Tries what a lock does, and takes it back: [`crate::Trial`] with a key that no program uses, or with `key`. It returns findings,
    /// also if it was not tried. Whatever is written is removed, and expires within 5 s if this program is killed. Nothing else is
    /// written: no directory, and no marker of a server that may have lost its locks.
    fn try_out<'a>(&'a self, key: Option<&'a Key>) -> BoxFuture<'a, Vec<Finding>> {
        let _ = key;
        Box::pin(std::future::ready(vec![Finding::not_tried("this backend does not support a trial", "")]))
    }

    /// Checks what the guarantees of the backend depend on: what it consists of, what works there, and a [`Finding`] for each check.
    /// It only reads.
    fn diagnose(&self) -> BoxFuture<'_, BackendReport>;
}

impl Claim {
    /// Checks that `backend` supports the mode of this claim. A backend calls this first.
    ///
    /// # Errors
    /// [`Fault::ModeUnsupported`]: nothing was sent, and a retry does not help.
    pub fn supported_by(&self, backend: &dyn Backend) -> Result<(), Unknown> {
        // All backends support exclusive locks, so the usual claim needs no lookup.
        if self.mode == Mode::Exclusive || backend.capabilities().modes.has(self.mode) {
            return Ok(());
        }
        let fault = Fault::ModeUnsupported(self.mode);
        Err(Unknown::new(backend.name(), fault, self.mode.alternative()))
    }
}

/// The refusal of a downgrade on a backend without shared locks.
pub fn no_downgrade(backend: String, renewal: &Renewal) -> Unknown {
    let advice = format!("key {}: keep the exclusive lock, or release it and acquire a shared one", renewal.key);
    Unknown::new(backend, Fault::ModeUnsupported(Mode::Shared), advice)
}

fn no_completions<'a, T: Send + 'a>(backend: String, key: &Key) -> Answer<'a, T> {
    Box::pin(std::future::ready(Err(once::unsupported(backend, key))))
}

/// The trait must stay object safe.
const _: Option<&dyn Backend> = None;
