/// What the error of one of several claims means for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimFailure {
    /// Another client holds the key.
    Busy,
    /// The backend did not answer, and may answer a later claim.
    Silent,
    /// The backend grants nothing yet, or was silent for so long that a holder that was reported before may be gone.
    NotServing,
    /// Another claim would fail too.
    Refused,
}

/// What follows the failed try of one of several slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterTry {
    /// The next slot is tried.
    NextSlot,
    /// The other slots may be on the same server. They are tried later, and each claim that waits in a queue is repeated until it is
    /// answered.
    EndPass,
    /// Nothing more is claimed.
    GiveUp,
}

impl ClaimFailure {
    /// Whether the error is a better answer to the caller than an earlier one: at the end of the wait, a holder that was reported
    /// before is better than none.
    pub fn replaces_earlier(self, is_over: bool) -> bool {
        self != Self::Silent || !is_over
    }

    /// What follows, if it was the try of one of several slots.
    pub fn after_try(self, is_over: bool) -> AfterTry {
        match self {
            _ if is_over => AfterTry::GiveUp,
            Self::Busy => AfterTry::NextSlot,
            Self::Silent | Self::NotServing => AfterTry::EndPass,
            Self::Refused => AfterTry::GiveUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ClaimFailure::{Busy, NotServing, Refused, Silent};
    use super::*;

    #[test]
    fn a_holder_that_was_reported_before_is_a_better_answer_than_none_at_the_end() {
        for failure in [Busy, Silent, NotServing, Refused] {
            assert!(failure.replaces_earlier(false), "{failure:?}");
            assert_eq!(failure.replaces_earlier(true), failure != Silent, "{failure:?}");
        }
    }

    #[test]
    fn a_try_without_an_answer_ends_its_pass_and_a_refusal_or_the_end_of_the_wait_ends_all() {
        let after = [Busy, Silent, NotServing, Refused].map(|failure| failure.after_try(false));
        assert_eq!(after, [AfterTry::NextSlot, AfterTry::EndPass, AfterTry::EndPass, AfterTry::GiveUp]);
        assert!([Busy, Silent, NotServing].iter().all(|failure| failure.after_try(true) == AfterTry::GiveUp));
    }
}
