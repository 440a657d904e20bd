use fencelock_core::register::{Expect, Reading, Record, Stored, Version};
use fencelock_core::{Answer, BoxFuture, Fault, Finding, Key, Listener, Unknown};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// A store with a register for each key.
///
/// Guarantees of an implementation, for each key:
///
/// - Reads and writes are linearizable: a read returns what was written last.
/// - A write is executed only if the version is the expected one, in one step.
/// - Different bytes have different versions.
/// - A request has an answer, or an error, within some seconds. It is sent once: a repetition hides how long it took.
///
/// An error means that the request may have been executed. Dropping a future may leave its request in the network.
pub trait Register: Debug + Send + Sync + 'static {
    /// A name for messages, without secrets.
    fn name(&self) -> String;

    /// Reads a register. Of more than [`Record::MAX_BYTES`] bytes it may return any that are more.
    fn read<'a>(&'a self, key: &'a Key) -> Answer<'a, Found>;

    /// Writes a register if it has the expected version; with `None`, if nothing is there.
    fn write_if<'a>(&'a self, key: &'a Key, expect: &'a Expect, bytes: Vec<u8>) -> Answer<'a, WriteReply>;

    /// Sees whether the store refuses a write that it must refuse. It is asked before the first write, and again from time to time:
    /// [`proof_is_due`](fencelock_core::register::proof_is_due). By default, nothing is asked.
    ///
    /// # Errors
    /// It does not, or that is unknown.
    fn prove(&self) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Waits before a write is tried again. By default it does not, as a store in memory needs no pause.
    fn pause(&self, span: Duration) -> BoxFuture<'_, ()> {
        let _ = span;
        Box::pin(std::future::ready(()))
    }

    /// The keys whose records may be held: [`Record::may_be_held`] tells it by the length of a record.
    fn list(&self) -> Answer<'_, Vec<Key>>;

    /// Whether the store answers, and lets this client in: by default, whether it lists.
    fn check(&self) -> Answer<'_, ()> {
        Box::pin(async move { self.list().await.map(drop) })
    }

    /// The key of a trial: by default, a new one each time, which is forgotten afterwards.
    fn trial_key(&self) -> Option<Key> {
        None
    }

    /// Deletes a register that only a trial has used. Returns whether it is gone; by default it stays.
    fn forget<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, bool> {
        let _ = key;
        Box::pin(std::future::ready(false))
    }

    /// Tries what this store promises, for `doctor`.
    fn try_out(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Sends [`Changed`](fencelock_core::Event::Changed) to `listener` when another client has changed a register that is watched. It
    /// keeps a weak reference.
    fn listen(&self, listener: &Arc<dyn Listener>) {
        let _ = listener;
    }

    /// Watches this register while it is used, and some minutes longer. Each of its events is a hint: it may be late or missing.
    ///
    /// # Errors
    /// It cannot be watched, as most stores cannot.
    fn watch(&self, key: &Key) -> Result<(), Unknown> {
        let _ = key;
        Err(Unknown::new(self.name(), Fault::Unsupported, "this store sends no events"))
    }
}

/// The answer to a read. Exhaustive: a store makes it of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The bytes with their version; `None` if nothing is there.
    pub bytes: Option<(Version, Vec<u8>)>,
    /// When they were written, in microseconds since 1970 by a clock of the store; `None` if it is not told, or not trusted.
    pub modified: Option<u64>,
    /// The time of the store, in the same way.
    pub date: Option<u64>,
}

/// The answer to a write. Exhaustive: there is no third answer, only errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteReply {
    /// It was executed.
    Written {
        /// The new version.
        version: Version,
        /// As in [`Found`].
        date: Option<u64>,
    },
    /// The register has another version: perhaps because a copy of this write was executed.
    Refused {
        /// The words of the store, if there are any.
        why: String,
    },
}

impl Found {
    pub(crate) fn reading(self, key: &Key) -> Reading {
        let stored = match self.bytes {
            None => Stored::Absent,
            Some((version, bytes)) => match Record::from_bytes(&bytes, key) {
                Ok(record) => Stored::Record(version, record),
                Err(what) => Stored::Foreign(what),
            },
        };
        Reading { stored, modified: self.modified, date: self.date }
    }
}
