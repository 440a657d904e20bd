use super::{Completion, CompletionRead, Utc, Window};
use crate::Span;
use std::fmt;
use std::time::Duration;

/// A success that counts for a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CountedSuccess {
    /// The success.
    pub completion: Completion,
    /// When the next window of the caller begins, in microseconds since 1970 by the clock of the backend.
    pub until_micros: u64,
}

impl CountedSuccess {
    /// A success that counts until this time.
    pub const fn new(completion: Completion, until_micros: u64) -> Self {
        Self { completion, until_micros }
    }

    /// Whether a backend that stores the completion would forget it before the window of the caller ends.
    pub const fn outlasts_its_completion(&self) -> bool {
        self.until_micros > self.completion.until_micros
    }

    /// The completion as it must be stored, so that this caller finds it until its window ends.
    pub fn stored(&self) -> Completion {
        let until_micros = self.until_micros.max(self.completion.until_micros);
        Completion { until_micros, ..self.completion.clone() }
    }
}

/// What a stored completion means for a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judgement {
    /// The success; `None` if the work is not done.
    pub done: Option<CountedSuccess>,
    /// What its users should know.
    pub doubt: Option<Doubt>,
}

/// Why a completion may not mean what its users expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// It lies in the future by this much, and does not count.
    Future(Duration),
    /// It counts, and is older than 90 % of this window.
    Old {
        /// Its age.
        age: Duration,
        /// The length of the window.
        window: Duration,
    },
    /// It is kept for a window that ends at this time, which no window of the caller does.
    OtherWindow(u64),
}

