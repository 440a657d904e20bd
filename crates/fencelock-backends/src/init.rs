use crate::connect::ConnectError;
use crate::schemes::scheme_of;
use std::time::Duration;

/// Registers the servers of a `redlock://` URL, or of a `redis://` URL with `quarantine=on`, as this set: initially, and
/// after each change of the list or of `max_ttl=`.
///
/// Every server stores its set. A new, restarted or flushed server starts its quarantine, unless
/// `trust_empty` asserts that no server has lost data: that is true only if no lock was ever acquired from this
/// set, or all of them have ended. Repeating the call changes nothing.
///
/// # Errors
/// [`ConnectError::Url`] for a backend without a quarantine. [`ConnectError::Unknown`] if a server does not answer; then
/// nothing was written. If one fails after that, the cause says so, and the call can be repeated.
///
/// # Cancel safety
/// Some servers may be registered and others not; repeating the call is harmless.
pub async fn init(url: &str, trust_empty: bool) -> Result<Vec<RegisteredNode>, ConnectError> {
    scheme_of(url)?.init(url, trust_empty).await
}

/// The result for one node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredNode {
    /// Its address, without a password.
    pub node: String,
    /// The previous state.
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

/// The previous state of a registered node.
///
/// Exhaustive: a program that registers servers must report which of these it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was new, or had been restarted or flushed.
    New,
    /// The node belonged to another set, or had another longest TTL.
    Moved,
    /// The node already belonged to this set.
    None,
}
