use crate::request::FromReply;
use crate::{
    BackendReport, BoxFuture, Claim, ClaimReply, ClearCompletion, Completion, CompletionRead, CountedSuccess,
    Downgrade, Eviction, FencingToken, Finding, HolderId, Holding, Invalid, Key, Listener, Modes, Raise, Release,
    Renew, Renewal, Reply, Request, Resize, RetryPlan, Span, Ttl, Unknown, WriteCompletion,
};
use std::fmt::{self, Debug};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

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
    /// [`Request::Evict`] can end the hold of another client.
    pub evicts: bool,
    /// [`Request::List`] lists the held keys.
    pub lists: bool,
    /// Completions are stored next to the locks. Without them, work does not run once per window.
    pub completions: bool,
    /// [`Request::Downgrade`], and [`Request::Resize`] where there are semaphores.
    pub mode_changes: bool,
    /// It can be a node of a quorum: it follows proposals, and knows [`Request::Raise`] and [`Request::RestoreCompletion`].
    pub node: bool,
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

/// The methods for callers, each of which sends a request.
macro_rules! sends {
    ($($method:ident($($name:ident: $type:ty),*) -> $answer:ty = $request:ident$(($($part:expr),*))?;)*) => {$(
        #[doc = concat!("Sends a [`Request::", stringify!($request), "`].")]
        #[allow(clippy::elidable_lifetime_names, reason = "one form for all")]
        fn $method<'a>(&'a self $(, $name: $type)*) -> Response<'a, $answer> {
            Response::new(self, Request::$request$(($($part),*))?)
        }
    )*};
}

/// A backend of locks. An implementation writes [`Backend::capabilities`], [`Backend::name`], [`Backend::listen`] and [`Backend::call`];
/// the methods that return a [`Response`] are for callers.
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

    /// Carries out a request. One that this backend does not know has the reply [`Request::unsupported`].
    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply>;

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

    sends! {
        acquire(claim: &'a Claim) -> ClaimReply = Claim(claim, None);
        acquire_proposed(claim: &'a Claim, proposal: u64) -> ClaimReply = Claim(claim, Some(proposal));
        renew(renewals: &'a [Renewal]) -> Vec<Result<Renew, Unknown>> = Renew(renewals);
        release(key: &'a Key, holder: &'a HolderId) -> Result<Release, Unknown> = Release(key, holder);
        inspect(key: &'a Key) -> Result<Option<Holding>, Unknown> = Inspect(key);
        watch(key: &'a Key) -> Result<(), Unknown> = Watch(key);
        downgrade(hold: &'a Renewal) -> Result<Downgrade, Unknown> = Downgrade(hold, None);
        downgrade_proposed(hold: &'a Renewal, token: u64) -> Result<Downgrade, Unknown> = Downgrade(hold, Some(token));
        resize(key: &'a Key, limit: u32) -> Result<Resize, Unknown> = Resize(key, limit);
        raise(key: &'a Key, holder: &'a HolderId, to: FencingToken) -> Result<Raise, Unknown> = Raise(key, holder, to);
        list() -> Result<Vec<Holding>, Unknown> = List;
        evict(seen: &'a Holding) -> Result<Eviction, Unknown> = Evict(seen);
        try_out(key: Option<&'a Key>) -> Vec<Finding> = TryOut(key);
        diagnose() -> BackendReport = Diagnose;
        read_completion(key: &'a Key) -> Result<CompletionRead, Unknown> = ReadCompletion(key);
        write_completion(key: &'a Key, holder: &'a HolderId, done: &'a Completion) -> Result<WriteCompletion, Unknown>
            = WriteCompletion(key, holder, done);
        confirm_completion(key: &'a Key, done: &'a CountedSuccess) -> Result<(), Unknown> = ConfirmCompletion(key, done);
        clear_completion(key: &'a Key, seen: &'a Completion) -> Result<ClearCompletion, Unknown>
            = ClearCompletion(key, seen);
        restore_completion(key: &'a Key, seen: &'a Completion) -> Result<(), Unknown> = RestoreCompletion(key, seen);
    }
}

/// The trait must stay object safe.
const _: Option<&dyn Backend> = None;

/// The future of a reply, as what was asked for: a reply of another kind is [`Unknown`].
#[must_use = "a request is sent when its response is polled"]
pub struct Response<'a, T> {
    reply: BoxFuture<'a, Reply>,
    /// The number of renewals.
    many: usize,
    answer: PhantomData<fn() -> T>,
}

impl<'a, T> Response<'a, T> {
    fn new<B: Backend + ?Sized>(backend: &'a B, request: Request<'a>) -> Self {
        let many = if let Request::Renew(renewals) = request { renewals.len() } else { 1 };
        Self { reply: backend.call(request), many, answer: PhantomData }
    }
}

impl<T: FromReply> Future for Response<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.reply.as_mut().poll(cx).map(|reply| T::from_reply(reply, self.many))
    }
}

impl<T> Debug for Response<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").finish_non_exhaustive()
    }
}

impl Request<'_> {
    /// Sends a copy of the request, which may outlast it.
    pub fn send_copy(self, to: Arc<dyn Backend>) -> BoxFuture<'static, Reply> {
        macro_rules! send {
            ($request:ident($($copied:ident),*$(; $value:expr)?)) => {{
                $(let $copied = $copied.to_owned();)*
                Box::pin(async move { to.call(Request::$request($(&$copied,)* $($value)?)).await })
            }};
        }
        match self {
            Self::Claim(claim, proposal) => send!(Claim(claim; proposal)),
            Self::Renew(renewals) => send!(Renew(renewals)),
            Self::Release(key, holder) => send!(Release(key, holder)),
            Self::Inspect(key) => send!(Inspect(key)),
            Self::Watch(key) => send!(Watch(key)),
            Self::Downgrade(renewal, proposal) => send!(Downgrade(renewal; proposal)),
            Self::Resize(key, limit) => send!(Resize(key; limit)),
            Self::Raise(key, holder, token) => send!(Raise(key, holder; token)),
            Self::Evict(seen) => send!(Evict(seen)),
            Self::ReadCompletion(key) => send!(ReadCompletion(key)),
            Self::WriteCompletion(key, holder, completion) => send!(WriteCompletion(key, holder, completion)),
            Self::ConfirmCompletion(key, done) => send!(ConfirmCompletion(key, done)),
            Self::ClearCompletion(key, seen) => send!(ClearCompletion(key, seen)),
            Self::RestoreCompletion(key, completion) => send!(RestoreCompletion(key, completion)),
            Self::TryOut(key) => {
                let key = key.cloned();
                Box::pin(async move { to.call(Request::TryOut(key.as_ref())).await })
            }
            Self::List => Box::pin(async move { to.call(Request::List).await }),
            Self::Diagnose => Box::pin(async move { to.call(Request::Diagnose).await }),
        }
    }
}
