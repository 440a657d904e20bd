//! The mode of a lock: from the options of the command line, and as text and JSON.

use clap::Args;
use fencelock::Mode;
use serde_json::{Value, json};

/// Options for locks that several clients may hold at a time.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Sharing")]
pub(crate) struct ModeArguments {
    /// Acquire a shared lock: any number of clients may hold it together, but not with an exclusive lock.
    ///
    /// Waiters are served in the order of arrival: a reader does not overtake a waiting writer.
    #[arg(short, long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Acquire a part of N permits, so that at most N clients hold KEY at a time. All clients must name the same N.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(Mode::MOST_PERMITS)))]
    pub(crate) permits: Option<u32>,
    /// Acquire this many of the permits [default: 1]
    #[arg(long, value_name = "W", requires = "permits", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) weight: Option<u32>,
}

impl ModeArguments {
    /// The mode for this many keys. The error names the options that contradict each other.
    pub(crate) fn mode(self, keys: usize) -> Result<Mode, String> {
        let Some(limit) = self.permits else {
            return Ok(if self.shared { Mode::Shared } else { Mode::Exclusive });
        };
        let weight = self.weight.unwrap_or(1);
        if keys > 1 {
            return Err(format!("--permits applies to one KEY, not to {keys}"));
        }
        if weight > limit {
            return Err(format!("--weight {weight} is more than --permits {limit}: it could never be acquired"));
        }
        Mode::permits(weight, limit).map_err(|invalid| format!("--permits: {invalid}"))
    }
}

/// `exclusive`, `shared`, `permits`.
pub(crate) const fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Shared => "shared",
        Mode::Permits { .. } => "permits",
        _ => "exclusive",
    }
}

/// `exclusive`, `shared`, `2 of 10`: a column of a table.
pub(crate) fn column(mode: Mode) -> String {
    match mode {
        Mode::Permits { weight, limit, .. } => format!("{weight} of {limit}"),
        mode => name(mode).to_owned(),
    }
}

/// The weight and the limit of permits.
pub(crate) const fn permits(mode: Mode) -> (Option<u32>, Option<u32>) {
    match mode {
        Mode::Permits { weight, limit, .. } => (Some(weight), Some(limit)),
        _ => (None, None),
    }
}

/// A mode between two processes of this program, as [`column`].
pub(crate) mod text {
    use fencelock::Mode;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(crate) fn serialize<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::column(*mode))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Mode, D::Error> {
        let text = String::deserialize(deserializer)?;
        match (&*text, text.split_once(" of ").map(|(weight, limit)| (weight.parse(), limit.parse()))) {
            ("exclusive", _) => Ok(Mode::Exclusive),
            ("shared", _) => Ok(Mode::Shared),
            (_, Some((Ok(weight), Ok(limit)))) => Mode::permits(weight, limit).map_err(D::Error::custom),
            _ => Err(D::Error::custom(format!("{text:?} is no mode"))),
        }
    }
}

/// Adds `mode`, `weight` and `limit`.
pub(crate) fn with_mode(mut answer: Value, mode: Option<Mode>) -> Value {
    let (weight, limit) = mode.map_or((None, None), permits);
    answer["mode"] = json!(mode.map(name));
    (answer["weight"], answer["limit"]) = (json!(weight), json!(limit));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_name_one_mode() {
        let mode = |shared, permits, weight, keys| ModeArguments { shared, permits, weight }.mode(keys);
        assert_eq!(mode(false, None, None, 3), Ok(Mode::Exclusive));
        assert_eq!(mode(true, None, None, 3), Ok(Mode::Shared));
        assert_eq!(mode(false, Some(3), None, 1), Ok(Mode::permits(1, 3).unwrap()));
        assert_eq!(mode(false, Some(3), Some(3), 1), Ok(Mode::permits(3, 3).unwrap()));
        assert!(mode(false, Some(3), Some(4), 1).unwrap_err().contains("--weight 4 is more than --permits 3"));
        assert!(mode(false, Some(3), None, 2).unwrap_err().contains("one KEY"));
    }

    #[test]
    fn every_mode_has_a_name() {
        let permits = Mode::permits(2, 10).unwrap();
        assert_eq!([Mode::Exclusive, Mode::Shared, permits].map(name), ["exclusive", "shared", "permits"]);
        assert_eq!([Mode::Shared, permits].map(column), ["shared", "2 of 10"]);
        assert_eq!(with_mode(json!({}), Some(permits)), json!({ "mode": "permits", "weight": 2, "limit": 10 }));
        assert_eq!(with_mode(json!({}), None), json!({ "mode": null, "weight": null, "limit": null }));
    }
}
