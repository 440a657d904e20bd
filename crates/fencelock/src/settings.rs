//! What can be set for a claim: the settings themselves, and the setters that every builder has.

use crate::driver::ClientInner;
use crate::error::{Error, check_mode};
use fencelock_core::engine::{AcquireRequest, LeaseSharing, Retry};
use fencelock_core::{Expiry, Holders, Invalid, Key, Mode, Span, Ttl, Unknown};
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Once};
use std::time::Duration;

/// The settings of a claim, for one key or several. They are checked when they are used.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockSettings {
    pub(crate) mode: Mode,
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    pub(crate) label: Option<String>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) callbacks: Callbacks,
    lease_sharing: LeaseSharing,
    requested_at: Option<&'static Location<'static>>,
}

impl LockSettings {
    /// A task that claims there is expected to wait only for others, so a long wait for its own client is reported, with this place.
    pub(crate) fn requested_at(place: &'static Location<'static>) -> Self {
        Self { requested_at: Some(place), ..Self::default() }
    }

    /// Claims for itself, as if it were the only task of its client.
    pub(crate) fn unshared() -> Self {
        Self { lease_sharing: LeaseSharing::Never, ..Self::default() }
    }

    /// Takes the settings of another claim, but not its mode.
    pub(crate) fn take(&mut self, other: &Self) {
        let Self { mode, lease_sharing, requested_at, .. } = *self;
        *self = Self { mode, lease_sharing, requested_at, ..other.clone() };
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl.unwrap_or(Ttl::default().get())
    }

    /// Checks the settings, for a claim of `key`.
    pub(crate) fn check(&self, client: &ClientInner, key: Key) -> Result<CheckedLock, Error> {
        client.check_process()?;
        let ttl = Ttl::new(self.ttl())?;
        if self.max_hold.is_some_and(|max_hold| max_hold.is_zero()) {
            return Err(
                Invalid::new("a max_hold of zero ends the lock when it is granted: leave it out for no limit").into()
            );
        }
        client.config.drift.check(ttl)?;
        let capabilities = &client.config.capabilities;
        capabilities.check_ttl(ttl)?;
        if let Some(advised) = capabilities.advised_ttl.filter(|advised| ttl.get() < *advised) {
            static TOLD: Once = Once::new();
            let (ttl, advised) = (Span(ttl.get()), Span(advised));
            TOLD.call_once(|| {
                tracing::warn!("with a TTL of {ttl}, slow answers may end the lease: use {advised} or more");
            });
        }
        check_mode(&client.config.backend, &key, capabilities.modes, self.mode)?;
        Ok(CheckedLock {
            key,
            options: AcquireRequest {
                mode: self.mode,
                owner: client.identity.owner(self.label.as_deref())?,
                ttl,
                wait: self.wait,
                retry: self.retry,
                max_hold: self.max_hold,
                lease_sharing: self.lease_sharing,
                reports: self.callbacks.on_wait.is_some(),
                requested_at: self.requested_at,
            },
            callbacks: self.callbacks.clone(),
        })
    }
}

/// Both run on a task of the client.
#[derive(Clone, Default)]
pub(crate) struct Callbacks {
    pub(crate) on_wait: Option<OnWait>,
    pub(crate) on_trouble: Option<OnTrouble>,
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callbacks")
    }
}

