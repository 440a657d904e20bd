use crate::{FencingToken, Owner};
use std::time::Duration;

/// The latest success of the work of a key, or its latest start with [`Runs::Start`](super::Runs::Start).
///
/// A backend keeps at most one for each key, next to the lock, and [merges](Self::merge) another one into it. Whether it counts
/// depends on the window of the caller: see [`judge`](super::judge).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Completion {
    /// The latest end of all windows that callers named for it, in microseconds since 1970 by the clock of the backend. It is kept
    /// until [`Completion::KEPT`] after that.
    pub until_micros: u64,
    /// The fencing token of the run.
    pub token: FencingToken,
    /// When the run got the lock, by the same clock.
    pub granted_micros: u64,
    /// The process of the run.
    pub owner: Owner,
}

/// The reply to a read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CompletionRead {
    /// The completion; `None` if there is none.
    pub completion: Option<Completion>,
    /// The time of the backend, in microseconds since 1970.
    pub now_micros: u64,
}

impl CompletionRead {
    /// The reply of a backend at this time.
    pub const fn new(completion: Option<Completion>, now_micros: u64) -> Self {
        Self { completion, now_micros }
    }
}

/// The reply to a write. Exhaustive for the same reason as [`crate::Acquire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCompletion {
    /// It is merged into what is stored.
    Written,
    /// The holder does not hold the key. Nothing was changed.
    NotHeld,
}

impl WriteCompletion {
    /// Whether the run counts. `is_held` is whether its lock was held when the reply arrived.
    pub fn counts(self, is_held: bool) -> bool {
        self == Self::Written && is_held
    }
}

/// The reply to the removal of a completion. Exhaustive for the same reason as [`crate::Acquire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearCompletion {
    /// It was removed.
    Cleared,
    /// There is none.
    Absent,
    /// There is one of a later run. Nothing was changed.
    Changed,
}

/// The format of [`Completion::to_wire`].
const VERSION: &str = "2";

impl Completion {
    /// The longest text form.
    pub const MAX_BYTES: usize = 320;

    /// How long a backend keeps a completion after its end, and how far in the future a success counts. If the clock of the backend
    /// is set back by less, work that is done stays done.
    pub const KEPT: Duration = Duration::from_secs(3600);

    /// The completion of a run of `owner` that got the lock at `granted_micros`, for a window that ends at `until_micros`.
    pub const fn new(until_micros: u64, token: FencingToken, granted_micros: u64, owner: Owner) -> Self {
        Self { until_micros, token, granted_micros, owner }
    }

    /// `2 <until, us> <token> <granted, us> <owner>`.
    pub fn to_wire(&self) -> String {
        let Self { until_micros, token, granted_micros, owner } = self;
        format!("{VERSION} {until_micros} {token} {granted_micros} {}", owner.as_str())
    }

    /// Parses the text form; `None` for any other text, such as that of a later version.
    pub fn from_wire(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, ' ');
        parts.next().filter(|version| *version == VERSION && text.len() <= Self::MAX_BYTES)?;
        let (until_micros, token) = (number(parts.next()?)?, number(parts.next()?)?);
        let granted_micros = number(parts.next()?)?;
        let (token, owner) = (FencingToken::new(token).ok()?, Owner::from_text(parts.next()?));
        Some(Self { until_micros, token, granted_micros, owner })
    }

    /// What is stored at this time after both were written, in any order and however often: the later run, until the later end. So a
    /// window that one caller named is never shortened by the next run. One that lies too far in the future does not count, and its
    /// token may be ahead for as long, so the other one is stored.
    #[must_use]
    pub fn merge(self, other: Self, now_micros: u64) -> Self {
        match (self.is_ahead_of(now_micros), other.is_ahead_of(now_micros)) {
            (true, false) => return other,
            (false, true) => return self,
            (true, true) | (false, false) => {}
        }
        let until_micros = self.until_micros.max(other.until_micros);
        let later = if other.token > self.token { other } else { self };
        Self { until_micros, ..later }
    }

    /// Whether its run lies so far in the future that the clock was ahead when it was written.
    pub(super) fn is_ahead_of(&self, now_micros: u64) -> bool {
        let ahead = self.granted_micros.saturating_sub(now_micros);
        Duration::from_micros(ahead) > Self::KEPT
    }
}

