use crate::connect::{ConnectError, unknown_scheme};
use crate::quorum::node_urls;
use crate::redis::{Enlisted, Role, Target, enlist};
use fencelock_core::Invalid;

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
pub async fn init(url: &str, trust_empty: bool) -> Result<Vec<Enlisted>, ConnectError> {
    let (scheme, _) = url.split_once(':').ok_or_else(|| unknown_scheme(url))?;
    match scheme {
        "redlock" | "redlock+tls" => enlist(Role::Member, &node_urls(url)?, trust_empty).await,
        "redis" | "rediss" if Target::parse(url)?.guard.is_some() => {
            enlist(Role::Alone, &[url.to_owned()], trust_empty).await
        }
        "redis" | "rediss" => Err(Invalid::new(
            "this Redis has no quarantine, so there is nothing to set up: say quarantine=on in its URL, if you want one",
        )
        .into()),
        "memory" | "file" => Err(Invalid::new(format!(
            "{scheme}: forgets no lock while anybody holds one, so there is nothing to set up: init is for redlock:// and for \
             redis:// with quarantine=on"
        ))
        .into()),
        _ => Err(unknown_scheme(scheme).into()),
    }
}
