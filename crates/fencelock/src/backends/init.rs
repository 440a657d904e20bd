use super::schemes::scheme_of;
use fencelock_core::{ConnectError, RegisteredNode};

/// Registers the servers of a `redlock://` URL, or of a `redis://` URL with `quarantine=on`, as this set: initially, and
/// after each change of the list or of `max_ttl=`.
///
/// Every server stores its set. A new, restarted or flushed server starts its quarantine, unless
/// `trust_empty` asserts that no server has lost data: that is true only if no lock was ever acquired from this
/// set, or all of them have ended. Repeating the call changes nothing.
///
/// # Errors
/// [`ConnectError::Url`] for a backend without a quarantine. [`ConnectError::Unknown`] if a server does not answer; then
/// nothing was written. If one fails after that, the cause reports it, and the call can be repeated.
///
/// # Cancel safety
/// Some servers may be registered and others not; repeating the call is harmless.
pub async fn init(url: &str, trust_empty: bool) -> Result<Vec<RegisteredNode>, ConnectError> {
    scheme_of(url)?.init(url, trust_empty).await
}