/// A decimal number without a sign and leading zeros, as the scripts compare it: below 10^16, so that sums do not overflow.
fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|digit| digit.is_ascii_digit()) && !text.starts_with('0') && text.len() <= 16;
    if is_plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn completion(until: u64, token: u64) -> Completion {
        let owner = Owner::new("web-1", 42, Some("nightly job")).unwrap();
        Completion::new(until, FencingToken::new(token).unwrap(), 5, owner)
    }

    #[test]
    fn a_write_that_is_refused_or_confirmed_late_does_not_count() {
        assert!(WriteCompletion::Written.counts(true) && !WriteCompletion::Written.counts(false));
        assert!(!WriteCompletion::NotHeld.counts(true));
    }

    #[test]
    fn the_text_form_is_versioned_and_reads_back() {
        let text = completion(1_780_000_000_000_000, 7).to_wire();
        assert_eq!(text, "2 1780000000000000 7 5 web-1:42 nightly job");
        assert_eq!(Completion::from_wire(&text), Some(completion(1_780_000_000_000_000, 7)));
    }

    #[test]
    fn other_texts_are_not_read() {
        for text in [
            "",
            "1",
            "2",
            "3 1780000000000000 7 5 web-1:42",
            "2 1780000000000000 7 web-1:42",
            "2 1780000000000000 7 5",
            "2 5 7 0 a",
            "2 5 7 12345678901234567 a",
            "1 1780000000000000 7 5 web-1:42",
            "2 1780000000000000 0 5 a",
            "2 -5 7 5 a",
            "2 +5 7 5 a",
            "2 07 7 5 a",
            "2 5e3 7 5 a",
            "2  5 7 5 a",
            "2 99999999999999999 7 5 a",
            "done",
        ] {
            assert_eq!(Completion::from_wire(text), None, "{text:?}");
        }
        assert_eq!(Completion::from_wire(&format!("2 5 7 5 {}", "x".repeat(320))), None);
    }

    #[test]
    fn the_longest_owner_fits() {
        let owner = Owner::from_text(&"x".repeat(900));
        let most = FencingToken::MAX;
        let text = Completion::new(most, FencingToken::new(most).unwrap(), most, owner).to_wire();
        assert!(text.len() <= Completion::MAX_BYTES && Completion::from_wire(&text).is_some(), "{}", text.len());
    }

    #[test]
    fn the_later_run_is_kept_until_the_later_end() {
        let (early, late) = (completion(9, 1), Completion { granted_micros: 6, ..completion(8, 2) });
        let both = Completion { until_micros: 9, ..late.clone() };
        assert_eq!((early.clone().merge(late.clone(), 7), late.merge(early, 7)), (both.clone(), both));
    }

    #[test]
    fn a_run_in_the_future_gives_way_whatever_its_token_is() {
        let hour = 3_600_000_000;
        let (wrong, right) = (Completion { granted_micros: 8 + hour, ..completion(9 + hour, 2) }, completion(9, 1));
        assert_eq!(wrong.clone().merge(right.clone(), 7), right);
        assert_eq!(right.clone().merge(wrong.clone(), 7), right);
        assert_eq!(right.merge(wrong.clone(), 8), wrong, "an hour counts");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_what_is_read_reads_back(text in "(2 )?[0-9 ]{0,20}\\PC{0,20}") {
            if let Some(read) = Completion::from_wire(&text) {
                prop_assert_eq!(Completion::from_wire(&read.to_wire()), Some(read));
            }
        }
    }
}