/// Decides whether a completion counts for a caller with this window; without a window, for one with the windows that were named for it.
///
/// - A success counts if it lies in the current window of the caller. The window that its run had does not matter.
/// - One that lies in the future counts up to [`Completion::KEPT`]: the clock was set back. If it is further away, the clock was wrong
///   when it was written, and it would block the work until then.
pub fn judge(window: Option<Window>, read: &CompletionRead) -> Judgement {
    let none = Judgement { done: None, doubt: None };
    let (now, Some(completion)) = (read.now_micros, &read.completion) else { return none };
    let done = |until_micros| Some(CountedSuccess { completion: completion.clone(), until_micros });
    let until = completion.until_micros;
    if completion.is_ahead_of(now) {
        let ahead = completion.granted_micros.saturating_sub(now);
        return Judgement { doubt: Some(Doubt::Future(Duration::from_micros(ahead))), ..none };
    }
    let granted = completion.granted_micros;
    let Some(window) = window else {
        return Judgement { done: if now < until { done(until) } else { None }, doubt: None };
    };
    let (counts, end) = (granted >= window.begin_of(now), window.end_of(granted));
    let (age, length) = (Duration::from_micros(now.saturating_sub(granted)), window.get());
    let doubt = if counts && age > length / 10 * 9 {
        Some(Doubt::Old { age, window: length })
    } else if until != end && now < until {
        Some(Doubt::OtherWindow(until))
    } else {
        None
    };
    Judgement { done: if counts { done(end) } else { None }, doubt }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Future(ahead) => {
                let ahead = Span(*ahead);
                write!(
                    f,
                    "the last success is ignored, because it lies {ahead} in the future: the clock was ahead then, or is behind now"
                )
            }
            Self::Old { age, window } => write!(
                f,
                "the success that counts is {} old, in a window of {}: if each call should run, let the window begin at another time \
                 (offset), or use a minimum interval",
                Span(*age),
                Span(*window)
            ),
            Self::OtherWindow(until) => write!(
                f,
                "the last success is kept for a window until {}, which this caller does not use: does another caller use other windows, \
                 or was the clock set back?",
                Utc(*until)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FencingToken, Owner};

    const MINUTE: u64 = 60_000_000;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    /// 100 days after 1970.
    const TODAY: u64 = 100 * DAY;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn hour() -> Window {
        Window::new(micros(HOUR)).unwrap()
    }

    fn day() -> Window {
        Window::new(micros(DAY)).unwrap()
    }

    /// Days that begin at 01:30.
    fn shifted() -> Window {
        day().with_offset(micros(90 * MINUTE)).unwrap()
    }

    fn interval() -> Window {
        Window::since_last(micros(20 * HOUR)).unwrap()
    }

    fn completion(granted: u64, until: u64) -> Completion {
        Completion::new(until, FencingToken::new(7).unwrap(), granted, Owner::from_text("web-1:42"))
    }

    /// Until when the work is done, if it is, and the doubt.
    fn judged(window: Option<Window>, completion: Completion, now: u64) -> (Option<u64>, Option<Doubt>) {
        let judgement = judge(window, &CompletionRead::new(Some(completion), now));
        (judgement.done.map(|done| done.until_micros), judgement.doubt)
    }

    #[test]
    fn nothing_is_done_without_a_completion() {
        assert_eq!(judge(Some(day()), &CompletionRead::new(None, TODAY)), Judgement { done: None, doubt: None });
    }

    #[test]
    fn a_success_counts_in_the_current_window_of_the_caller() {
        let late = TODAY + 10 * HOUR;
        for (window, granted, now, until) in [
            (day(), TODAY, TODAY + 20 * HOUR, Some(TODAY + DAY)),
            (day(), TODAY - 1, TODAY, None),
            (hour(), late, late + HOUR - 6 * MINUTE, Some(late + HOUR)),
            (hour(), late, late + HOUR, None),
            (shifted(), TODAY + 89 * MINUTE, TODAY + 90 * MINUTE, None),
            (shifted(), TODAY + 90 * MINUTE, TODAY + 23 * HOUR, Some(TODAY + DAY + 90 * MINUTE)),
            (interval(), late, late + 18 * HOUR, Some(late + 20 * HOUR)),
            (interval(), late, late + 20 * HOUR, None),
        ] {
            let stored = completion(granted, window.end_of(granted));
            assert_eq!(judged(Some(window), stored, now), (until, None), "{window:?} {granted} {now}");
        }
    }

    #[test]
    fn the_window_of_the_run_does_not_matter_and_is_warned_of() {
        let (ran, now) = (TODAY + 8 * HOUR, TODAY + 12 * HOUR);
        let by_day = completion(ran, TODAY + DAY);
        assert_eq!(judged(Some(hour()), by_day.clone(), now), (None, Some(Doubt::OtherWindow(TODAY + DAY))));
        let by_hour = completion(ran, ran + HOUR);
        assert_eq!(judged(Some(day()), by_hour.clone(), ran + MINUTE).1, Some(Doubt::OtherWindow(ran + HOUR)));
        assert_eq!(judged(Some(day()), by_hour, now), (Some(TODAY + DAY), None), "that window is over");
        assert_eq!(judged(Some(shifted()), by_day, now).1, Some(Doubt::OtherWindow(TODAY + DAY)));
    }

    #[test]
    fn a_success_in_the_future_counts_for_an_hour() {
        let (granted, until) = (TODAY + HOUR, TODAY + DAY);
        let stored = || completion(granted, until);
        assert_eq!(judged(Some(day()), stored(), granted - HOUR), (Some(until), None));
        assert_eq!(judged(Some(day()), stored(), TODAY - 1), (None, Some(Doubt::Future(micros(HOUR + 1)))));
        assert_eq!(judged(None, stored(), TODAY - 1), (None, Some(Doubt::Future(micros(HOUR + 1)))));
        assert_eq!(judged(Some(hour()), completion(9_999_999_999_999_999, 1), TODAY).0, None, "far away");
    }

    #[test]
    fn a_success_that_is_nearly_a_window_old_is_warned_of() {
        for window in [day(), shifted(), interval()] {
            let ran = TODAY + 90 * MINUTE;
            let stored = || completion(ran, window.end_of(ran));
            let length = window.get();
            let old = u64::try_from((length / 10 * 9).as_micros()).unwrap();
            assert_eq!(judged(Some(window), stored(), ran + old).1, None);
            let doubt = Doubt::Old { age: micros(old + 1), window: length };
            assert_eq!(judged(Some(window), stored(), ran + old + 1).1, Some(doubt), "{window:?}");
        }
        // Cron at midnight, on a host whose clock is ahead.
        let early = judged(Some(day()), completion(TODAY + MINUTE, TODAY + DAY), TODAY + DAY - 200_000);
        assert!(matches!(early, (Some(_), Some(Doubt::Old { .. }))), "{early:?}");
    }

    #[test]
    fn the_hour_that_daylight_saving_time_repeats_has_one_run() {
        // 02:00 in Berlin in October: at 00:00 UTC, and again an hour later.
        for window in [day(), interval(), day().with_offset(micros(12 * HOUR)).unwrap()] {
            let (until, _) = judged(Some(window), completion(TODAY, window.end_of(TODAY)), TODAY + HOUR);
            assert!(until.is_some(), "{window:?}");
        }
    }

    #[test]
    fn without_a_window_those_that_were_named_count() {
        let stored = || completion(TODAY, TODAY + DAY);
        assert_eq!(judged(None, stored(), TODAY + DAY - 1), (Some(TODAY + DAY), None));
        assert_eq!(judged(None, stored(), TODAY + DAY), (None, None));
    }
}
