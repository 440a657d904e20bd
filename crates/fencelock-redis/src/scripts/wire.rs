//! The version of the wire format, and how to detect a later one.

/// The version of the wire format that the scripts write; a completion has its own. What to do before this changes:
/// `tests/wire/main.rs`.
pub(crate) const WIRE: &str = "1";

/// The prefix of the value of a lock that is not exclusive. The version follows.
const PREFIX: &str = "fencelock:";

/// The part of a value of this version that follows the version.
pub(crate) fn of_this_version(value: &str) -> Option<&str> {
    value.strip_prefix(PREFIX)?.strip_prefix(WIRE)?.strip_prefix(':')
}

/// The text about a value of a later version.
pub(crate) fn later_value(value: &str) -> Option<String> {
    const SHOWN: usize = 24;
    (value.starts_with(PREFIX) && super::shared::mode_of(value).is_none()).then(|| {
        let shown: String = value.chars().take(SHOWN).collect();
        format!("a lock of a later version of fencelock, {shown:?}...")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_the_prefix_of_later_versions_is_recognized() {
        assert!(later_value("fencelock:2:r:0:17").unwrap().contains("\"fencelock:2:r:0:17\""));
        assert!(later_value("fencelock:1:kept:17").is_some());
        assert_eq!(later_value("fencelock:1:r:0:17"), None);
        assert_eq!(later_value("fencelock"), None);
        assert_eq!(later_value(&"ab".repeat(16)), None);
    }
}
