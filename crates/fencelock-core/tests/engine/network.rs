//! What is on its way between clients and the server.

use fencelock_core::{
    Acquire, Claim, Downgrade, Fault, HolderId, Holding, Key, Moment, Release, Renew, Renewal, TokenBlock, Unknown,
};
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;
use std::time::Duration;

/// A request is carried out within this time after its sender has sent it, or given it up: the engine allows
/// [`fencelock_core::engine::STRAGGLER`].
pub(crate) const ARRIVAL: Duration = Duration::from_millis(900);

/// The name of a request for its client. It only connects packets with who waits for them: see [`crate::digest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op(pub(crate) u16);

impl Hash for Op {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct Packet {
    pub(crate) client: u8,
    /// When the request was sent; of a message, when the server sent it.
    pub(crate) sent: Moment,
    pub(crate) load: Load,
}

#[derive(Debug, Clone, Hash)]
pub(crate) enum Load {
    /// `op` names it to its client; `by` is when it must have been carried out.
    Request {
        op: Op,
        by: Moment,
        call: Call,
    },
    Answer {
        op: Op,
        reply: Reply,
    },
    HandOff {
        holder: HolderId,
        tokens: TokenBlock,
        claim_ttl: Duration,
    },
    Changed,
    Queued,
}

impl Load {
    /// Whether it reports to its receiver that another client waits.
    pub(crate) fn tells_of_waiters(&self) -> bool {
        matches!(self, Self::Queued | Self::Answer { reply: Reply::Renew(_), .. })
            || matches!(self, Self::Answer { reply: Reply::Claim(Acquire::Queued { .. }), .. })
            || matches!(self, Self::Request { call: Call::Renew(_), .. })
    }
}

#[derive(Debug, Clone, Hash)]
pub(crate) enum Call {
    Claim(Claim),
    Inspect,
    Renew(Vec<Renewal>),
    Release(HolderId),
    Downgrade(Renewal),
}

#[derive(Debug, Clone, Hash)]
pub(crate) enum Reply {
    Claim(Acquire),
    /// The claim found no connection.
    NotSent,
    Inspect(Option<Holding>),
    Renew(Vec<Renew>),
    Release(Release),
    Downgrade(Downgrade),
}

impl Packet {
    pub(crate) fn call(&self) -> Option<&Call> {
        match &self.load {
            Load::Request { call, .. } => Some(call),
            _ => None,
        }
    }

    pub(crate) fn op(&self) -> Option<Op> {
        match self.load {
            Load::Request { op, .. } | Load::Answer { op, .. } => Some(op),
            _ => None,
        }
    }

    /// Whether this is a request to release what the holder has.
    pub(crate) fn releases(&self, holder: HolderId) -> bool {
        matches!(self.call(), Some(Call::Release(released)) if *released == holder)
    }
}

pub(crate) fn key() -> &'static Key {
    static KEY: LazyLock<Key> = LazyLock::new(|| Key::new("k").unwrap());
    &KEY
}

/// An unknown result.
pub(crate) fn unknown() -> Unknown {
    Unknown::new("", Fault::Timeout, "")
}
