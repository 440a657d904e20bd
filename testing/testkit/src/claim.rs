use fencelock_core::{Claim, Holder, HolderId, Intent, Key, Owner, Ttl};
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
