use crate::Invalid;
use std::fmt;

/// The mode of a claim.
///
/// [`Capabilities::modes`](crate::Capabilities::modes) lists the modes of a backend. A client sends no claim in another mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// One holder. Every backend supports this mode.
    #[default]
    Exclusive,
    /// Any number of holders with this mode.
    Shared,
    /// A semaphore: each holder acquires `weight` of `limit` permits. Created by [`Mode::permits`].
    #[non_exhaustive]
    Permits {
        /// The number of permits of this claim: 1 to `limit`.
        weight: u32,
        /// The total number of permits: 1 to [`Mode::MOST_PERMITS`].
        limit: u32,
    },
}

impl Mode {
    /// The greatest limit of a semaphore.
    pub const MOST_PERMITS: u32 = 1_000_000;

    /// `weight` of `limit` permits.
    ///
    /// # Errors
    /// [`Invalid`] if `limit` is not within 1 to [`Mode::MOST_PERMITS`], or `weight` not within 1 to `limit`.
    pub fn permits(weight: u32, limit: u32) -> Result<Self, Invalid> {
        let most = Self::MOST_PERMITS;
        if !(1..=most).contains(&limit) {
            return Err(Invalid::new(format!("a semaphore has 1 to {most} permits, not {limit}")));
        }
        if !(1..=limit).contains(&weight) {
            return Err(Invalid::new(format!(
                "a claim takes 1 to {limit} permits of a semaphore that has {limit}, not {weight}"
            )));
        }
        Ok(Self::Permits { weight, limit })
    }

    /// The same permits of a semaphore that was resized to `limit`. They may be more than the limit then. Other modes are unchanged.
    #[must_use]
    pub const fn resized(self, limit: u32) -> Self {
        match self {
            Self::Permits { weight, .. } => Self::Permits { weight, limit },
            mode => mode,
        }
    }

    /// The limit of a semaphore.
    pub const fn limit(self) -> Option<u32> {
        match self {
            Self::Permits { limit, .. } => Some(limit),
            _ => None,
        }
    }

    /// The number of permits of a semaphore; 0 in other modes.
    pub const fn weight(self) -> u32 {
        match self {
            Self::Permits { weight, .. } => weight,
            _ => 0,
        }
    }

    /// The mode of a waiter after its semaphore was resized from `before` to `limit` permits: as many permits of the resized one.
    /// `None` if it wants more than there are now, so that it can never fit. Any other waiter is unchanged.
    pub fn taken_over(self, before: u32, limit: u32) -> Option<Self> {
        match self {
            Self::Permits { limit: wanted, .. } if wanted != before => Some(self),
            Self::Permits { weight, .. } => Self::permits(weight, limit).ok(),
            mode => Some(mode),
        }
    }

    /// Whether holders in these two modes may ever hold a key at the same time, if the permits suffice: shared with shared, and
    /// permits with permits of the same limit.
    pub const fn same_class(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) => true,
            (Self::Permits { limit, .. }, Self::Permits { limit: other, .. }) => limit == other,
            _ => false,
        }
    }

    /// Whether a claim in this mode is refused while a holder or a waiter has the other one, instead of waiting: two classes
    /// are used for one key, and neither of them is exclusive.
    pub const fn conflicts(self, other: Self) -> bool {
        let exclusive = matches!(self, Self::Exclusive) || matches!(other, Self::Exclusive);
        !exclusive && !self.same_class(other)
    }

    /// What to use on a backend without this mode, for messages.
    pub const fn alternative(self) -> &'static str {
        match self {
            Self::Permits { .. } => "use slots, which every backend has, or a backend that has semaphores",
            _ => "acquire an exclusive lock, or use a backend that has shared locks",
        }
    }

    /// What all holders of one class have in common, for messages: `a shared lock`, `a semaphore with 10 permits`.
    pub fn class(self) -> String {
        match self {
            Self::Permits { limit: 1, .. } => "a semaphore with 1 permit".to_owned(),
            Self::Permits { limit, .. } => format!("a semaphore with {limit} permits"),
            mode => mode.to_string(),
        }
    }
}

