use futures_util::FutureExt;
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;
use tokio::time::Instant;

/// How often a case is played on a machine that is too slow for it.
const TRIES: u32 = 5;

/// What a case panics with that was overtaken by real time, and so says nothing.
struct TooSlow;

/// Plays a scene that says something only if it is over within `bound` of real time, as a hold or a waiter lasts no
/// longer. A failure after that makes [`again_if_too_slow`] begin anew; a failure before is a failure.
pub(crate) async fn in_time<T>(bound: Duration, scene: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    match AssertUnwindSafe(scene).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(failure) if begun.elapsed() < bound => resume_unwind(failure),
        Err(_) => resume_unwind(Box::new(TooSlow)),
    }
}

/// Plays a case until it is in time.
///
/// # Panics
/// As the case does, or if it never was in time.
pub(crate) async fn again_if_too_slow<Played: Future<Output = ()>>(case: impl Fn() -> Played) {
    for _ in 0..TRIES {
        match AssertUnwindSafe(case()).catch_unwind().await {
            Ok(()) => return,
            Err(failure) if was_too_slow(&*failure) => {}
            Err(failure) => resume_unwind(failure),
        }
    }
    panic!("this machine was too slow for it, {TRIES} times");
}

fn was_too_slow(failure: &(dyn Any + Send)) -> bool {
    failure.is::<TooSlow>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::words;
    use std::cell::Cell;

    fn play(case: impl Future<Output = ()>) -> Option<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let failure = runtime.block_on(AssertUnwindSafe(case).catch_unwind()).err()?;
        Some(words(&*failure))
    }

    #[test]
    fn a_failure_in_time_is_a_failure_at_once() {
        let played = Cell::new(0);
        let failure = play(again_if_too_slow(async || {
            played.set(played.get() + 1);
            in_time(Duration::from_secs(60), async { panic!("wrong") }).await;
        }));
        assert_eq!((failure.as_deref(), played.get()), (Some("wrong"), 1));
    }

    #[test]
    fn a_failure_too_late_is_played_again_until_it_succeeds() {
        let played = Cell::new(0);
        let failure = play(again_if_too_slow(async || {
            played.set(played.get() + 1);
            in_time(Duration::ZERO, async { assert_eq!(played.get(), 3) }).await;
        }));
        assert_eq!((failure, played.get()), (None, 3));
    }

    #[test]
    fn a_failure_that_is_always_too_late_fails_in_the_end() {
        let failure = play(again_if_too_slow(async || in_time(Duration::ZERO, async { panic!("wrong") }).await));
        assert!(failure.unwrap().contains("too slow"));
    }

    #[test]
    fn a_success_too_late_is_a_success() {
        assert_eq!(play(again_if_too_slow(async || in_time(Duration::ZERO, async {}).await)), None);
    }
}
