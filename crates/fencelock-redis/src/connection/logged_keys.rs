//! Which keys a warning has named, so that each is named once and the log does not grow with the requests.

use fencelock_core::Moment;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The number of keys that are named in the time after which a key is named again. `doctor` names what the log leaves out.
const MOST: usize = 32;
/// A key is named again after this time: the first warning may be about something that has been repaired.
const AGAIN: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub(crate) struct LoggedKeys {
    at: Mutex<HashMap<String, Moment>>,
}

impl LoggedKeys {
    /// Whether to name this key now.
    pub(crate) fn is_due(&self, wire: &str, now: Moment) -> bool {
        let mut logged = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        logged.retain(|_, at| now.since(*at) < AGAIN);
        let is_due = logged.len() < MOST && !logged.contains_key(wire);
        if is_due {
            logged.insert(wire.to_owned(), now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::from_micros(secs * 1_000_000)
    }

    #[test]
    fn each_key_is_named_once_an_hour() {
        let logged = LoggedKeys::default();
        let named = [("a", 0), ("a", 1), ("b", 2), ("a", 3599), ("a", 3600), ("b", 3601), ("b", 3602), ("a", 3603)];
        let due: Vec<_> = named.iter().filter(|(key, secs)| logged.is_due(key, at(*secs))).collect();
        assert_eq!(due, [&("a", 0), &("b", 2), &("a", 3600), &("b", 3602)]);
    }

    #[test]
    fn many_keys_do_not_flood_the_log() {
        let logged = LoggedKeys::default();
        let due = |secs| (0..1000).filter(|key| logged.is_due(&key.to_string(), at(secs))).count();
        assert_eq!([due(0), due(1), due(3600)], [MOST, 0, MOST]);
        assert_eq!(logged.at.lock().unwrap().len(), MOST);
    }
}