/// `an exclusive lock`, `a shared lock`, `2 of 10 permits`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("an exclusive lock"),
            Self::Shared => f.write_str("a shared lock"),
            Self::Permits { weight, limit } => write!(f, "{weight} of {limit} permits"),
        }
    }
}

/// The modes that a backend supports in addition to [`Mode::Exclusive`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Modes {
    /// [`Mode::Shared`].
    pub shared: bool,
    /// [`Mode::Permits`].
    pub permits: bool,
    /// Why it does not have the others, to follow in a message: `, because ...`. It may be empty.
    pub because: &'static str,
}

impl Modes {
    /// Whether this mode is among them.
    pub const fn has(self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => true,
            Mode::Shared => self.shared,
            Mode::Permits { .. } => self.permits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_within_their_bounds() {
        for (weight, limit) in [(1, 1), (1, 1_000_000), (1_000_000, 1_000_000), (2, 10)] {
            assert_eq!(Mode::permits(weight, limit), Ok(Mode::Permits { weight, limit }));
        }
        for (weight, limit) in [(0, 1), (1, 0), (0, 0), (2, 1), (1, 1_000_001), (u32::MAX, u32::MAX)] {
            assert!(Mode::permits(weight, limit).is_err(), "{weight} of {limit}");
        }
    }

    #[test]
    fn two_classes_conflict_unless_one_is_exclusive() {
        let permits = |weight, limit| Mode::permits(weight, limit).unwrap();
        let (two, three) = (permits(1, 2), permits(1, 3));
        assert!(Mode::Shared.same_class(Mode::Shared) && two.same_class(permits(2, 2)));
        assert!(
            !two.same_class(three) && !two.same_class(Mode::Shared) && !Mode::Exclusive.same_class(Mode::Exclusive)
        );
        assert!(two.conflicts(three) && two.conflicts(Mode::Shared) && Mode::Shared.conflicts(two));
        assert!(!two.conflicts(Mode::Exclusive) && !Mode::Exclusive.conflicts(Mode::Shared) && !two.conflicts(two));
    }

    #[test]
    fn a_waiter_is_taken_over_if_it_can_ever_fit() {
        let permits = |weight, limit| Mode::permits(weight, limit).unwrap();
        assert_eq!(permits(3, 5).taken_over(5, 9), Some(permits(3, 9)));
        assert_eq!(permits(3, 5).taken_over(5, 3), Some(permits(3, 3)));
        assert_eq!(permits(4, 5).taken_over(5, 3), None);
        for other in [Mode::Exclusive, Mode::Shared, permits(4, 4), permits(1, 4)] {
            assert_eq!(other.taken_over(5, 3), Some(other));
        }
        assert_eq!(permits(4, 5).resized(3), Mode::Permits { weight: 4, limit: 3 }, "a holder stays");
    }

    #[test]
    fn an_error_names_the_value_that_is_wrong() {
        assert!(Mode::permits(1, 1_000_001).unwrap_err().to_string().ends_with("not 1000001"));
        assert!(Mode::permits(11, 10).unwrap_err().to_string().ends_with("has 10, not 11"));
    }

    #[test]
    fn every_backend_has_exclusive_locks_and_no_other_mode_by_default() {
        let none = Modes::default();
        assert!(none.has(Mode::Exclusive) && !none.has(Mode::Shared) && !none.has(Mode::permits(1, 2).unwrap()));
        let shared = Modes { shared: true, ..none };
        assert!(shared.has(Mode::Shared) && !shared.has(Mode::permits(1, 2).unwrap()));
        let permits = Modes { permits: true, ..none };
        assert!(!permits.has(Mode::Shared) && permits.has(Mode::permits(1, 2).unwrap()));
    }
}
