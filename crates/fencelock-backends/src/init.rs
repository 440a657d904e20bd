use crate::connect::ConnectError;
use crate::schemes::scheme_of;
use std::time::Duration;

/// Puts the servers of a `redlock://` URL, or of a `redis://` URL with `quarantine=on`, into service as this set: the first
/// time, and after each change of the list or of `max_ttl=`.
///
/// Every server is told which set it belongs to. One that is new, restarted or flushed begins its quarantine, unless
/// `trust_empty` says that none of the servers has forgotten anything: that is so only if no lock was ever taken from this
/// set, or all of them have ended. Doing it again changes nothing.
///
/// # Errors
/// [`ConnectError::Url`] for a place without a quarantine. [`ConnectError::Unknown`] if not all servers answer; then nothing
/// was written. If one fails after that, its cause says so, and it can be done again.
///
/// # Cancel safety
/// Some of the servers may be told and others not; doing it again is harmless.
pub async fn init(url: &str, trust_empty: bool) -> Result<Vec<RegisteredNode>, ConnectError> {
    scheme_of(url)?.init(url, trust_empty).await
}

/// The result for one node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredNode {
    /// Its address, without a password.
    pub node: String,
    /// What was found there.
    pub change: Change,
    /// The remaining quarantine; zero if the node grants.
    pub ready_in: Duration,
}

impl RegisteredNode {
    /// `node` is an address without a password.
    pub fn new(node: impl Into<String>, change: Change, ready_in: Duration) -> Self {
        Self { node: node.into(), change, ready_in }
    }
}

/// What was found on a node that was registered.
///
/// Exhaustive: a program that puts servers into service must say which of these it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was new, or had been restarted or flushed.
    New,
    /// It belonged to another set of nodes, or allowed another longest TTL.
    Moved,
    /// It belonged to this set already.
    None,
}
