use std::fmt;

/// A time of the wall clock, in microseconds since 1970, as `2026-11-22T09:00:00Z`. Exhaustive: the form has no options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc(
    /// The time.
    pub u64,
);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000_000;
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if f.precision().is_some() {
            write!(f, ".{:06}", self.0 % 1_000_000)?;
        }
        f.write_str("Z")
    }
}

impl Utc {
    /// Reads `2026-11-25T08:32:30Z` and `2026-11-25T08:32:30.000001Z`; `None` for what is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
        let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
        // A year begins with March, so that the leap day is its last.
        let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
        let days = 365 * year + year / 4 - year / 100 + year / 400 + (month * 306 + 5) / 10 + day;
        let seconds =
            days.checked_sub(719_469)? * 86_400 + digits(11, 13)? * 3600 + digits(14, 16)? * 60 + digits(17, 19)?;
        let micros = match text.get(19..)?.strip_suffix('Z')? {
            "" => 0,
            fraction => format!("{:0<6.6}", fraction.strip_prefix('.')?).parse().ok()?,
        };
        Some(Self(seconds * 1_000_000 + micros))
    }
}

/// The date of a day since 1970-01-01. Years begin in March here, so that the leap day is the last one.
///
/// Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_in_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_795_338_000, "2026-11-22T09:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Utc(seconds * 1_000_000).to_string(), text);
            assert_eq!(Utc::parse(text), Some(Utc(seconds * 1_000_000)));
            let precise = text.replace('Z', ".000007Z");
            assert_eq!(format!("{:.6}", Utc(seconds * 1_000_000 + 7)), precise);
            assert_eq!(Utc::parse(&precise), Some(Utc(seconds * 1_000_000 + 7)));
        }
    }

    #[test]
    fn a_time_is_read_to_the_microsecond() {
        assert_eq!(Utc::parse("1970-01-01T00:00:01.5Z"), Some(Utc(1_500_000)));
        assert_eq!(Utc::parse("1970-01-01T00:00:01.123456789Z"), Some(Utc(1_123_456)));
        for text in
            ["", "now", "2026-11-26", "2026-11-26T10:00:00", "2026-11-26T10:00:00+01:00", "2026-xx-26T10:00:00Z"]
        {
            assert_eq!(Utc::parse(text), None, "{text}");
        }
    }
}
