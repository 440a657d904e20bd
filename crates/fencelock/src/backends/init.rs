use super::schemes::scheme_of;
use fencelock_core::{ConnectError, RegisteredNode};

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
