//! Locks on a store that has only a conditional write: one register for each key, such as an object of S3, with two requests.
//!
//! ```text
//! read(key)                    -> Absent | bytes with their version, and when they were written; and the time of the store
//! write_if(key, expect, bytes) -> written, with the new version | refused
//! ```
//!
//! The store must promise, for each key, that reads and writes are linearizable, that it writes only if the version is still the
//! expected one, and that different bytes have different versions. If it tells when a record was written, its clocks must differ by
//! at most [`StoreTiming::skew`].
//!
//! The rules, each of which a search in `tests/register` needs:
//!
//! - Every write has a new nonce ([`Record`]). So no version comes back, and a renewal is seen.
//! - A refusal is settled by a read ([`Update`]): it may be a copy of a write that was executed. If the version is the expected one
//!   time and again, the store is wrong.
//! - A repeated claim writes again, because the lease of the earlier one may be almost over.
//! - A claim that was not answered may be executed later. Its release replaces what the claim expects, if that is still there, also
//!   if the key is free ([`Remembered`]).
//! - Nothing is deleted, and a record that is not understood is never overwritten.
//! - A hold is over if its version has not changed for a TTL since the *receipt* of a read; or if the store was asked at a time that is
//!   later than the write by the TTL, the unit of these times, and the skew; or if this client proved it before.
//! - A lease counts from before the first request of its claim or renewal: [`Lease`](crate::Lease).
//! - Tokens come from the record. Only the first one of a record comes from the clock of the store, in case it was deleted.
//!
//! Exhaustive: whoever executes an [`Update`] handles every [`UpdateStep`], and each of the [`decisions`] every state.
//!
//! Only exclusive holds: what many holders write to one record collides. With 50 ms for each request, each renewal of 50 holders would
//! need 2.7 requests, and that of 200 would be lost.

pub mod decisions;
mod memory;
mod record;
mod update;
mod view;

pub use memory::{Remembered, StoreClock, StoreTiming};
pub use record::{Hold, Record};
pub use update::{Update, UpdateEnv, UpdateStep};
pub use view::{Current, Decision, View};

use crate::{Foreign, Moment};
use std::sync::Arc;
use std::time::Duration;

/// A version of a register, such as an `ETag`. It is only compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version(Arc<str>);

impl Version {
    /// The text of the store.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for the condition of a write.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The condition of a write: this version, or `None` if nothing may be there.
pub type Expect = Option<Version>;

/// Whether a write has to wait until the store is seen to refuse what it must refuse, which it was last at `proved`.
///
/// A gateway or a proxy that ignores conditions may be put before a store at any time. After ten minutes, only a claim waits: what
/// this client holds was granted before, and a renewal is late soon. In a lock that is always held, two writes in ten minutes are
/// less than a thirtieth of all.
pub fn proof_is_due(proved: Option<Moment>, claims: bool, now: Moment) -> bool {
    const GOOD: Duration = Duration::from_secs(600);
    proved.is_none_or(|proved| claims && now.since(proved) >= GOOD)
}

/// The answer to a read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reading {
    /// What is stored.
    pub stored: Stored,
    /// When it was written, in microseconds since 1970 by a clock of the store, cut off to [`StoreTiming::resolution`], and not before the
    /// request arrived; `None` if the store does not tell it, or its clocks are not trusted.
    pub modified: Option<u64>,
    /// The time of the store at this answer, in the same way.
    pub date: Option<u64>,
}

/// What is stored in a register.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Stored {
    /// Nothing.
    Absent,
    /// A record of this key.
    Record(Version, Record),
    /// Anything else.
    Foreign(Foreign),
}

impl Stored {
    /// The condition under which it is replaced.
    fn expect(&self) -> Expect {
        match self {
            Self::Record(version, _) => Some(version.clone()),
            Self::Absent | Self::Foreign(_) => None,
        }
    }
}
