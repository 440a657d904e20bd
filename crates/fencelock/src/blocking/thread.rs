//! The thread of a client, and the values of the async API that use it.

use crate::driver::Driver;
use crate::identity::Process;
use crate::{Error, Invalid, Loss};
use futures_util::FutureExt;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

thread_local! {
    /// Whether this is a thread of such a client, which runs its callbacks.
    static IS_CLIENT_THREAD: Cell<bool> = const { Cell::new(false) };
}

const IN_CALLBACK: &str = "a callback must not wait for a blocking client, because it runs on the thread that renews the \
                           leases: send what it learned to another thread";

/// A runtime on its own thread.
pub(super) struct ClientThread {
    /// `None` after the drop.
    runtime: Option<tokio::runtime::Runtime>,
    pub(super) client: OnceLock<Arc<Driver>>,
    /// In a forked child, the thread does not exist.
    process: Process,
}

impl ClientThread {
    pub(super) fn start() -> Result<Self, Error> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fencelock")
            .on_thread_start(|| IS_CLIENT_THREAD.set(true))
            .enable_all()
            .build()
            .map(|runtime| Self { runtime: Some(runtime), client: OnceLock::new(), process: Process::current() })
            .map_err(|error| {
                Invalid::new(format!("the system could not create a thread for the client: {error}")).into()
            })
    }

    /// Runs `work` on the thread of the client and blocks until it is done. A panic in it, which is one of a callback, continues
    /// on the calling thread. A forked child does not have the thread, and a callback would wait for itself.
    pub(super) fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, Invalid> {
        self.process.check()?;
        if IS_CLIENT_THREAD.get() {
            return Err(Invalid::new(IN_CALLBACK));
        }
        let (done, result) = std::sync::mpsc::sync_channel(1);
        let ended = || Invalid::new("the thread of this client has ended");
        self.runtime.as_ref().ok_or_else(ended)?.spawn(async move {
            // The receiver is dropped only if the thread of the caller has ended.
            let _ = done.send(AssertUnwindSafe(work).catch_unwind().await);
        });
        result.recv().map_err(|_| ended())?.or_else(|panic| resume_unwind(panic))
    }

    /// As [`ClientThread::run`], for calls that return no error: `None` in a forked child. A callback panics.
    pub(super) fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        self.process.check().ok()?;
        assert!(!IS_CLIENT_THREAD.get(), "{IN_CALLBACK}");
        self.run(work).ok()
    }
}

/// A value of the async API, whose futures run on the thread of its client: what the types of [`blocking`](super) are.
#[must_use = "a claim does nothing until it is acquired, and what is acquired is released when it is dropped"]
#[derive(Debug, Clone)]
pub struct OnThread<T> {
    pub(crate) inner: T,
    pub(super) thread: Arc<ClientThread>,
}

impl<T> OnThread<T> {
    /// Another value, on the same thread.
    pub(super) fn beside<U>(&self, inner: U) -> OnThread<U> {
        OnThread { inner, thread: Arc::clone(&self.thread) }
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> OnThread<U> {
        OnThread { inner: change(self.inner), thread: self.thread }
    }

    /// Blocks until this call is done. In a forked child it is at once, and needs no thread.
    pub(super) fn call<U: Send + 'static, F>(self, call: impl FnOnce(T) -> F) -> Result<OnThread<U>, Error>
    where
        F: Future<Output = Result<U, Error>> + Send + 'static,
    {
        let Self { inner, thread } = self;
        let inner = match thread.process.check() {
            Ok(()) => thread.run(call(inner))?,
            Err(forked) => call(inner).now_or_never().unwrap_or_else(|| Err(forked.into())),
        }?;
        Ok(OnThread { inner, thread })
    }

    pub(super) fn view<H>(&self, inner: H) -> WeakOnThread<H> {
        WeakOnThread { inner, thread: Arc::downgrade(&self.thread) }
    }
}

/// A view of what the thread of a client holds, which keeps nothing alive: what [`Held`](super::Held) and
/// [`HeldAll`](super::HeldAll) are.
#[derive(Debug, Clone)]
pub struct WeakOnThread<H> {
    pub(super) inner: H,
    pub(super) thread: Weak<ClientThread>,
}

impl<H: Clone> WeakOnThread<H> {
    /// Waits at most `within` for the loss. Without the thread there is none to wait for, because the last guard was dropped, or
    /// this is a forked child: `loss` is what is known.
    pub(super) fn wait<L: Send + 'static, F>(
        &self,
        within: Duration,
        ended: impl FnOnce(H) -> F,
        loss: impl FnOnce(&H) -> Option<L>,
    ) -> Option<L>
    where
        F: Future<Output = Option<L>> + Send + 'static,
    {
        let ended = ended(self.inner.clone());
        let wait = async move { tokio::time::timeout(within, ended).await.ok().flatten() };
        self.thread.upgrade().and_then(|thread| thread.wait(wait)).unwrap_or_else(|| loss(&self.inner))
    }

    /// Passes the loss on, from the thread of the client. Without the thread, what is known: see [`WeakOnThread::wait`].
    pub(super) fn on_lost<F: Future<Output = Option<Loss>> + Send + 'static>(
        &self,
        ended: impl FnOnce(H) -> F,
        loss: impl FnOnce(&H) -> Option<Loss>,
        callback: impl FnOnce(Loss) + Send + 'static,
    ) {
        let thread = self.thread.upgrade().filter(|thread| thread.process.is_current());
        let Some(runtime) = thread.as_ref().and_then(|thread| thread.runtime.as_ref()) else {
            return loss(&self.inner).map_or((), callback);
        };
        let ended = ended(self.inner.clone());
        runtime.spawn(async move { ended.await.map_or((), callback) });
    }
}

impl fmt::Debug for ClientThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientThread").finish_non_exhaustive()
    }
}

impl Drop for ClientThread {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if !self.process.is_current() {
            // The runtime belongs to the parent process.
            std::mem::forget(runtime);
            return;
        }
        // A script that exits after its last guard must not leave the lock to its TTL.
        if let Some(client) = self.client.take() {
            client.wait_for_releases();
        }
        // Waiting would panic in an async runtime.
        runtime.shutdown_background();
    }
}
