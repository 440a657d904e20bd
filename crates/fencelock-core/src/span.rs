use std::fmt;
use std::time::Duration;

/// A span as people write it: `85 ms`, `4.2 s`, `3 min 10 s`, `2 h 5 min`, `2 d`. Never more than its two largest units.
/// Exhaustive: the form has no options.
#[derive(Debug, Clone, Copy)]
pub struct Span(
    /// The span.
    pub Duration,
);

/// Units below a minute are a matter of fractions.
const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];

impl Span {
    /// In seconds if its two largest units leave something out, for the refusal of a span that is slightly too long.
    pub(crate) fn exact(self) -> String {
        let seconds = self.0.as_secs();
        match UNITS.windows(2).find(|units| seconds >= units[0].0) {
            Some(units) if !seconds.is_multiple_of(units[1].0) => format!("{seconds} s"),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.as_millis().saturating_add(50) / 100;
        if self.0.is_zero() {
            return f.write_str("0 s");
        }
        if self.0 < Duration::from_millis(1) {
            return f.write_str("less than 1 ms");
        }
        if self.0 < Duration::from_secs(1) {
            return write!(f, "{} ms", self.0.as_millis());
        }
        if tenths < 600 {
            return match (tenths / 10, tenths % 10) {
                (seconds, 0) => write!(f, "{seconds} s"),
                (seconds, tenth) => write!(f, "{seconds}.{tenth} s"),
            };
        }
        let seconds = self.0.as_secs().max(60);
        let at = UNITS.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(UNITS.len() - 1);
        let (unit, name) = UNITS[at];
        write!(f, "{} {name}", seconds / unit)?;
        match UNITS.get(at + 1).map(|(next, name)| (seconds % unit / next, name)) {
            Some((count @ 1.., name)) => write!(f, " {count} {name}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_at_most_two_units() {
        for (millis, text) in [
            (0, "0 s"),
            (85, "85 ms"),
            (999, "999 ms"),
            (1000, "1 s"),
            (4240, "4.2 s"),
            (29_500, "29.5 s"),
            (59_960, "1 min"),
            (60_000, "1 min"),
            (190_000, "3 min 10 s"),
            (3_600_000, "1 h"),
            (3_661_000, "1 h 1 min"),
            (172_800_000, "2 d"),
            (400 * 86_400_000 + 3_600_000, "400 d 1 h"),
        ] {
            assert_eq!(Span(Duration::from_millis(millis)).to_string(), text);
        }
        assert_eq!(Span(Duration::from_nanos(1)).to_string(), "less than 1 ms");
        assert!(Span(Duration::MAX).to_string().ends_with(" h"));
    }

    #[test]
    fn a_refused_span_is_not_rounded_to_the_limit() {
        let exact = |millis| Span(Duration::from_millis(millis)).exact();
        assert_eq!([exact(500), exact(86_400_000), exact(90_000_000)], ["500 ms", "1 d", "1 d 1 h"]);
        assert_eq!([exact(86_401_000), exact(400 * 86_400_000 + 1000)], ["86401 s", "34560001 s"]);
    }
}