/// The setters of a builder, async or blocking, whose [`LockSettings`] are in this field: which of them it has, and what it adds to
/// their documentation.
macro_rules! setters {
    (Lock in $($at:tt)+) => {
        setters! { [$($at)+] ttl [] wait [] retry [] label [] max_hold [] on_wait [] on_trouble [] }
    };
    (LockAll in $($at:tt)+) => {
        setters! { [$($at)+]
            ttl []
            wait ["This is the limit of all locks together. Zero tries each key once, one after another."]
            label []
            max_hold ["The time begins when the last of the locks is acquired, and its end releases all of them."]
            on_wait []
            on_trouble []
        }
    };
    (Semaphore in $($at:tt)+) => {
        setters! { [$($at)+] ttl [] wait [] retry [] label [] max_hold [] on_wait [] on_trouble [] }
    };
    (Slots in $($at:tt)+) => {
        setters! { [$($at)+]
            ttl []
            wait ["This is the limit of the claim of any slot. Zero tries each slot once."]
            label []
            max_hold []
            on_wait ["A reply is about one of the slots that are waited for."]
            on_trouble []
        }
    };
    (Election in $($at:tt)+) => {
        setters! { [$($at)+]
            ttl ["So it is how long a term lasts after its leader has crashed."]
            wait ["This is the limit of a campaign."]
            max_hold ["It is the maximum duration of a term, which is lost then with [`LossReason::MaxHold`](crate::LossReason::MaxHold)."]
            on_wait ["The holder of the reply is the leader that this candidate waits for."]
            on_trouble []
        }
    };
    (OncePerWindow in $($at:tt)+) => {
        setters! { [$($at)+]
            ttl []
            wait ["This is the limit of the wait for a run of another client."]
            label ["It is shown while the work runs and after it."]
            max_hold ["A run that is ended by it does not count as a success."]
            on_wait []
            on_trouble []
        }
    };

    (@settings_of [$($at:tt)+]) => {
        /// Takes the settings of this lock, for a program that claims in several ways.
        #[doc(hidden)]
        pub fn settings_of(mut self, lock: &crate::Lock) -> Self {
            self.$($at)+.take(&lock.settings);
            self
        }
    };

    ($at:tt $($setter:ident $more:tt)+) => { setters! { @settings_of $at } $(setters! { @$setter $at $more })+ };

    (@ttl [$($at:tt)+] [$($more:literal)?]) => {
        /// How long the lease outlasts this process if it dies: 10 ms to 24 h, 30 s by default. A backend with a quarantine
        /// allows at most its `max_ttl=`.
        ///
        /// While it is held, the lease is renewed after every third of it, so the TTL need not cover the work. With a shorter
        /// TTL, other clients wait less after a crash; with a longer one, the lease survives longer outages of the server.
        $(#[doc = ""] #[doc = $more])?
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.$($at)+.ttl = Some(ttl);
            self
        }
    };
    (@wait [$($at:tt)+] [$($more:literal)?]) => {
        /// Waits at most this long, and 50 ms more for a pending reply, whether the key is busy or the backend does not answer.
        /// Without it, a busy key is waited for without limit, and a backend that does not answer for the TTL. Zero tries once,
        /// and waits for that reply as long as the backend allows.
        $(#[doc = ""] #[doc = $more])?
        pub fn wait(mut self, wait: std::time::Duration) -> Self {
            self.$($at)+.wait = Some(wait);
            self
        }
    };
    (@retry [$($at:tt)+] []) => {
        /// Tries at most `times` times, with `pause` in between, and does not enter the queue. Clients in the queue come first.
        /// Zero is the same as one.
        pub fn retry(mut self, times: u32, pause: std::time::Duration) -> Self {
            self.$($at)+.retry = Some(fencelock_core::engine::Retry { times: times.max(1), pause });
            self
        }
    };
    (@label [$($at:tt)+] [$($more:literal)?]) => {
        /// The purpose, which is shown to other clients: at most 128 bytes.
        $(#[doc = ""] #[doc = $more])?
        pub fn label(mut self, label: impl Into<String>) -> Self {
            self.$($at)+.label = Some(label.into());
            self
        }
    };
    (@max_hold [$($at:tt)+] [$($more:literal)?]) => {
        /// Ends the hold after this time even if its guard still exists, as a bound for work that hangs; without it, there is no
        /// limit. The guard reports the loss before another client can acquire the key, and the next waiter acquires it
        /// immediately.
        $(#[doc = ""] #[doc = $more])?
        pub fn max_hold(mut self, max_hold: std::time::Duration) -> Self {
            self.$($at)+.max_hold = Some(max_hold);
            self
        }
    };
    (@on_wait [$($at:tt)+] [$($more:literal)?]) => {
        /// Calls `callback` after each reply during the wait. It must return quickly: it runs in the task that waits, and
        /// in [`blocking`](crate::blocking) on the thread of the client.
        $(#[doc = ""] #[doc = $more])?
        pub fn on_wait(mut self, callback: impl Fn(&crate::Waiting) + Send + Sync + 'static) -> Self {
            self.$($at)+.callbacks.on_wait = Some(std::sync::Arc::new(callback));
            self
        }
    };
    (@on_trouble [$($at:tt)+] []) => {
        /// Calls `callback` after each failed try while trying continues: servers that do not answer, or are in quarantine. It
        /// must return quickly: it runs in the task that waits, and in [`blocking`](crate::blocking) on the thread of the
        /// client.
        pub fn on_trouble(mut self, callback: impl Fn(&crate::Unknown) + Send + Sync + 'static) -> Self {
            self.$($at)+.callbacks.on_trouble = Some(std::sync::Arc::new(callback));
            self
        }
    };
}

pub(crate) type OnWait = Arc<dyn Fn(&Waiting) + Send + Sync>;
pub(crate) type OnTrouble = Arc<dyn Fn(&Unknown) + Send + Sync>;

/// The last known state of a wait.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Waiting {
    /// The key.
    pub key: Key,
    /// The number of waiters in front; `None` without a queue.
    pub ahead: Option<u32>,
    /// The holders.
    pub holders: Holders,
    /// When the first of these holds ends unless it is renewed.
    pub expiry: Expiry,
    /// The duration of the oldest of these holds, if known.
    pub held_for: Option<Duration>,
    /// How long the request has waited.
    pub waited: Duration,
}

/// A lock with checked settings.
#[derive(Clone)]
pub(crate) struct CheckedLock {
    pub(crate) key: Key,
    pub(crate) options: AcquireRequest,
    pub(crate) callbacks: Callbacks,
}

pub(crate) use setters;
