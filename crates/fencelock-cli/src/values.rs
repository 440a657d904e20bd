//! Values of arguments, and the arguments of every command that waits for a lock.

use crate::text;
use crate::text::plain;
use clap::Args;
use clap::builder::{StringValueParser, TypedValueParser};
use fencelock::backends::scheme_of;
use std::time::Duration;

/// A duration, as `5`, `0.25`, `90s`, `1h30m`: numbers with an optional fraction, each with a unit of ms, s, m, h or d. A number alone is seconds.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is not a duration; write 5, 0.25, 500ms, 90s, 2m or 1h30m");
    if let Some(seconds) = number(text) {
        return units(seconds, 1.0).ok_or_else(invalid);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let (count, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let part = number(count).zip(seconds_of(unit)).and_then(|(count, unit)| units(count, unit));
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

fn units(count: f64, unit: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(count * unit).ok()
}

/// A KEY. A URL in its place lacks its option, and the lock would be a local one of that name.
pub(crate) fn key(text: &str) -> Result<String, String> {
    if text.contains("://") && scheme_of(text).is_ok() {
        return Err("this is a URL, and a KEY was expected; to choose the backend: --url URL".to_owned());
    }
    Ok(text.to_owned())
}

/// The number of a process.
pub(crate) fn process(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=i32::MAX.cast_unsigned()).contains(number));
    number.ok_or_else(|| "a process has a number of 1 or more; in a shell it is $$".to_owned())
}

/// The description of a holder; the library refuses a long one.
pub(crate) fn label() -> impl TypedValueParser<Value = String> {
    StringValueParser::new().map(|label| text::label(&label))
}

/// The name of an owner, which is a word in the labels of its locks.
pub(crate) fn owner(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it is empty: is a variable of the shell not set?".to_owned()),
        _ if text.len() > 64 => Err(format!("a name has at most 64 bytes; this one has {}", text.len())),
        _ if plain(text) != text || text.contains(char::is_whitespace) => {
            Err("a name has no spaces, and no control characters".to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

/// Whether to skip the check for locks that this program itself runs under.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Nested {
    /// Allow waiting for a lock that this program was started under.
    ///
    /// A command of `fencelock run KEY` that waits for the same KEY would deadlock, so fencelock refuses to wait. Use this
    /// option if that lock is already released.
    #[arg(long, help_heading = "Waiting")]
    pub(crate) nested_ok: bool,
}

/// How long to wait for other holders, and for servers that do not answer.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct Patience {
    /// Do not wait.
    #[arg(short, long, aliases = ["nonblock", "nb"], conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Wait at most this long: 5, 0.5, 90s, 2m, 1h30m [default: no limit]
    ///
    /// Without it, the wait ends when the backend has not answered for the TTL.
    #[arg(short, long, alias = "timeout", value_name = "DURATION", value_parser = span)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) nested: Nested,
}

impl Patience {
    /// `None` if there is no limit.
    pub(crate) fn limit(self) -> Option<Duration> {
        if self.no_wait { Some(Duration::ZERO) } else { self.wait }
    }
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
            assert_eq!(span(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_by_value() {
        for text in ["", " ", "-1", "+1", "nan", "inf", "1e9", "5x", "s", "1m5", "1..5", "5 s", "9999999999999999999d"]
        {
            let error = span(text).unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
