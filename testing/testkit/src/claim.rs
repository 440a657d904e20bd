use fencelock_core::{Backend, Claim, Holder, HolderId, Intent, Key, Owner, Ttl};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A claim with `Intent::Try` by a holder that no other claim of this process has.
///
/// # Panics
/// If the key or the TTL is invalid.
pub fn claim(key: &str, ttl: Duration) -> Claim {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = HolderId::from_bytes(u128::from(NEXT.fetch_add(1, Ordering::SeqCst)).to_be_bytes());
    let holder = Holder { id, owner: Owner::from_text("test:1") };
    Claim::new(Key::new(key).expect("a valid key"), holder, Ttl::new(ttl).expect("a valid TTL"), Intent::Try)
}

/// Releases it. A release that was sent on a connection that did not answer has no certain result, so it is repeated.
///
/// # Panics
/// If there is none for a minute, or the reason does not pass.
pub async fn release_surely(backend: &Arc<dyn Backend>, claim: &Claim) {
    let begun = tokio::time::Instant::now();
    while let Err(unknown) = backend.release(&claim.key, &claim.holder.id).await {
        assert!(!unknown.is_permanent() && begun.elapsed() < Duration::from_secs(60), "{unknown}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
