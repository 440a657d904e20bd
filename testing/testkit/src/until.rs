use std::thread::sleep;
use std::time::Duration;
use tokio::time::Instant;

/// Asks until it is done.
///
/// # Panics
/// If this takes longer than `limit`.
#[track_caller]
pub fn until(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < limit, "not in time: {what}");
        sleep(Duration::from_millis(20));
    }
}
