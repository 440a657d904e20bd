use crate::{Invalid, Span};
use std::time::Duration;

/// The length of windows of time: 1 s to 400 days. They are aligned to 1970-01-01 00:00 UTC.
///
/// A window of one day begins at midnight UTC, one of an hour at the full hour, one of seven days on a Thursday.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    micros: u64,
}

impl Window {
    /// In shorter windows, the difference between two clocks matters more than the window.
    pub const MIN: Duration = Duration::from_secs(1);
    /// A year and a month. Longer ones belong into a database.
    pub const MAX: Duration = Duration::from_secs(400 * 86_400);

    /// # Errors
    /// [`Invalid`] outside [`Window::MIN`] to [`Window::MAX`]; fractions of a microsecond are cut off.
    pub fn new(length: Duration) -> Result<Self, Invalid> {
        if length < Self::MIN || length > Self::MAX {
            return Err(Invalid::new(format!("a window lasts 1 s to 400 days; {} does not", Span(length).exact())));
        }
        Ok(Self { micros: u64::try_from(length.as_micros()).unwrap_or(u64::MAX) })
    }

    /// The length.
    pub const fn get(self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// The end of the window of this moment, in microseconds since 1970. The next window begins then.
    pub const fn end_of(self, now_micros: u64) -> u64 {
        (now_micros / self.micros).saturating_add(1).saturating_mul(self.micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_window_lasts_a_second_to_400_days() {
        assert!(Window::new(Window::MIN).is_ok() && Window::new(Window::MAX).is_ok());
        for length in [Duration::ZERO, Duration::from_millis(999), Window::MAX + Duration::from_nanos(1), Duration::MAX]
        {
            let error = Window::new(length).unwrap_err().to_string();
            assert!(error.starts_with("a window lasts 1 s to 400 days; "), "{error}");
        }
    }

    #[test]
    fn a_window_ends_where_the_next_one_begins() {
        let hour = Window::new(Duration::from_secs(3600)).unwrap();
        assert_eq!(hour.end_of(0), 3_600_000_000);
        assert_eq!(hour.end_of(3_599_999_999), 3_600_000_000);
        assert_eq!(hour.end_of(3_600_000_000), 7_200_000_000);
    }

    proptest! {
        #[test]
        fn a_moment_is_in_its_window(seconds in 1u64..34_560_000, now in 0u64..1 << 53) {
            let window = Window::new(Duration::from_secs(seconds)).unwrap();
            let end = window.end_of(now);
            prop_assert!(now < end && end - now <= seconds * 1_000_000 && end.is_multiple_of(seconds * 1_000_000));
        }
    }
}
