//! Locks that this program runs under. Waiting for one of them would deadlock.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::spawn::Variable;
use crate::text::plain;
use serde_json::{Value, json};

/// The key of the innermost lock, or the keys of the innermost locks, one in each line, and their backend; outer locks are in
/// [`OUTER`].
const KEY: &str = "FENCELOCK_KEY";
const KEYS: &str = "FENCELOCK_KEYS";
const BACKEND: &str = "FENCELOCK_BACKEND";
/// JSON: pairs of a key and its backend.
const OUTER: &str = "FENCELOCK_OUTER";

/// The locks listed in the environment, innermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nesting {
    /// The backend is unknown if another version started this program.
    locks: Vec<(String, Option<String>)>,
}

impl Nesting {
    pub(crate) fn of_this_process() -> Self {
        let variable = |name| std::env::var(name).ok();
        Self::read(variable(KEY), variable(KEYS).as_deref(), variable(BACKEND), variable(OUTER).as_deref())
    }

    fn read(key: Option<String>, keys: Option<&str>, backend: Option<String>, outer: Option<&str>) -> Self {
        let pairs: Vec<(String, Option<String>)> = match outer.map(serde_json::from_str) {
            Some(Ok(Value::Array(pairs))) => pairs.iter().filter_map(pair).collect(),
            // Ignore an unrelated variable of that name.
            _ => Vec::new(),
        };
        let backend = backend.filter(|backend| !backend.is_empty());
        let mut keys: Vec<_> = keys.iter().flat_map(|keys| keys.lines()).map(str::to_owned).collect();
        keys.extend(key.filter(|key| !keys.contains(key)));
        let innermost = keys.into_iter().map(|key| (key, backend.clone()));
        Self { locks: innermost.chain(pairs).collect() }
    }

    /// Refuses to wait for `key` on `backend` if this program runs under it. The same key on another backend is another
    /// lock.
    pub(crate) fn check(&self, key: &str, backend: &str) -> Result<(), Failure> {
        let same = |known: &Option<String>| known.as_deref().is_none_or(|known| known == backend);
        if !self.locks.iter().any(|(known, at)| known == key && same(at)) {
            return Ok(());
        }
        let key = plain(key);
        Err(Failure::new(
            Exit::Usage,
            format!(
                "{key} is the lock that this program runs under (FENCELOCK_KEYS, FENCELOCK_OUTER), and it is held until \
                 this program exits: waiting would deadlock; use another key, or --nested-ok if that lock is released"
            ),
        ))
    }

    /// Refuses to wait for one of the slots of `key` if this program runs under all of them.
    pub(crate) fn check_slots(&self, key: &str, slots: u32, backend: &str) -> Result<(), Failure> {
        let mut refused = Ok(());
        for slot in 0..slots {
            refused = self.check(&format!("{key}#{slot}"), backend);
            if refused.is_ok() {
                break;
            }
        }
        refused
    }

    /// The environment of a command that runs under these locks too. With several keys, the variable for a single key is
    /// removed, so that a script does not mistake the first key for all.
    pub(crate) fn with(&self, keys: &[String], backend: &str) -> [Variable; 4] {
        let outer: Value = self.locks.iter().map(|(key, backend)| json!([key, backend])).collect();
        [
            (KEY, only(keys)),
            (KEYS, Some(keys.join("\n"))),
            (BACKEND, Some(backend.to_owned())),
            (OUTER, Some(outer.to_string())),
        ]
    }
}

/// The variables that only a single lock sets.
pub(crate) fn only(values: &[String]) -> Option<String> {
    if let [value] = values { Some(value.clone()) } else { None }
}

fn pair(value: &Value) -> Option<(String, Option<String>)> {
    let key = value.get(0)?.as_str()?.to_owned();
    Some((key, value.get(1)?.as_str().map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(outer: &Nesting, keys: &[&str], backend: &str) -> Nesting {
        let keys: Vec<_> = keys.iter().map(|&key| key.to_owned()).collect();
        let [(_, key), (_, keys), (_, backend), (_, outer)] = outer.with(&keys, backend);
        Nesting::read(key, keys.as_deref(), backend, outer.as_deref())
    }

    fn under(locks: &[(&str, &str)]) -> Nesting {
        let none = Nesting::read(None, None, None, None);
        locks.iter().fold(none, |outer, (key, backend)| inside(&outer, &[key], backend))
    }

    #[test]
    fn each_of_several_locks_counts() {
        let nesting = inside(&inside(&under(&[]), &["a", "b c"], "file:/x"), &["d"], "file:/y");
        for (key, backend) in [("a", "file:/x"), ("b c", "file:/x"), ("d", "file:/y")] {
            assert!(nesting.check(key, backend).is_err(), "{key}");
        }
        assert!(nesting.check("a", "file:/y").is_ok() && nesting.check("b", "file:/x").is_ok());
    }

    #[test]
    fn only_the_same_key_on_the_same_backend_is_refused() {
        let nesting = under(&[("k", "redis://a:6379")]);
        assert_eq!(nesting.check("k", "redis://a:6379").unwrap_err().exit, Exit::Usage);
        assert!(nesting.check("k", "redis://b:6379").is_ok() && nesting.check("j", "redis://a:6379").is_ok());
        assert!(under(&[]).check("k", "redis://a:6379").is_ok());
    }

    #[test]
    fn locks_further_out_count_too() {
        let nesting = under(&[("a", "file:/x"), ("b", "file:/y"), ("c", "file:/x")]);
        for (key, backend) in [("a", "file:/x"), ("b", "file:/y"), ("c", "file:/x")] {
            assert!(nesting.check(key, backend).is_err(), "{key}");
        }
        assert!(nesting.check("b", "file:/x").is_ok());
    }

    #[test]
    fn a_backend_that_is_not_known_may_be_the_same() {
        assert!(Nesting::read(Some("k".into()), None, None, None).check("k", "redis://a").is_err());
        assert!(Nesting::read(Some("k".into()), None, Some(String::new()), Some("nonsense")).check("k", "x").is_err());
    }
}
