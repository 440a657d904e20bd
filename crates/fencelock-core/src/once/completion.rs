use crate::{FencingToken, Owner};

/// Says that the work of a key is done until the end of a window.
///
/// A backend keeps at most one for each key, next to the lock, and replaces it only by one that [supersedes](Self::supersedes) it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Completion {
    /// The end of the window, in microseconds since 1970 by the clock of the backend.
    pub until_micros: u64,
    /// The fencing token of the run.
    pub token: FencingToken,
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
    /// This completion, or one that supersedes it, is stored.
    Written,
    /// The holder does not hold the key. Nothing was changed.
    NotHeld,
}

/// The reply to the removal of a completion. Exhaustive for the same reason as [`crate::Acquire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearCompletion {
    /// It was removed.
    Cleared,
    /// There is none.
    Absent,
    /// There is another one. Nothing was changed.
    Changed,
}

/// The format of [`Completion::to_wire`].
const VERSION: &str = "1";

impl Completion {
    /// The longest text form.
    pub const MAX_BYTES: usize = 300;

    /// How long a backend keeps a completion after the end of its window. If the clock of the backend is set back by less, a
    /// window that is done stays done.
    pub const KEPT: std::time::Duration = std::time::Duration::from_secs(3600);

    /// The completion of a window that ends at `until_micros`, by the run of `owner` with this token.
    pub const fn new(until_micros: u64, token: FencingToken, owner: Owner) -> Self {
        Self { until_micros, token, owner }
    }

    /// `<version> <until, us> <token> <owner>`.
    pub fn to_wire(&self) -> String {
        let Self { until_micros, token, owner } = self;
        format!("{VERSION} {until_micros} {token} {}", owner.as_str())
    }

    /// Parses the text form; `None` for any other text, such as that of a later version.
    pub fn from_wire(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        if text.len() > Self::MAX_BYTES || parts.next() != Some(VERSION) {
            return None;
        }
        let (until, token, owner) = (number(parts.next()?)?, number(parts.next()?)?, parts.next()?);
        let owner = Owner::from_text(owner);
        Some(Self { until_micros: until, token: FencingToken::new(token).ok()?, owner })
    }

    /// Whether the work is done at this time. A completion of a later window counts: the clock was set back, or another client uses
    /// longer windows.
    pub const fn covers(&self, now_micros: u64) -> bool {
        now_micros < self.until_micros
    }

    /// Whether it replaces the other one: it ends later, or it ends at the same time and belongs to a later run.
    pub fn supersedes(&self, other: &Self) -> bool {
        (self.until_micros, self.token) > (other.until_micros, other.token)
    }
}

/// A decimal number without a sign and leading zeros, as the scripts compare it.
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
        Completion { until_micros: until, token: FencingToken::new(token).unwrap(), owner }
    }

    #[test]
    fn the_text_form_is_versioned_and_reads_back() {
        let text = completion(1_780_000_000_000_000, 7).to_wire();
        assert_eq!(text, "1 1780000000000000 7 web-1:42 nightly job");
        assert_eq!(Completion::from_wire(&text), Some(completion(1_780_000_000_000_000, 7)));
    }

    #[test]
    fn other_texts_are_not_read() {
        for text in [
            "",
            "1",
            "2 1780000000000000 7 web-1:42",
            "1 1780000000000000 7",
            "1 1780000000000000 0 a",
            "1 -5 7 a",
            "1 +5 7 a",
            "1 07 7 a",
            "1 5e3 7 a",
            "1  5 7 a",
            "1 99999999999999999 7 a",
            "done",
        ] {
            assert_eq!(Completion::from_wire(text), None, "{text:?}");
        }
        assert_eq!(Completion::from_wire(&format!("1 5 7 {}", "x".repeat(300))), None);
    }

    #[test]
    fn the_longest_owner_fits() {
        let owner = Owner::from_text(&"x".repeat(900));
        let text = Completion { owner, ..completion(FencingToken::MAX, FencingToken::MAX) }.to_wire();
        assert!(text.len() <= Completion::MAX_BYTES && Completion::from_wire(&text).is_some(), "{}", text.len());
    }

    #[test]
    fn the_later_end_wins_and_then_the_later_run() {
        assert!(completion(9, 1).supersedes(&completion(8, 5)) && !completion(8, 5).supersedes(&completion(9, 1)));
        assert!(completion(9, 2).supersedes(&completion(9, 1)) && !completion(9, 1).supersedes(&completion(9, 1)));
    }

    #[test]
    fn the_work_is_done_until_the_end() {
        assert!(completion(9, 1).covers(8) && !completion(9, 1).covers(9));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_what_is_read_reads_back(text in "(1 )?[0-9 ]{0,20}\\PC{0,20}") {
            if let Some(read) = Completion::from_wire(&text) {
                prop_assert_eq!(Completion::from_wire(&read.to_wire()), Some(read));
            }
        }
    }
}
