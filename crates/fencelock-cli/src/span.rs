//! Durations in arguments: `5`, `0.25`, `90s`, `1h30m`.

use std::time::Duration;

/// Parses a duration: numbers with an optional fraction, each with a unit of ms, s, m, h or d. A number alone is seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is not a duration; write 5, 0.25, 500ms, 90s, 2m or 1h30m");
    if let Some(seconds) = number(text) {
        return span(seconds, 1.0).ok_or_else(invalid);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let (count, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let part = number(count).zip(seconds_of(unit)).and_then(|(count, unit)| span(count, unit));
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(invalid)?;
        rest = tail;
    }
    if text.is_empty() { Err(invalid()) } else { Ok(total) }
}

/// Only digits and a point: the parser of `f64` would also accept `inf`, `nan`, `1e9` and `-1`.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && text.bytes().any(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn seconds_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    })
}

fn span(count: f64, unit: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(count * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_fractions_and_units_are_read() {
        for (text, ms) in [
            ("0", 0),
            ("5", 5_000),
            ("0.25", 250),
            (".5", 500),
            ("500ms", 500),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1.5h", 5_400_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_by_value() {
        for text in ["", " ", "-1", "+1", "nan", "inf", "1e9", "5x", "s", "1m5", "1..5", "5 s", "9999999999999999999d"]
        {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
