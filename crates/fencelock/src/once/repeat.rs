use crate::driver::ClientInner;
use crate::error::{Error, unconfirmed};
use crate::held::Held;
use fencelock_core::Unknown;
use std::time::Duration;

/// While the lock is held, a request without a reply is repeated after this pause, for about this time.
const PAUSE: Duration = Duration::from_millis(100);
const RETRY_LIMIT: Duration = Duration::from_secs(5);

/// Sends a request until there is a reply, for as long as the lock is held.
pub(super) async fn while_held<T, F: Future<Output = Result<T, Unknown>>>(
    client: &ClientInner,
    held: &Held,
    mut request: impl FnMut() -> F,
) -> Result<T, Error> {
    let (begun, mut attempts) = (client.clock.now(), 0);
    loop {
        attempts += 1;
        let cause = tokio::select! {
            biased;
            reason = held.lost() => return Err(Error::lost(held.key().clone(), reason)),
            reply = request() => match reply {
                Ok(reply) => return Ok(reply),
                Err(cause) => cause,
            },
        };
        let waited = client.clock.now().since(begun);
        if cause.is_permanent() || waited >= RETRY_LIMIT {
            return Err(unconfirmed(held.key(), cause, waited, attempts));
        }
        tracing::debug!(key = %held.key(), %cause, "no reply about the completion, trying again");
        tokio::time::sleep(PAUSE).await;
    }
}
