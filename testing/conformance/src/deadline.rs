use futures_util::FutureExt;
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;
use tokio::time::Instant;

/// The number of attempts on a machine that is too slow.
const TRIES: u32 = 40;
/// The pause before a further attempt grows by this: whatever keeps the machine busy may end meanwhile.
const PAUSE: Duration = Duration::from_millis(25);

/// The panic of a case that took too much real time, so that its result is invalid.
struct TooSlow;

/// Runs a scene whose result is valid only within `bound` of real time, because no hold or waiter lasts
/// longer. A later failure makes [`again_if_too_slow`] repeat the case; an earlier one is a failure.
pub(crate) async fn in_time<T>(bound: Duration, scene: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    match AssertUnwindSafe(scene).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(failure) if begun.elapsed() < bound => resume_unwind(failure),
        Err(_) => resume_unwind(Box::new(TooSlow)),
    }
}

/// Repeats a case until it ends in time.
///
/// # Panics
/// If the case panics, or never ends in time.
pub(crate) async fn again_if_too_slow<Played: Future<Output = ()>>(case: impl Fn() -> Played) {
    for tried in 0..TRIES {
        tokio::time::sleep(PAUSE * tried).await;
        match AssertUnwindSafe(case()).catch_unwind().await {
            Ok(()) => return,
            // The panics were reported already.
            Err(failure) if was_too_slow(&*failure) => {
                eprintln!("this machine was too slow for the case: it is repeated");
            }
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
    fn a_late_failure_repeats_the_case_until_it_succeeds() {
        let played = Cell::new(0);
        let failure = play(again_if_too_slow(async || {
            played.set(played.get() + 1);
            in_time(Duration::ZERO, async { assert_eq!(played.get(), 3) }).await;
        }));
        assert_eq!((failure, played.get()), (None, 3));
    }

    #[test]
    fn a_case_that_is_always_late_fails() {
        let always_late = async {
            tokio::time::pause();
            again_if_too_slow(async || in_time(Duration::ZERO, async { panic!("wrong") }).await).await;
        };
        assert!(play(always_late).unwrap().contains("too slow"));
    }
}
