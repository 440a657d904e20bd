use crate::time::micros;
use crate::{Invalid, Span};
use std::time::Duration;

/// Windows of time in which work is done once: 1 s to 400 days.
///
/// Those of [`Window::new`] are aligned to 1970-01-01 00:00 UTC: a window of one day begins at midnight UTC, one of an hour at the
/// full hour, one of seven days on a Thursday. That of [`Window::since_last`] begins with each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    micros: u64,
    /// By how much aligned windows are shifted; `None` if a window begins with each run.
    offset: Option<u64>,
}

/// When a run counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Runs {
    /// When it succeeds: a window has at most one success, and a failure leaves the window open.
    #[default]
    Succeed,
    /// When it starts: a window has at most one start.
    Start,
}

impl Window {
    /// In shorter windows, the difference between two clocks matters more than the window.
    pub const MIN: Duration = Duration::from_secs(1);
    /// A year and a month. Longer ones belong into a database.
    pub const MAX: Duration = Duration::from_secs(400 * 86_400);

    /// Aligned windows.
    ///
    /// # Errors
    /// [`Invalid`] outside [`Window::MIN`] to [`Window::MAX`]; fractions of a microsecond are cut off.
    pub fn new(length: Duration) -> Result<Self, Invalid> {
        if length < Self::MIN || length > Self::MAX {
            return Err(Invalid::new(format!("a window lasts 1 s to 400 days; {} does not", Span(length).exact())));
        }
        Ok(Self { micros: micros(length), offset: Some(0) })
    }

    /// Aligned windows that begin this much later: one of a day with an offset of 90 minutes at 01:30 UTC.
    ///
    /// # Errors
    /// [`Invalid`] if the offset is not shorter than the window, or if windows begin with each run.
    pub fn with_offset(self, offset: Duration) -> Result<Self, Invalid> {
        if self.offset.is_none() {
            return Err(Invalid::new("an offset shifts aligned windows; a minimum interval begins with the last run"));
        }
        if offset >= self.get() {
            let (offset, length) = (Span(offset), Span(self.get()));
            return Err(Invalid::new(format!("an offset is shorter than its window of {length}; {offset} is not")));
        }
        Ok(Self { offset: Some(micros(offset)), ..self })
    }

    /// A window that begins with each run: the next one may begin this much later.
    ///
    /// # Errors
    /// [`Invalid`] as for [`Window::new`].
    pub fn since_last(interval: Duration) -> Result<Self, Invalid> {
        Ok(Self { offset: None, ..Self::new(interval)? })
    }

    /// The length.
    pub const fn get(self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// The first moment of the current window, in microseconds since 1970: a run before it does not count.
    pub const fn begin_of(self, now_micros: u64) -> u64 {
        match self.offset {
            Some(offset) => self.aligned(now_micros, offset).saturating_sub(self.micros - offset),
            None => now_micros.saturating_add(1).saturating_sub(self.micros),
        }
    }

    /// The end of the window of a run that got the lock at this moment, in microseconds since 1970. The next one begins then.
    pub const fn end_of(self, granted_micros: u64) -> u64 {
        match self.offset {
            Some(offset) => self.aligned(granted_micros, offset).saturating_add(offset),
            None => granted_micros.saturating_add(self.micros),
        }
    }

    /// A multiple of the length. Its window ends `offset` after it, and begins a window before that.
    const fn aligned(self, now_micros: u64, offset: u64) -> u64 {
        now_micros.saturating_add(self.micros - offset) / self.micros * self.micros
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

    #[test]
    fn an_offset_is_shorter_than_its_window() {
        let day = Window::new(Duration::from_secs(86_400)).unwrap();
        assert!(
            day.with_offset(Duration::ZERO).unwrap() == day && day.with_offset(Duration::from_secs(86_399)).is_ok()
        );
        let error = day.with_offset(Duration::from_secs(86_400)).unwrap_err().to_string();
        assert_eq!(error, "an offset is shorter than its window of 1 d; 1 d is not");
        assert!(Window::since_last(Duration::from_secs(9)).unwrap().with_offset(Duration::ZERO).is_err());
        assert!(Window::since_last(Duration::ZERO).is_err());
    }

    #[test]
    fn an_interval_begins_with_the_last_run() {
        let interval = Window::since_last(Duration::from_secs(1)).unwrap();
        assert_eq!(interval.end_of(7), 1_000_007);
        assert_eq!((interval.begin_of(1_000_006), interval.begin_of(1_000_007)), (7, 8), "a run at 7 counts, or not");
    }

    proptest! {
        #[test]
        fn a_moment_is_in_its_window(seconds in 1u64..34_560_000, now in 0u64..10_000_000_000_000_000, offset in 0u64..1 << 53) {
            let (length, offset) = (seconds * 1_000_000, offset % (seconds * 1_000_000));
            let window = Window::new(Duration::from_secs(seconds)).unwrap();
            let window = window.with_offset(Duration::from_micros(offset)).unwrap();
            let (begin, end) = (window.begin_of(now), window.end_of(now));
            prop_assert!(begin <= now && now < end && end % length == offset);
            prop_assert!(end - begin == length || begin == 0);
            prop_assert_eq!(window.end_of(begin), end);
        }
    }
}
